"""The corners of a shell in launch scripts.  What each of these starts is what bash 5 started when it ran it."""

from __future__ import annotations

import contextlib
import time

import pytest

from rankatlas.checks import check_job
from rankatlas.dialects import read_config
from rankatlas.dialects.scripts import read_script
from rankatlas.errors import RankatlasError

END = "\n  # --pp 4 \\\n  --cp 4\n"


def started(text):
    return {name: value for name, value in read_script(text, "run.sh", {}).values_.items() if name != "launcher"}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        # where a command ends
        ("torchrun t.py \\\n  --tp 2 \\" + END, {"tp": 2}),
        ("torchrun t.py \\\n  --tp 2 \\ \n  --pp 4\n", {"tp": 2}),
        ("if [[ ! -f a || ! -f b ]]; then cd /; fi\ntorchrun t.py --tp 2", {"tp": 2}),
        ("torchrun t.py --tp 2\nif [[ ! -f a || ! -f b ]]; then cd /; fi", {"tp": 2}),
        ("torchrun t.py --tp 2 2> >(tee --pp err)", {"tp": 2}),
        ("torchrun t.py --tp 2 <<< 'x y'\necho", {"tp": 2}),
        # here-documents
        ("cat <<\\EOF\ntorchrun t.py --tp 8\nEOF\ntorchrun t.py --tp 2", {"tp": 2}),
        ("torchrun t.py --tp 2\ncat <<'END-X'\ntorchrun t.py --tp 8\nEND-X", {"tp": 2}),
        ("torchrun t.py --tp 2\ncat >x<<EOF\ntorchrun t.py --tp 8\nEOF", {"tp": 2}),
        ("bash <<EOF\ntorchrun t.py --tp 2\nEOF", {"tp": 2}),
        ("TP=2\nbash <<EOF\nPP=4\ntorchrun t.py --tp $TP --pp \\$PP\nEOF\necho", {"tp": 2, "pp": 4}),
        ("TP=2\nbash <<'EOF'\nTP=4\ntorchrun t.py --name \"a b\" --tp $TP\nEOF", {"name": "a b", "tp": 4}),
        ('TP=2\nbash <<EOF\ntorchrun t.py --name "a b" \\\\\n  --tp $TP\nEOF', {"name": "a b", "tp": 2}),
        ("((Y = 1 << n))\ntorchrun t.py --tp 2", {"tp": 2}),
        # what starts nothing, and what ends a script
        ("torchrun t.py --tp 2\necho torchrun t.py --tp 8", {"tp": 2}),
        ("torchrun t.py --tp 2\npkill -f torchrun --tp 8", {"tp": 2}),
        ("torchrun t.py --tp 2\nexit 0\ntorchrun t.py --tp 4", {"tp": 2}),
        ("[ -z 1 ] && exit 1\ntorchrun t.py --tp 2", {"tp": 2}),
        ("(exit 1)\ntorchrun t.py --tp 2", {"tp": 2}),
        ("exec torchrun t.py --tp 2\ntorchrun t.py --tp 4", {"tp": 2}),
        ("exec > log\ntorchrun t.py --tp 2", {"tp": 2}),
        ("torchrun t.py --tp 2 | python filter.py --tp 9", {"tp": 2}),
        ("if torchrun t.py --tp 2; then echo; fi", {"tp": 2}),
        ("bash -e -c 'torchrun t.py --tp 2'", {"tp": 2}),
        # what a variable holds
        ("TP=\ntorchrun t.py --tp ${TP:-2}", {"tp": 2}),
        ("TP=\n: ${TP:=2}\ntorchrun t.py --tp $TP", {"tp": 2}),
        ("TP=8\nTP=2 torchrun t.py --tp $TP", {"tp": 8}),
        ("TP=8\nTP=2 true\ntorchrun t.py --tp $TP", {"tp": 8}),
        ("TP=2 bash -c 'torchrun t.py --tp $TP'", {"tp": 2}),
        ("export A=2 B=4\ntorchrun t.py --tp $A --pp $B", {"tp": 2, "pp": 4}),
        ("X=4\ntorchrun t.py --tp ${TP:-$X} --pp ${PP:-${X}} --cp ${CP:-$((X*2))}", {"tp": 4, "pp": 4, "cp": 8}),
        ("A=3\ntorchrun t.py ${A:+--tp 4} --cp 2", {"tp": 4, "cp": 2}),
        ("A=\ntorchrun t.py --cp 2 ${A:+--tp 4}", {"cp": 2}),
        ('X=$(echo ")" )\ntorchrun t.py --tp 2', {"tp": 2}),
        ('X=${Y:-"}"}\ntorchrun t.py --tp 2', {"tp": 2}),
        ("X=$(date # it's late\n)\ntorchrun t.py --tp 2", {"tp": 2}),
        ("torchrun t.py $'--tp' 2", {"tp": 2}),
        ("set -- 4 8\ntorchrun t.py --tp $1 --pp $2", {"tp": 4, "pp": 8}),
        ('set -- 1 --tp 4\nshift\ntorchrun t.py "$@" --pp 2', {"tp": 4, "pp": 2}),
        # numbers
        ("A=$((0-7))\ntorchrun t.py --tp $((A/2)) --pp $((A%2)) --cp $((-7/2))", {"tp": -3, "pp": -1, "cp": -3}),
        ("torchrun t.py --tp $((010)) --pp $((0x10))", {"tp": 8, "pp": 16}),
        # functions
        ("TP=2\ngo() { torchrun t.py --tp $TP; }\nTP=4\ngo", {"tp": 4}),
        ("go() {\n  torchrun t.py --tp $1 --pp $2\n}\ngo 4 2", {"tp": 4, "pp": 2}),
        ('go() {\n  local tp=$1; shift\n  torchrun t.py --tp $tp "$@"\n}\ntp=8\ngo 4 --pp 2', {"tp": 4, "pp": 2}),
        ("go() { local tp=4; }\ntp=8\ngo\ntorchrun t.py --tp $tp", {"tp": 8}),
        ("setup() { TP=4; }\nTP=2\nsetup\ntorchrun t.py --tp $TP", {"tp": 4}),
        ("setup() { TP=4; }\nTP=2\ntorchrun t.py --tp $TP", {"tp": 2}),
        ("setup() { TP=4; return; TP=8; }\nsetup\ntorchrun t.py --tp $TP", {"tp": 4}),
        ("function go() {\n  if true; then\n    torchrun t.py --tp 2\n  fi\n}\ngo", {"tp": 2}),
        ("torchrun t.py --tp 2\nusage() {\n  torchrun t.py --tp 8\n  exit 1\n}", {"tp": 2}),
    ],
)
def test_a_launch_is_the_one_that_a_shell_would_start(text, options):
    assert started(text) == options


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("setup() { TP=4; }\nTP=2\n[ $X ] && setup\ntorchrun t.py --tp $TP", "TP"),
        ("TP=2\n[ $X ] && eval 'A=1; TP=4'\ntorchrun t.py --tp $TP", "TP"),
        ("torchrun t.py --tp ${TP:-$X}", "X"),
        ("torchrun t.py --tp ${X:+4}", "X"),
        ("go() { torchrun t.py --tp $1; }", "1"),
    ],
)
def test_what_may_be_otherwise_is_open(text, waits):
    given = read_script(text, "run.sh", {})
    assert [name.split(",")[0] for name in given.unresolved["tp"]] == [waits]


