"""`rankatlas check` in-process: its page, its exit codes, and hosts in `where`, `show` and `diff`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rankatlas.catalogue import codes
from rankatlas.cli.main import VERBS

ROOT = Path(__file__).resolve().parent.parent

MODEL = {
    "model_type": "llama",
    "hidden_size": 4608,
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

    def test_a_word_that_is_a_file_is_a_host_file(self, run, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "hostfile").write_text("n1 slots=4  # first\nn2 slots=4\n")
        answer = run("show", "dp=?", "--hosts", "hostfile")
        assert "8 ranks" in answer.out
        assert "--hosts hostfile is read as the file of that name" in answer.err
        assert "n2" in run("where", "5", "dp=8", "--hosts", "hostfile").out
        assert "hostfile" in run("where", "5", "dp=8", "--hosts", "hostfile,").out
        assert run("show", "dp=?", "--hosts", "./hostfile").err == ""
        (tmp_path / "gpu01").mkdir()
        assert "gpu01" in run("where", "1", "dp=2", "--hosts", "gpu01").out

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

    def test_devices_say_how_many_ranks_there_are_if_nothing_else_does(self, run, tmp_path):
        for options in (
            ("--nodes", "8x8"),
            ("--hosts", "gpu[001-008]:8"),
            ("--nodes", "8x8", "--hosts", "gpu[001-008]"),
        ):
            told = run("check", "pp=4 dp=? tp=8", *options, "--json").json
            assert told["notation"] == "pp=4 dp=2 tp=8"
            assert {"name": "world", "value": 64, "origin": f"given: {' '.join(options[:2])}"} in told[
                "understood"
            ] or ({"name": "world", "value": 64, "origin": "given: --hosts"} in told["understood"])
        script = tmp_path / "run.sh"
        script.write_text("torchrun --nnodes $N pretrain_gpt.py --tensor-model-parallel-size 4 --micro-batch-size 1")
        assert run("check", str(script)).code == 2
        assert run("check", str(script), "--nodes", "2x8", "--json").json["world_size"] == 16
        arguments = tmp_path / "args.json"
        arguments.write_text('{"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2}')
        assert (
            run("check", str(arguments), "--nodes", "2x8", "--json")
            .json["notation"]
            .endswith("dp=4 pp=2 sharding=1 sep=1 mp=2")
        )
        own = tmp_path / "own.yaml"
        own.write_text("format: rankatlas.job\nversion: 1\nlayout: dp=? tp=2\n")
        assert run("check", str(own), "--nodes", "2x8", "--json").json["notation"] == "dp=8 tp=2"

    def test_what_the_source_says_itself_wins_over_devices(self, run, log):
        told = run("check", log(), "--nodes", "2x8", "--json").json
        assert (told["world_size"], found(run("check", log(), "--nodes", "2x8", "--json"))) == (8, ["RA171"])
        assert "world" not in [row["name"] for row in told["understood"]]
        assert found(run("check", log(), "--nodes", "1x4", "--json")) == ["RA170"]

    def test_devices_and_a_world_that_contradict_each_other(self, run):
        assert found(run("check", "dp=? tp=2", "-n", "16", "--nodes", "1x8", "--json")) == ["RA170"]
        more = run("check", "dp=? tp=2", "-n", "16", "--nodes", "4x8", "--json")
        assert (found(more), more.json["findings"][0]["severity"]) == (["RA171"], "warning")
        assert run("where", "3", "dp=8", "--nodes", "1x4").code == 2
        idle = run("where", "3", "dp=8", "--nodes", "2x8")
        assert (idle.code, "8 of the 16 devices of 2x8 have no rank" in idle.out) == (0, True)

    def test_a_world_size_that_the_source_contradicts_is_a_finding(self, run, log):
        answer = run("check", log(), "-n", "16", "--json")
        (finding,) = [one for one in answer.json["findings"] if one["code"] == "RA100"]
        assert (answer.code, finding["severity"]) == (0, "warning")
        assert (finding["numbers"]["found"], finding["numbers"]["asked"]) == (8, 16)
        assert finding["fixes"][0]["lines"] == ["--world-size 8"]
        assert "the source is of 8 ranks (given, line 12), and 16 were asked for" in finding["message"]
        assert run("check", log(), "-n", "16", "--fail-on", "warning").code == 1
        assert "RA100" not in found(run("check", log(), "-n", "8", "--json"))

    @pytest.mark.parametrize("asked", ["7", "9"])
    def test_it_is_told_where_the_sizes_make_no_layout_too(self, run, log, asked):
        told = run("check", log(), "-n", asked, "--json")
        assert found(told)[:1] == ["RA102"]
        (finding,) = [one for one in told.json["findings"] if one["code"] == "RA100"]
        assert (finding["numbers"]["found"], finding["numbers"]["asked"]) == (8, int(asked))
        assert told.json["notes"] == []

    def test_devices_where_sizes_make_no_layout(self, run):
        told = run("check", "pp=4 dp=? tp=3", "--nodes", "8x8", "--json")
        assert (told.code, found(told), told.json["world_size"]) == (1, ["RA102"], 64)

    def test_hosts_without_devices_say_no_number_of_ranks(self, run):
        for verb in (("check",), ("where", "0"), ("show",)):
            answer = run(*verb, "dp=?", "--hosts", "a[1-3]")
            assert answer.code == 2
            assert "--hosts 'gpu[001-128]:8', or --nodes 16x8" in answer.err

    def test_where_and_show_take_the_number_of_devices(self, run):
        assert "rank 37 of pp=4 dp=2 tp=8" in run("where", "37", "pp=4 dp=? tp=8", "--nodes", "8x8").out
        told = run("show", "pp=4 dp=? tp=8", "--nodes", "8x8", "--json").json
        assert {"name": "world", "value": 64, "origin": "given: --nodes 8x8"} in told["given"]

    def test_a_host_file_that_is_a_pipe(self, tmp_path):
        command = f"{sys.executable} -m rankatlas check 'dp=? tp=2' --hosts <(echo a:4; echo b:4) --json"
        answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert json.loads(answer.stdout)["cluster"]["nodes"] == "2x4", answer.stderr

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
        assert "  fix: pp_degree: 2\n" in answer.out
        assert "  or:  dp_degree: 1\n       pp_degree: 4\n" in answer.out
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


def hook_in_the_docs():
    """The configuration of pre-commit that the page shows."""
    page = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    return page.partition("## Before every commit")[2].partition("```yaml\n")[2].partition("```")[0]


def test_the_hook_in_the_docs_runs_this_command_and_names_no_address():
    (repository,) = yaml.safe_load(hook_in_the_docs())["repos"]
    (hook,) = repository["hooks"]
    assert (repository["repo"], hook["language"]) == ("local", "system")
    assert hook["entry"] == "rankatlas check"
    page = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    assert "example.com" not in page


@pytest.mark.skipif(shutil.which("pre-commit") is None, reason="pre-commit is not installed")
def test_pre_commit_takes_the_hook_in_the_docs(tmp_path):
    place = tmp_path / "configurations"
    (place / "launch").mkdir(parents=True)
    (place / ".pre-commit-config.yaml").write_text(hook_in_the_docs())
    (place / "launch" / "job.json").write_text('{"tensor_parallel_degree": 8, "num_attention_heads": 36}')
    environment = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "home")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"

    def call(*command):
        return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)

    call("git", "init", "-q")
    call("git", "add", "-A")
    told = call("pre-commit", "run", "--all-files")
    assert (told.returncode, "error RA120" in told.stdout) == (1, True), told.stdout + told.stderr
    (place / "launch" / "job.json").write_text('{"tensor_parallel_degree": 4, "num_attention_heads": 36}')
    call("git", "add", "-A")
    told = call("pre-commit", "run", "--all-files")
    assert (told.returncode, "Passed" in told.stdout) == (0, True), told.stdout + told.stderr


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


class TestDiffOfOneSource:
    SCRIPT = (
        "TP=${TP:-2}\ntorchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size $TP --micro-batch-size 1"
    )

    def test_a_variable_for_one_side_alone(self, run, tmp_path):
        path = tmp_path / "run.sh"
        path.write_text(self.SCRIPT)
        told = run("diff", str(path), str(path), "--set", "TP=4", "--set-b", "TP=8", "--json")
        assert (told.code, told.json["first"], told.json["second"]) == (1, "pp=1 dp=2 cp=1 tp=4", "pp=1 dp=1 cp=1 tp=8")
        told = run("diff", str(path), "pp=1 dp=4 cp=1 tp=2", "--set-a", "TP=4", "--json").json
        assert told["first"] == "pp=1 dp=2 cp=1 tp=4"
        assert run("diff", str(path), str(path), "--set-b", "TP=2", "--json").json["equal"]

    def test_what_is_no_assignment(self, run, tmp_path):
        path = tmp_path / "run.sh"
        path.write_text(self.SCRIPT)
        assert "takes NAME=VALUE" in run("diff", str(path), str(path), "--set-a", "TP").err
        assert run("diff", "dp=2", "dp=2", "--set-a", "TP=2").code == 2
