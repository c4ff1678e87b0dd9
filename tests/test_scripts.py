"""Launch scripts as a shell would run them: what is set for sure, what only perhaps, and which words are whose."""

from __future__ import annotations

import time

import pytest

from rankatlas.dialects import read_config
from rankatlas.dialects.scripts import read_script
from rankatlas.errors import RankatlasError, SourceError

LAUNCH = "\ntorchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --tensor-model-parallel-size $TP\n"


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "run.sh"
        path.write_text("#!/bin/bash\n" + text, encoding="utf-8")
        return str(path)

    return write


class TestArrays:
    @pytest.mark.parametrize("use", ['"${M[@]}"', "${M[@]}", '"$@" "${M[@]}"'])
    def test_a_quoted_array_keeps_its_words(self, script, use):
        text = "M=(--num-layers 30 --tensor-model-parallel-size 2)\n"
        text += f"torchrun --nproc_per_node 8 pretrain_gpt.py {use} --pipeline-model-parallel-size 4\n"
        assert str(read_config(script(text)).layout) == "pp=4 dp=1 cp=1 tp=2"

    def test_what_a_branch_adds_is_open_and_the_rest_stays(self, script):
        text = 'M=(--num-layers 30 --tensor-model-parallel-size 2)\nif [ "$A" ]; then M+=(--swiglu); fi\n'
        text += 'torchrun --nproc_per_node 8 pretrain_gpt.py "${M[@]}"\n'
        job = read_config(script(text))
        assert job.layout.size("tp") == 2
        assert any("M" in note and "not known" in note for note in job.notes)

    def test_a_quoted_empty_word_is_a_value(self):
        assert read_script('python x.py --a "" --b 2', "x", {}).values_ == {"a": "", "b": 2}


class TestSeveralCommands:
    TRAIN = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --tensor-model-parallel-size 4\n"
    CONVERT = "python tools/checkpoint/convert.py --model-type GPT --target-tensor-parallel-size 1 --load-dir a\n"

    @pytest.mark.parametrize("order", [(TRAIN, CONVERT), (CONVERT, TRAIN), (CONVERT, TRAIN, CONVERT, CONVERT)])
    def test_the_one_with_the_sizes_is_read(self, script, order):
        job = read_config(script("".join(order)))
        assert str(job.layout) == "pp=1 dp=2 cp=1 tp=4"
        assert any(f"{len(order)} commands" in note for note in job.notes), job.notes

    def test_the_last_of_several_with_sizes_is_read(self, script):
        assert read_config(script(self.TRAIN + self.TRAIN.replace("size 4", "size 2"))).layout.size("tp") == 2

    def test_options_of_a_list_are_no_commands(self, script):
        text = "--tensor-model-parallel-size 2\n--num-layers 8\n--pipeline-model-parallel-size 2\n"
        assert str(read_config(script(text), world_size=8).layout) == "pp=2 dp=2 cp=1 tp=2"


class TestTextGivenToAShell:
    ARGS = 'ARGS="\n--num-layers 8\n--tensor-model-parallel-size 4\n"\n'

    def test_a_new_line_ends_the_command(self, script):
        text = self.ARGS + 'srun -n 8 bash -c "python pretrain_gpt.py --micro-batch-size 1 $ARGS"\n'
        with pytest.raises(SourceError, match=r"a new line ends a command .* '--num-layers' is no option"):
            read_config(script(text))
        text = text.replace("size 1", "size 1 --tensor-model-parallel-size 2 --seq-length 8")
        job = read_config(script(text))
        assert job.layout.size("tp") == 2
        assert any("a new line ends a command" in note for note in job.notes)

    def test_a_backslash_goes_on(self, script):
        text = "srun -n 8 bash -c 'python pretrain_gpt.py --num-layers 8 \\\n --tensor-model-parallel-size 4'\n"
        job = read_config(script(text))
        assert job.layout.size("tp") == 4
        assert job.notes == ()

    def test_outside_of_quotes_a_new_line_parts_words(self, script):
        job = read_config(script(self.ARGS + "srun -n 8 python pretrain_gpt.py $ARGS\n"))
        assert job.layout.size("tp") == 4
        assert job.notes == ()