def test_options_that_belong_to_no_command_are_told():
    for cut in (END, " \n  --cp 4\n"):
        notes = read_script("torchrun t.py \\\n  --tp 2 \\" + cut, "run.sh", {}).notes
        assert any("begins with an option" in note for note in notes)


def test_a_function_that_nothing_is_seen_to_call_is_read():
    assert started('go() { torchrun t.py --tp 2; }\n"$1"') == {"tp": 2}


@pytest.mark.parametrize(
    "text",
    [
        "f() { f; f; f; torchrun t.py --tp 2; }\nf\n",
        "f() {\n" * 2000,
        "f() { g; g; }\ng() { f; f; }\n" + "f\n" * 5000,
        "X=" + "${A:-" * 5000 + "1" + "}" * 5000,
        'torchrun t.py --x "' + "$(" * 60000,
        "$('a)" * 40000,
        "[[ " + "a || " * 40000,
        "set -- " + "a " * 100000 + "\n" + "shift\n" * 500,
        "cat <<A <<B <<C\n" * 3000,
    ],
)
def test_hostile_functions_and_brackets_cost_little(text):
    begin = time.perf_counter()
    with contextlib.suppress(RankatlasError):
        read_script(text, "run.sh", {})
    assert time.perf_counter() - begin < 5


