"""Launch scripts as a shell would run them: what is set for sure, what only perhaps, and which words are whose."""

from __future__ import annotations

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


class TestLaunchers:
    @pytest.mark.parametrize(
        ("words", "world"),
        [
            ("srun --ntasks-per-node=8 --nodes=2 python pretrain_gpt.py", 16),
            ("srun -N 2 -n 16 python pretrain_gpt.py", 16),
            ("srun -N2 -n16 python pretrain_gpt.py", 16),
            ("srun --ntasks=16 python pretrain_gpt.py", 16),
            ("torchrun --nproc_per_node 8 --nnodes 2 $SCRIPT", 16),
            ("torchrun --nproc_per_node 8 --nnodes=2:2 pretrain_gpt.py", 16),
        ],
    )
    def test_how_many_ranks(self, words, world):
        assert read_config(f"{words} --num-layers 8 --tensor-model-parallel-size 2").layout.world_size == world

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

    def test_a_command_in_quotes(self):
        with pytest.raises(SourceError, match="in quotes, which is not looked into"):
            read_config('srun -N 2 bash -c "torchrun --nproc_per_node 8 x.py --tensor-model-parallel-size 2"')

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
            "TP=2\neval TP=4",
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
        ],
    )
    def test_it_is_known(self, script, text, size):
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