class TestLaunchers:
    @pytest.mark.parametrize(
        ("words", "world"),
        [
            ("srun --ntasks-per-node=8 --nodes=2 python pretrain_gpt.py", 16),
            ("srun -N 2 -n 16 python pretrain_gpt.py", 16),
            ("srun -N2 -n16 python pretrain_gpt.py", 16),
            ("srun --ntasks=16 python pretrain_gpt.py", 16),
            ("srun -N 4 --ntasks-per-node 8 -n 24 python pretrain_gpt.py", 24),
            ("srun -N 4 -n 4 torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py", 32),
            ("srun -n 4 python -m paddle.distributed.launch --gpus 0,1 --nnodes 4 pretrain_gpt.py", 8),
            ("torchrun --nproc_per_node 8 --nnodes 2 $SCRIPT", 16),
            ("torchrun --nproc_per_node 8 --nnodes=2:2 pretrain_gpt.py", 16),
        ],
    )
    def test_how_many_ranks(self, words, world):
        assert read_config(f"{words} --num-layers 8 --tensor-model-parallel-size 2").layout.world_size == world

    @pytest.mark.parametrize(
        ("directives", "words", "world"),
        [
            ("-N 4|--ntasks-per-node=8", "srun python", 32),
            ("-N 4|--ntasks-per-node=8", "srun --ntasks=24 python", 24),
            ("-N 4|--ntasks-per-node=8", "srun -n 24 python", 24),
            ("-N 4|--ntasks-per-node=8", "srun --nodes 3 python", 24),
            ("-N 4|--ntasks-per-node=8|-n 24", "srun python", 24),
            ("-n 32", "srun -N 3 --ntasks-per-node=8 python", 24),
            ("-N 4|-n 4", "srun torchrun --nproc_per_node 8 --nnodes 4", 32),
        ],
    )
    def test_a_number_of_tasks_wins_over_tasks_per_node(self, script, directives, words, world):
        text = "".join(f"#SBATCH {one}\n" for one in directives.split("|"))
        text += f"{words} pretrain_gpt.py --num-layers 8 --tensor-model-parallel-size 2\n"
        assert read_config(script(text)).layout.world_size == world

    def test_a_number_of_tasks_that_is_not_known_is_no_other(self, script):
        text = "#SBATCH -N 4\n#SBATCH --ntasks-per-node=8\n"
        text += "srun -n $N python pretrain_gpt.py --num-layers 8 --tensor-model-parallel-size 2\n"
        with pytest.raises(SourceError, match="--world-size"):
            read_config(script(text))
        assert read_config(script(text), sets={"N": "24"}).layout.world_size == 24

    def test_a_range_of_nodes(self):
        words = "torchrun --nproc_per_node 8 --nnodes=1:4 x.py --num-layers 8 --tensor-model-parallel-size 2"
        with pytest.raises(SourceError, match="1:4 is elastic"):
            read_config(words)
        assert read_config(words, sets={"nnodes": "2"}).layout.world_size == 16
        assert read_config(words, world_size=8).layout.world_size == 8

    def test_output_sent_elsewhere_is_no_value(self):
        for end in ("> log.txt 2>&1", "2>&1 | tee log", "&> log"):
            words = f"torchrun --nproc_per_node 8 x.py --num-layers 8 --tensor-model-parallel-size 2 {end}"
            assert read_config(words).layout.size("tp") == 2

    @pytest.mark.parametrize(
        ("script", "sizes"),
        [
            ('srun -N 2 bash -c "torchrun --nnodes 2 --nproc_per_node 8 x.py --tensor-model-parallel-size 2"', (16, 2)),
            ("TP=4\nsrun sh -c 'torchrun --nproc_per_node 8 x.py --tensor-model-parallel-size $TP'", (8, 4)),
            (
                'RUN="torchrun --nproc_per_node $GPUS --nnodes $NODES"\nGPUS=8 NODES=3\n'
                'RUN="torchrun --nproc_per_node $GPUS --nnodes $NODES"\n'
                'ARGS="--tensor-model-parallel-size 8 --num-layers 8"\nexport CMD=" `pwd`/pretrain.py $ARGS"\n'
                'srun --wait=60 bash -c "$RUN --node_rank \\$SLURM_PROCID $CMD" 2>&1 | tee log',
                (24, 8),
            ),
            ("srun --ntasks-per-node=8 -N 2 bash -lc 'cd /x; python x.py --tensor-model-parallel-size 4'", (16, 4)),
            ("""bash -c "bash -c 'torchrun --nproc_per_node 8 x.py --tensor-model-parallel-size 2'\"""", (8, 2)),
            (
                "#!/bin/bash\n#SBATCH --nodes=48\n#SBATCH --gres=gpu:8\nNNODES=$SLURM_NNODES\n"
                "torchrun --nnodes $NNODES --nproc_per_node $SLURM_GPUS_ON_NODE x.py --tensor-model-parallel-size 4",
                (384, 4),
            ),
        ],
    )
    def test_a_command_in_quotes_is_read_as_its_shell_would(self, tmp_path, script, sizes):
        path = tmp_path / "run.sh"
        path.write_text("#!/bin/bash\n" + script, encoding="utf-8")
        layout = read_config(str(path), "megatron").layout
        assert (layout.world_size, layout.size("tp")) == sizes

    def test_what_a_quoted_command_sets_stays_in_it(self, tmp_path):
        path = tmp_path / "run.sh"
        words = "python x.py --tensor-model-parallel-size $TP --nproc_per_node 8"
        path.write_text(f"#!/bin/bash\nTP=2\nbash -c 'TP=4; cd x; python x.py'\n{words}", encoding="utf-8")
        assert read_config(str(path), "megatron", world_size=8).layout.size("tp") == 2

    def test_several_options_of_one_directive(self, tmp_path):
        path = tmp_path / "run.slurm"
        words = "srun -l sh -c 'python x.py --tensor-model-parallel-size 4'"
        path.write_text(f"#!/bin/bash\n#SBATCH <MORE> --nodes=128 --exclusive --ntasks-per-node=8 -J x\n{words}")
        assert read_config(str(path), "megatron").layout.world_size == 1024

    def test_the_number_of_nodes_is_from_the_directive(self, tmp_path):
        path = tmp_path / "run.slurm"
        words = "python x.py --tensor-model-parallel-size $SLURM_NTASKS_PER_NODE"
        path.write_text(f"#!/bin/bash\n#SBATCH --ntasks-per-node=4\n{words}", encoding="utf-8")
        job = read_config(str(path), "megatron", world_size=8)
        assert {fact.name: fact.origin for fact in job.facts}["tp"] == "SLURM_NTASKS_PER_NODE of #SBATCH, line 2"

    def test_hydra_words_alone_are_a_command_line(self):
        words = "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.tensor_model_parallel_size=2"
        words += " trainer.n_gpus_per_node=8 trainer.nnodes=1 actor_rollout_ref.actor.strategy=fsdp"
        assert read_config(words).layout["rollout"].world_size == 8


