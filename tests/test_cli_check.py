"""`rankatlas check` in-process: its page, its exit codes, and hosts in `where`, `show` and `diff`."""

import json
from pathlib import Path

import pytest
import yaml

from rankatlas.checks import codes
from rankatlas.cli.main import VERBS

ROOT = Path(__file__).resolve().parent.parent

MODEL = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 36,
    "num_hidden_layers": 30,
    "num_key_value_heads": 12,
}
ARGUMENTS = """\
------------------------ arguments ------------------------
  expert_model_parallel_size ...................... {ep}
  global_batch_size ............................... {batch}
  micro_batch_size ................................ 1
  num_attention_heads ............................. 16
  num_experts ..................................... 8
  num_layers ...................................... 12
  pipeline_model_parallel_size .................... 1
  seq_length ...................................... 4096
  tensor_model_parallel_size ...................... {tp}
  world_size ...................................... 8
-------------------- end of arguments ---------------------
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(MODEL))
    return str(path)


@pytest.fixture
def log(tmp_path):
    def written(name="slurm.out", ep=1, batch=8, tp=2):
        path = tmp_path / name
        path.write_text("starting\n" + ARGUMENTS.format(ep=ep, batch=batch, tp=tp) + "\ntraining ...\n")
        return str(path)

    return written


def found(answer):
    return [finding["code"] for finding in answer.json["findings"]]


class TestPage:
    def test_a_clean_layout(self, run):
        answer = run("check", "pp=4 dp=? tp=8", "-n", "64")
        assert answer.code == 0
        assert "outer → inner: pp, dp, tp" in answer.out
        assert "dp    2      inferred from world size 64" in answer.out
        assert answer.out.endswith("no findings\n")

    def test_the_numbers_of_a_model(self, run, model):
        answer = run("check", "pp=4 dp=? tp=8", "-n", "64", "--model", model)
        assert answer.code == 1
        assert "num_attention_heads of" in answer.out
        for code in ("RA120", "RA121", "RA130"):
            assert f"error {code}: " in answer.out
        assert "fix: pp=4 dp=4 tp=4" in answer.out
        assert "3 error(s), 0 warning(s), 0 note(s)" in answer.out

    def test_json_says_the_same(self, run, model):
        answer = run("check", "pp=4 dp=? tp=8", "-n", "64", "--model", model, "--json")
        assert (answer.code, answer.json["ok"]) == (1, False)
        assert found(answer) == ["RA120", "RA121", "RA130"]
        assert {"name": "dp", "value": 2, "origin": "inferred from world size 64"} in answer.json["understood"]
        (split,) = [one for one in answer.json["findings"] if one["code"] == "RA130"]
        assert split["numbers"]["offered"] == [8, 8, 7, 7]

    def test_sizes_that_make_no_layout_are_a_finding(self, run, model):
        answer = run("check", "pp=4 dp=? tp=3", "-n", "64", "--model", model)
        assert answer.code == 1
        assert "no layout follows from these sizes" in answer.out
        assert "error RA102" in answer.out
        assert "error RA130" in answer.out  # what needs no layout is said as well
        assert "dp  " not in answer.out.partition("error RA102")[0]
        answer = run("check", "pp=4 dp=3 tp=3", "-n", "64", "--json")
        assert (answer.code, found(answer), answer.json["notation"]) == (1, ["RA101"], None)

    def test_nodes(self, run):
        answer = run("check", "tp=8 dp=4", "--nodes", "4x8")
        assert answer.code == 0
        assert "stay on one node: dp" in answer.out
        assert "leave the node: tp (4 of 4 groups, 4 nodes each)" in answer.out
        assert "warning RA172" in answer.out
        assert "fix: dp=4 tp=8" in answer.out
        assert run("check", "tp=8 dp=4", "--nodes", "4x8", "--fail-on", "warning").code == 1
        assert run("check", "dp=4 tp=8", "--nodes", "4x8", "--fail-on", "note").code == 0

    def test_which_groups_leave_a_node_as_data(self, run):
        told = run("check", "dp=2 pp=2 cp=1 tp=4", "--nodes", "2x8", "--json").json["cluster"]
        assert told["inside"] == ["pp", "tp"]
        assert told["crossing"] == [{"axis": "dp", "count": 8, "groups": 8, "nodes": 2, "first": list(range(8))}]

    def test_uneven_nodes_and_hosts(self, run):
        assert found(run("check", "dp=2 tp=3", "--nodes", "4,2", "--json")) == ["RA172"]
        assert found(run("check", "dp=3 tp=2", "--nodes", "4,2", "--json")) == []
        hosts = run("check", "dp=3", "--hosts", "n1,n10,n2", "--json")
        assert found(hosts) == ["RA173"]
        assert found(run("check", "dp=3", "--nodes", "3x1", "--hosts", "n1,n10,n2", "--json")) == ["RA173"]
        assert found(run("check", "dp=8", "--nodes", "1x4", "--json")) == ["RA170"]

    def test_several_files(self, run, log):
        names = [log("a.log"), log("b.log", batch=9)]
        answer = run("check", *names)
        assert answer.code == 1
        assert answer.out.index(names[0]) < answer.out.index("no findings") < answer.out.index(names[1])
        told = run("check", *names, "--json").json
        assert [one["ok"] for one in told["sources"]] == [True, False]
        assert run("check", names[0], names[0]).code == 0

    def test_settings_of_a_file_stand_on_lines_of_their_own(self, run, tmp_path):
        path = tmp_path / "args.json"
        path.write_text('{"tensor_parallel_degree": 8, "data_parallel_degree": 2, "num_attention_heads": 36}')
        answer = run("check", str(path))
        assert '  fix: "tensor_parallel_degree": 4\n       "data_parallel_degree": 4\n' in answer.out

    def test_a_host_file(self, run, tmp_path):
        path = tmp_path / "hosts.txt"
        path.write_text("# two nodes\nb slots=4\na slots=2\n")
        answer = run("check", "dp=3 tp=2", "--hosts", str(path), "--json")
        assert answer.json["cluster"]["nodes"] == "4,2"


class TestRecords:
    def test_a_record_says_itself_where_it_ran(self, run, tmp_path):
        from rankatlas import Mesh
        from rankatlas.cli.places import recorded_cluster
        from rankatlas.job import Job

        def cluster(*hosts):
            places = {rank: {"host": host, "local_rank": 0} for rank, host in enumerate(hosts)}
            return recorded_cluster(Job(Mesh(dp=len(hosts)), format="record", source="", places=places))

        assert cluster("a", "a", "b").sizes() == [2, 1]
        assert cluster("a", "b", "a") is None
        assert recorded_cluster(Job(Mesh(dp=2), format="notation", source="")) is None


class TestExitCodes:
    @pytest.mark.parametrize(("level", "code"), [("error", 0), ("warning", 0), ("note", 1), ("never", 0)])
    def test_fail_on(self, run, log, level, code):
        answer = run("check", log(ep=2), "--fail-on", level)  # etp is inherited: a note
        assert "note RA112" in answer.out
        assert answer.code == code

    def test_an_error_can_be_let_pass(self, run, model):
        answer = run("check", "pp=4 tp=8 dp=2", "--model", model, "--fail-on", "never", "--json")
        assert (answer.code, answer.json["ok"]) == (0, True)

    @pytest.mark.parametrize(
        "arguments",
        [
            ("check",),
            ("check", "nowhere.json"),
            ("check", "dp=x"),
            ("check", "dp=8", "--model", "nowhere.json"),
            ("check", "dp=8", "--nodes", "many"),
            ("check", "dp=8", "--hosts", "a,b,c"),
            ("check", "dp=8", "--nodes", "2x4", "--hosts", "a,b,c"),
            ("check", "dp=8", "--lang", "fr"),
            ("check", "dp=8", "--fail-on", "hint"),
            ("check", "--explain", "RA999"),
        ],
    )
    def test_unusable_input(self, run, arguments):
        answer = run(*arguments)
        assert answer.code == 2
        assert answer.err
        assert "defect" not in answer.err


class TestLogs:
    def test_a_clean_log(self, run, log):
        answer = run("check", log())
        assert answer.code == 0
        assert "given, line" in answer.out
        assert answer.out.endswith("no findings\n")

    def test_lines_to_paste_are_megatrons(self, run, log):
        answer = run("check", log(batch=9))
        assert answer.code == 1
        assert "fix: --global-batch-size 8" in answer.out
        assert "or:  --global-batch-size 12" in answer.out

    def test_experts_that_do_not_fit_their_ranks(self, run, log):
        answer = run("check", log(ep=3))
        assert answer.code == 1
        assert "error RA110" in answer.out
        assert "ep=3 × etp=2 (inherited from tp) = 6 does not divide the 8 ranks" in answer.out
        assert "fix: --expert-model-parallel-size 2" in answer.out
        assert "dense.tp" in answer.out
        assert "--set" not in answer.out
        rows = {row["name"]: row["value"] for row in run("check", log(ep=3), "--json").json["understood"]}
        assert rows["expert.ep"] == 3

    def test_a_world_that_does_not_fit(self, run, log):
        answer = run("check", log(tp=3))
        assert answer.code == 1
        assert "tp=3 does not divide the world of 8 ranks" in answer.out
        assert "fix: --tensor-model-parallel-size 2" in answer.out

    def test_where_answers_with_host_and_local_rank(self, run, log):
        answer = run("where", "5", log(), "--hosts", "gpu[07-08]")
        assert "runs on     gpu08, local rank 1" in answer.out
        facts = run("where", "5", log(), "--hosts", "gpu[07-08]", "--json").json
        assert facts["place"] == {"host": "gpu08", "local_rank": 1}


@pytest.mark.parametrize(
    "options",
    [
        "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split --num-layers 30",
        "--account-for-loss-in-pipeline-split --num-layers 31",
        '--pipeline-model-parallel-layout "Et*8|t*8|t*7|t*7L" --num-layers 30',
        '--pipeline-model-parallel-layout "Et*4|t*4|t*4|t*4|t*4|t*4|t*3|t*3L" --num-layers 30',
    ],
)
def test_how_layers_are_shared_out_is_read_checked_and_written(run, tmp_path, options):
    path = tmp_path / "run.sh"
    sizes = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 4"
    path.write_text(f"torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py {sizes} {options}\n")
    source = [str(path), "--from", "megatron", "-n", "8"]
    assert found(run("check", *source, "--json")) == []
    written = run("convert", *source, "--to", "megatron")
    assert (written.code, written.err) == (0, "")
    told = written.out.replace("\n", " ")
    for option in options.partition(" --num-layers")[0].split(" --"):
        assert option.removeprefix("--") in told


class TestTrainingArguments:
    def check(self, run, tmp_path, *options, **arguments):
        path = tmp_path / "args.yaml"
        path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in arguments.items()))
        return run("check", str(path), "-n", "16", *options)

    def test_settings_that_contradict_each_other(self, run, tmp_path):
        answer = self.check(run, tmp_path, data_parallel_degree=2, sharding="stage1", tensor_parallel_degree=2)
        assert answer.code == 1
        assert "error RA108" in answer.out
        assert "set the sharding degree as well" in answer.out
        told = self.check(run, tmp_path, "--json", "--lang", "zh", tensor_parallel_degree=2, sharding="stage9").json
        assert [(one["code"], one["title"]) for one in told["findings"]] == [("RA108", "设置互相矛盾")]

    def test_lines_have_the_keys_of_the_source(self, run, tmp_path):
        arguments = {"mp_degree": 4, "dp_degree": 2, "sharding": "", "pp_degree": 3}
        answer = self.check(run, tmp_path, **arguments)
        assert "error RA101" in answer.out
        assert "  fix: pp_degree: 2\n  or:  dp_degree: 1\n       pp_degree: 4\n" in answer.out
        (finding,) = self.check(run, tmp_path, "--json", **arguments).json["findings"]
        for fix in finding["fixes"]:
            if "world" not in fix["changes"]:
                pasted = {key: int(value) for key, _, value in (line.partition(": ") for line in fix["lines"])}
                assert set(pasted) <= set(arguments)
                assert found(self.check(run, tmp_path, "--json", **arguments | pasted)) == []

    def test_what_is_about_our_reading_is_no_finding(self, run, tmp_path):
        answer = self.check(run, tmp_path, context_parallel_degree=2, tensor_parallel_degree=2)
        assert (answer.code, answer.out) == (2, "")

    def test_a_context_axis_that_stops_the_trainer_is_a_finding(self, run, tmp_path):
        answer = self.check(run, tmp_path, context_parallel_size=2, tensor_model_parallel_size=2, sharding="stage1")
        assert answer.code == 1
        assert "error RA108" in answer.out
        assert "get_context_parallel_world_size" in answer.out

    def test_a_default_that_decides_who_reads_data(self, run, tmp_path):
        answer = self.check(
            run, tmp_path, tensor_model_parallel_size=2, data_parallel_random_init=False, sep_parallel_size=1
        )
        assert "note RA103" in answer.out
        assert "sharding=8 was not given" in answer.out
        assert "fix: sharding: stage1" in answer.out
        told = self.check(run, tmp_path, "--json", tensor_model_parallel_size=2, sep_parallel_size=1, sharding="stage1")
        assert found(told) == []


class TestHosts:
    LAYOUT = "pp=2 dp=2 tp=2"

    def test_where(self, run):
        answer = run("where", "5", self.LAYOUT, "--nodes", "2x4")
        assert "runs on     node 1, local rank 1" in answer.out
        assert "talks to    pp: node 0; dp: node 1; tp: node 1" in answer.out
        assert run("where", "--host", "b", self.LAYOUT, "--hosts", "a,b").out == "[4, 5, 6, 7]\n"
        assert run("where", "--host", "c", self.LAYOUT, "--hosts", "a,b").code == 2
        assert run("where", "--host", "a", self.LAYOUT).code == 2
        assert run("where", "5", self.LAYOUT, "--nodes", "1x4").code == 2

    def test_show(self, run):
        answer = run("show", self.LAYOUT, "--hosts", "a,b")
        assert "runs on 2 host(s)" in answer.out
        assert "groups made" not in answer.out
        facts = run("show", self.LAYOUT, "--hosts", "a,b", "--json").json
        assert facts["hosts"] == {"a": [0, 1, 2, 3], "b": [4, 5, 6, 7]}
        many = run("show", "dp=1000", "--nodes", "1000x1", "--json").json
        assert (len(many["hosts"]), many["host_count"]) == (64, 1000)

    def test_a_world_nobody_can_list(self, run):
        answer = run("where", str(2**39), "pp=1048576 dp=131072 tp=8", "--nodes", f"{2**37}x8")
        assert f"runs on     node {2**36}, local rank 0" in answer.out
        assert len(answer.out) < 5000
        assert run("check", "pp=1048576 dp=131072 tp=8", "--nodes", f"{2**37}x8", "--json").code == 0


class TestDiff:
    def test_jobs_that_differ_in_their_batch(self, run, log):
        answer = run("diff", log("a.log"), log("b.log", batch=16))
        assert answer.code == 1
        assert "global_batch is 8 (given, line 4) in A and 16 (given, line 4) in B" in answer.out
        assert "every group is the same; the jobs differ otherwise" in answer.out
        told = run("diff", log("a.log"), log("b.log", batch=16), "--json").json
        assert told["equal"] is False
        assert "global_batch" in [one["name"] for one in told["settings"]]

    def test_a_default_that_one_of_them_writes_out(self, run, log, tmp_path):
        plain = log("a.log")
        written = tmp_path / "b.log"
        text = (tmp_path / "a.log").read_text()
        line = "  context_parallel_size ........................... 1\n"
        written.write_text(text.replace("  global_batch", line + "  global_batch"))
        answer = run("diff", plain, str(written))
        assert answer.code == 0
        assert "cp is the same, but default of Megatron-LM core 0.16 in A, given" in answer.out

    def test_a_job_and_notation(self, run, log):
        answer = run("diff", log(), "pp=1 dp=4 cp=1 tp=2")
        assert answer.code == 1 or "every group is the same" in answer.out
        assert "not said" not in answer.out


def test_the_pre_commit_hook_runs_this_command():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    program, verb = hook["entry"].split()
    assert (program, verb in VERBS, hook["language"]) == ("rankatlas", True, "python")
    assert f"id: {hook['id']}" in (ROOT / "docs" / "check.md").read_text(encoding="utf-8")


class TestExplain:
    @pytest.mark.parametrize("lang", ["en", "zh"])
    def test_every_code(self, run, lang):
        for code in codes():
            answer = run("check", "--explain", code.lower(), "--lang", lang)
            assert answer.code == 0
            assert answer.out.startswith(code)
        everything = run("check", "--explain", "all", "--lang", lang, "--json").json
        assert [one["code"] for one in everything["findings"]] == list(codes())

    def test_chinese(self, run, model):
        answer = run("check", "pp=4 dp=? tp=8", "-n", "64", "--model", model, "--lang", "zh")
        assert answer.code == 1
        assert "错误 RA120: 注意力头数不能被 tp 整除" in answer.out
        assert "外 → 内：pp, dp, tp" in answer.out
        english = run("check", "pp=4 dp=? tp=8", "-n", "64", "--model", model)
        assert [line for line in answer.out.splitlines() if "修改：" in line]
        assert "error" not in answer.out
        assert len(answer.out.splitlines()) == len(english.out.splitlines())