@pytest.mark.parametrize(
    ("command", "world"),
    [
        ("#SBATCH --nodes=4 --ntasks-per-node=8\ntorchrun --nproc_per_node 8 t.py", 8),
        ("#SBATCH --nodes=4 --ntasks-per-node=1\nsrun torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES t.py", 32),
        ("#SBATCH --nodes=4 --ntasks-per-node=8\nsrun python t.py", 32),
        ("#SBATCH --nodes=4 --ntasks-per-node=8\nsrun -N 2 python t.py", 16),
        (
            "sbatch <<EOT\n#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=8\nsrun python t.py --pp 2\nEOT\necho",
            16,
        ),
        ("#SBATCH -N4\n#SBATCH -n32\nsrun python t.py", 32),
        ("srun --nodes=2 torchrun --nproc_per_node 8 t.py", 8),
        ("deepspeed --include localhost:0,1,2,3 t.py", 4),
        ("deepspeed --include='w1:0,1@w2:0,1,2' t.py", 5),
        ("deepspeed --include w1 t.py", None),
        ("mpirun --np 16 python t.py", 16),
        ("srun --nodes 2 --ntasks-per-node=8 python t.py --devices 8", 16),
        ("#SBATCH --ntasks-per-node=1\nsrun python -m paddle.distributed.launch --nnodes 2 --gpus 0,1,2,3 t.py", 8),
        ("python -m paddle.distributed.launch --devices 0-7 t.py", None),
    ],
)
def test_how_many_ranks_a_launcher_starts(command, world):
    assert read_script(f"{command} --tp 2", "run.sh", {}).at("launcher.world_size") == world


@pytest.mark.parametrize(
    "text",
    [
        "defaults: ../base.yaml\npolicy: {megatron_cfg: {enabled: true, tensor_model_parallel_size: 2}}\n"
        "cluster: {gpus_per_node: 8, num_nodes: 1}\n",
        "defaults: [base, _self_]\ntrainer: {n_gpus_per_node: 8, nnodes: 1}\n"
        "actor_rollout_ref: {actor: {strategy: fsdp}, rollout: {tensor_model_parallel_size: 2}}\n",
    ],
)
def test_a_configuration_that_changes_another_says_so(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    assert any("builds on" in note and "base" in note and "_self_" not in note for note in read_config(str(path)).notes)


def test_samples_of_a_step_are_not_judged_where_a_base_says_how_many_responses(tmp_path):
    path = tmp_path / "run.yaml"
    text = "policy: {megatron_cfg: {enabled: true, tensor_model_parallel_size: 1}, train_micro_batch_size: 1}\n"
    text += "cluster: {gpus_per_node: 8, num_nodes: 1}\ngrpo: {num_prompts_per_step: 2}\n"
    path.write_text(text, encoding="utf-8")
    assert "RA161" in [finding.code for finding in check_job(read_config(str(path)))]
    path.write_text(f"defaults: base.yaml\n{text}", encoding="utf-8")
    assert "RA161" not in [finding.code for finding in check_job(read_config(str(path)))]


class TestVerl:
    WORDS = "python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=8 trainer.nnodes=1"
    WORDS += " actor_rollout_ref.rollout.tensor_model_parallel_size=2"

    def test_a_size_of_megatron_that_waits_is_no_default(self):
        words = f"{self.WORDS} actor_rollout_ref.actor.megatron.tensor_model_parallel_size=$X"
        with pytest.raises(RankatlasError, match="--set X="):
            read_config(words)
        assert read_config(words, sets={"X": "4"}).layout["train"].size("tp") == 4

    def test_the_configuration_that_a_command_begins_with_says_who_trains(self):
        job = read_config(f"{self.WORDS} --config-name='ppo_megatron_trainer.yaml'")
        assert job.layout["train"].axes == ("pp", "dp", "cp", "tp")
        assert read_config(self.WORDS).layout["train"].axes == ("fsdp",)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.yaml", "a:\n" + "".join(" " * depth + "a:\n" for depth in range(1, 700)), "nested too deeply"),
        ("a.sh", "#!/bin/bash\n# caf\udce9\ntorchrun t.py --tensor-model-parallel-size 2\n", "store it as UTF-8"),
    ],
)
def test_a_refusal_says_what_to_do(tmp_path, name, data, message):
    path = tmp_path / name
    path.write_text(data, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(RankatlasError, match=message):
        read_config(str(path))