class TestWhatMayBeSet:
    @pytest.mark.parametrize(
        "text",
        [
            'TP=2\n[ "$BIG" ] && TP=4',
            'TP=2\n[[ "$BIG" ]] || TP=4',
            'TP=2\n[ "$BIG" ] &&\n  export TP=4',
            'TP=2\n[ "$BIG" ] && { TP=4; }',
            'TP=2\n[ "$BIG" ] && PP=1 && TP=4',
            "TP=2\ncase $M in\n 7b) TP=4;;\n a|b) X=1;;\nesac",
            "TP=2\ncase $M in 7b) TP=4;; esac",
            "case $M in 7b) TP=4;; esac\nTP=${TP:-2}",
            'TP=2\nwhile getopts "t:" o; do case $o in t) TP=$OPTARG;; esac; done',
            "TP=2\nwhile getopts 't:' o\ndo\n case $o in\n  t) TP=$OPTARG;;\n esac\ndone",
            "TP=2\nread -r TP",
            "TP=2\nread -r A TP <<< $X",
            "TP=2\nunset TP",
            "TP=2\neval TP=$X",
            'TP=2\neval "TP=$X"',
            "TP=2\nprintf -v TP %d $X",
            "TP=2\n((TP=X*2))",
            "TP=2\n[ $A ] && ((TP*=2))",
            "TP=2\nfor TP in 2 4; do true; done",
            "TP=2\nif [ $A ]; then unset TP; fi",
        ],
    )
    def test_it_is_open(self, script, text):
        path = script(text + LAUNCH)
        with pytest.raises(SourceError, match="tensor_model_parallel_size waits for"):
            read_config(path)
        assert read_config(path, sets={"TP": "8"}).layout.size("tp") == 8

    @pytest.mark.parametrize(
        ("text", "size"),
        [
            ("{ TP=4; }", 4),
            ("TP=2; ((TP=4))", 4),
            ("TP=2; ((TP*=2))", 4),
            ("TP=2; (( TP = (TP + 2) * 2 ))", 8),
            ("TP=3; ((TP++))", 4),
            ("TP=2; let TP=4", 4),
            ("TP=2; ( TP=4 )", 2),
            ("TP=2\nunset TP\nTP=${TP:-4}", 4),
            ("export A=1 && export TP=4", 4),
            ("cd /tmp && TP=4", 4),
            ("if [ $A ]; then X=1; fi; TP=4", 4),
            ("case $A in x) X=1;; esac; TP=4", 4),
            (": ${TP:=4}", 4),
            ("declare -i TP=4", 4),
            ("f() { X=1; }\nTP=4", 4),
            ("f()\n{\n X=1\n}\nTP=4", 4),
            ("run 2>&1\nTP=4", 4),
            ("eval TP=4", 4),
            ("X='TP=4'; eval $X", 4),
            ("X='export TP=$Y'; Y=4; eval \"$X\"", 4),
            ("TP=2; ( { TP=4; } )", 2),
            ("TP=2; ( ( TP=4 ) )", 2),
            ("TP=2; ( if true; then TP=4; fi )", 2),
            ("TP=2; ( ( TP=4 ); TP=8 ); X=1", 2),
            ("TP=1; TP+=6", 16),
            ('A=1; A="$A"6; TP=$A', 16),
        ],
    )
    def test_it_is_known(self, script, text, size):
        assert read_config(script(text + LAUNCH.replace("8 pre", "16 pre"))).layout.size("tp") == size

    @pytest.mark.parametrize(
        ("text", "size"),
        [
            ('A=2; B=$A; A="$A"4; A="$B"; TP=$A', 2),
            ('A=2; ( A="$A"4 ); A="$A"; TP=$A', 2),
        ],
    )
    def test_what_grew_elsewhere_stays_as_it_was(self, script, text, size):
        assert read_config(script(text + LAUNCH)).layout.size("tp") == size

    def test_options_that_a_condition_adds(self, script):
        text = 'A="--num-layers 8 --tensor-model-parallel-size 4"\n[ -n "$MOE" ] && A="$A --num-experts 2"\n'
        job = read_config(script(text + "torchrun --nproc_per_node 8 x.py $A"))
        assert job.layout.size("tp") == 4
        assert any("A" in note and "not known" in note for note in job.notes)


class TestWhatFollows:
    @pytest.mark.parametrize("rest", ['"$@"', "$EXTRA_ARGS", "${EXTRA_ARGS}"])
    def test_an_option_has_its_value(self, rest):
        job = read_config(f"torchrun --nproc_per_node 8 x.py --num-layers 8 --tensor-model-parallel-size 2 {rest}")
        assert job.layout.size("tp") == 2
        assert any("not known" in note for note in job.notes)

    def test_nothing_given_for_it(self):
        words = "torchrun --nproc_per_node 8 x.py --num-layers 8 --tensor-model-parallel-size 2 $OPTS"
        assert read_config(words, sets={"OPTS": ""}).layout.size("tp") == 2
        with pytest.raises(RankatlasError):
            read_config(words.replace("-size 2", "-size"), sets={"OPTS": ""})


START = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --tensor-model-parallel-size "


class TestEval:
    @pytest.mark.parametrize(
        "how", ["eval $CMD", 'eval "$CMD"', "eval ${CMD}", 'A=eval\nB="$CMD"\neval "$B"', '{ eval "$CMD"; }']
    )
    @pytest.mark.parametrize(
        "text", [f'CMD="{START}2"', f"CMD='{START}2'", f'TP=2\nCMD="{START}$TP"', f"TP=2\nCMD='{START}$TP'"]
    )
    def test_the_command_that_it_starts(self, script, how, text):
        job = read_config(script(f"{text}\n{how}\n"))
        assert str(job.layout) == "pp=1 dp=4 cp=1 tp=2"

    def test_quotes_inside_count_when_it_is_evaluated(self):
        given = read_script("CMD='python x.py --name \"a b\" --tp 2'\neval $CMD", "x", {})
        assert given.values_ == {"name": "a b", "tp": 2}

    def test_what_is_not_known_stays_so(self, script):
        path = script(f'CMD="{START}$TP --seq-length $(cat x)"\neval "$CMD"')
        with pytest.raises(SourceError, match="tensor_model_parallel_size waits for TP") as error:
            read_config(path)
        assert "--set TP" in str(error.value)
        assert read_config(path, sets={"TP": "4"}).layout.size("tp") == 4

    def test_a_default_stays_one(self, script):
        job = read_config(script(f'CMD="{START}${{TP:-2}}"\neval $CMD'))
        assert "default of ${TP}" in next(fact.origin for fact in job.facts if fact.name == "tp")

    def test_it_says_the_line(self, script):
        job = read_config(script(f'CMD="{START}2"\n\neval $CMD'))
        assert next(fact.origin for fact in job.facts if fact.name == "tp") == "given, line 4"

    def test_one_inside_another_and_no_end(self):
        assert read_script("A='eval $B'\nB='python x.py --tp 2'\neval $A", "x", {}).values_ == {"tp": 2}
        assert dict(read_script("A='eval $A'\neval $A", "x", {})) == {}
        assert dict(read_script("A='eval $A $A $A $A'\n" + "eval $A\n" * 1000, "x", {})) == {}

    def test_blocks_that_it_opens_end_with_it(self, script):
        assert read_config(script("eval 'if x; then A=1'\nTP=4" + LAUNCH)).layout.size("tp") == 4

    def test_nothing_in_a_script_can_pose_as_known(self):
        given = read_script("CMD='python x.py --tp \0X\0 --pp 2'\neval $CMD", "x", {})
        assert given.values_ == {"tp": "X", "pp": 2}


def filled(line, head="", tail="\npython t.py --tp 2 $A\n"):
    return head + line * (((1 << 18) - len(head) - len(tail)) // len(line)) + tail


HOSTILE = {
    "grows": filled('A="$A --x 1"\n'),
    "grows by adding": filled('A+=" --x 1"\n'),
    "an array grows": filled("A+=(--x 1)\n"),
    "grows in a branch": filled('if x; then A="$A --x"; fi\n'),
    "two grow by each other": filled('A="$A$B"\nB="$A"\n', "A=x\nB=y\n"),
    "used again and again": filled("echo $A\n", 'A="' + "--x 1 " * 1000 + '"\n'),
    "doubled": filled('A="$A$A"\n', "A=xx\n"),
    "one long text": filled("abc\n", 'A="', '"\npython t.py --tp 2\n'),
    "escapes": filled("\\a", "A=", "\npython t.py --tp 2\n"),
    "directives": filled("#SBATCH --nodes=4\n"),
    "documents": "".join(f"cat <<E{at}\nx\nE{at}\n" for at in range(12000)),
    "documents without an end": "cat " + "<<E " * 60000 + "\n" + "x\n" * 5000,
    "evaluated": filled('eval "A=3"\n'),
    "subshells": filled("(", "", "\npython t.py --tp 2\n"),
    "commands": filled("python train.py --tp 2\n"),
    "words": filled("$B ", "python t.py --tp 2 ", "\n"),
}


class TestBounds:
    @pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
    def test_a_whole_script_is_read_in_bounded_time(self, text):
        """Some 0.2 s to 1 s; what grew with the square of the script took minutes."""
        began = time.process_time()
        try:
            read_script(text[: 1 << 18], "run.sh", {})
        except SourceError as error:
            assert "give the command that it starts itself" in str(error)  # noqa: PT017
        assert time.process_time() - began < 8

    def test_what_grows_is_whole(self):
        text = 'A="--o-0 0"\n' + "".join(f'A="$A --o-{at} {at}"\n' for at in range(1, 2000))
        given = read_script(text + "python t.py $A", "x", {})
        assert len(given) == 2000
        assert given.at("o_1999") == 1999

    def test_beyond_the_bound_it_is_not_known(self):
        text = 'A="--x 1"\n' + 'A="$A --y 2"\n' * 20000
        given = read_script(f"{text}python t.py --tensor-model-parallel-size $A", "x", {})
        assert given.unresolved == {"tensor_model_parallel_size": ("A, too long a value",)}

    def test_more_words_than_are_read(self):
        given = read_script("python t.py " + "--x 1 " * 4000, "x", {})
        assert any("8002 words, of which the first 5000 are read" in note for note in given.notes)
