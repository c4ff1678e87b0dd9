"""Rules of single frameworks: what each refuses, read from what people launch; held against the framework itself."""

import json

import pytest

from rankatlas.checks import Numbers, check_job, check_numbers
from rankatlas.dialects import read_config
from rankatlas.job import Fact
from test_check_fixes import Megatron

quiet = pytest.mark.filterwarnings("ignore::UserWarning")
BASE = "--micro-batch-size 1 --num-layers 8 --tensor-model-parallel-size 2"
EXPERTS = f"{BASE} --num-experts 8 --expert-model-parallel-size 2"


def megatron(options, world=8):
    return check_job(read_config(f"pretrain_gpt.py {options}", "megatron", world_size=world))


def codes(findings):
    return [finding.code for finding in findings]


def only(findings, code):
    (found,) = [finding for finding in findings if finding.code == code]
    return found


def pasted(options, finding, place=0):
    """The options with a change of the finding pasted behind them."""
    names = options.split(" --")
    held = {name.lstrip("-").partition(" ")[0]: name.partition(" ")[2] or True for name in names}
    for line in finding.fixes[place].lines:
        held = Megatron.pasted(held, line)
    return " ".join(f"--{name}" if value is True else f"--{name} {value}" for name, value in held.items())


class TestMegatronsExperts:
    def test_without_sequence_parallelism(self):
        found = only(megatron(f"{EXPERTS} --disable-bias-linear"), "RA115")
        assert (found.severity, found.message) == ("error", "8 experts with tp=2, and sequence parallelism is off")
        assert [fix.lines for fix in found.fixes] == [("--sequence-parallel",)]
        assert "RA115" not in codes(megatron(pasted(EXPERTS, found)))

    def test_with_it_or_without_tensor_ranks_or_experts(self):
        for options in (f"{EXPERTS} --sequence-parallel", EXPERTS.replace("size 2 --num", "size 1 --num"), BASE):
            assert "RA115" not in codes(megatron(options))

    def test_a_log_says_it_and_a_file_may_leave_it_out(self, tmp_path):
        log = tmp_path / "slurm.out"
        lines = {
            "tensor_model_parallel_size": 2,
            "num_experts": 8,
            "micro_batch_size": 1,
            "num_layers": 8,
            "world_size": 8,
        }
        for on in (False, True):
            told = [f"  {name} ..... {value}" for name, value in {**lines, "sequence_parallel": on}.items()]
            log.write_text("\n".join(["---- arguments ----", *told, "---- end of arguments ----"]))
            assert ("RA115" in codes(check_job(read_config(str(log))))) == (not on)
        path = tmp_path / "bridge.yaml"
        path.write_text(
            "model: {tensor_model_parallel_size: 2, num_moe_experts: 8, num_layers: 8, micro_batch_size: 1}"
        )
        assert "RA115" not in codes(check_job(read_config(str(path), "megatron", world_size=8)))

    def test_a_bias_beside_a_tensor_size(self):
        found = only(megatron(f"{EXPERTS} --sequence-parallel"), "RA116")
        assert (found.severity, found.numbers["etp"]) == ("error", 2)
        assert [fix.lines for fix in found.fixes] == [("--disable-bias-linear",), ("--expert-tensor-parallel-size 1",)]
        for place in range(2):
            assert "RA116" not in codes(megatron(pasted(f"{EXPERTS} --sequence-parallel", found, place)))

    @quiet
    @pytest.mark.parametrize("etp", [1, 2])
    @pytest.mark.parametrize("bias", [True, False])
    def test_megatron_says_the_same(self, etp, bias):
        config = pytest.importorskip("megatron.core.transformer.transformer_config").TransformerConfig
        try:
            config(
                num_layers=8, hidden_size=64, num_attention_heads=8, num_moe_experts=8, add_bias_linear=bias,
                tensor_model_parallel_size=2, expert_tensor_parallel_size=etp, sequence_parallel=True,
            )  # fmt: skip
            refused = False
        except AssertionError:
            refused = True
        options = f"{EXPERTS} --sequence-parallel --expert-tensor-parallel-size {etp}"
        assert ("RA116" in codes(megatron(options + ("" if bias else " --disable-bias-linear")))) == refused


class TestMegatronsStages:
    def test_virtual_stages_without_a_pipeline(self):
        found = only(megatron(f"{BASE} --num-virtual-stages-per-pipeline-rank 2"), "RA135")
        assert (found.severity, found.numbers["virtual"]) == ("error", 2)
        assert found.fixes[0].lines == ("--num-virtual-stages-per-pipeline-rank 1",)
        assert "RA106" not in codes(megatron(f"{BASE} --num-virtual-stages-per-pipeline-rank 2"))
        others = [Fact("virtual_stages", 2, "given"), Fact("layers", 8, "given")]
        assert codes(check_numbers(Numbers(others, format="paddlenlp-2.8"))) == ["RA106"]

    @quiet
    @pytest.mark.parametrize("layers", [3, 8])
    def test_an_end_without_a_pipeline(self, layers):
        findings = megatron(f"{BASE} --decoder-first-pipeline-num-layers {layers}")
        config = pytest.importorskip("megatron.core.transformer.transformer_config").TransformerConfig
        try:
            config(
                num_layers=8, hidden_size=64, num_attention_heads=8, num_layers_in_first_pipeline_stage=layers,
                tensor_model_parallel_size=2,
            )  # fmt: skip
            refused = False
        except ValueError:
            refused = True
        assert ("RA131" in codes(findings)) == refused == (layers != 8)


class TestHeads:
    @pytest.mark.parametrize(("hidden", "heads", "channels", "found"), [
        (1000, 12, None, True), (1008, 12, None, False), (1000, 12, 64, False),
    ])  # fmt: skip
    def test_hidden_features_of_a_head(self, hidden, heads, channels, found):
        options = f"{BASE} --hidden-size {hidden} --num-attention-heads {heads}"
        options += f" --kv-channels {channels}" if channels else ""
        findings = megatron(options)
        assert ("RA126" in codes(findings)) == found
        if found:
            assert only(findings, "RA126").numbers["legal"] == [10, 20]

    def test_a_model_may_say_how_many_a_head_has(self, run, tmp_path):
        path = tmp_path / "config.json"
        model = {"hidden_size": 1000, "num_attention_heads": 12, "num_hidden_layers": 4}
        for more, found in (({}, ["RA126"]), ({"head_dim": 128}, [])):
            path.write_text(json.dumps({**model, **more}))
            told = run("check", "dp=2 tp=2", "--model", str(path), "--json").json
            assert [finding["code"] for finding in told["findings"]] == found


class TestSequence:
    @pytest.mark.parametrize(("length", "found"), [(4096, False), (4098, False), (4097, True)])
    def test_of_megatron(self, length, found):
        findings = megatron(f"{BASE} --seq-length {length} --sequence-parallel")
        assert ("RA145" in codes(findings)) == found
        assert "RA145" not in codes(megatron(f"{BASE} --seq-length {length}"))

    def test_of_megatron_with_context_ranks(self):
        options = f"{BASE.replace('size 2', 'size 4')} --context-parallel-size 2 --sequence-parallel"
        assert only(megatron(f"{options} --seq-length 4100"), "RA145").numbers["legal"] == [4096, 4104]
        assert "RA145" not in codes(megatron(f"{options} --seq-length 4104"))

    @pytest.mark.parametrize("on", [None, True, False])
    @pytest.mark.parametrize("context", [1, 2])
    @pytest.mark.parametrize("length", [4096, 4098, 4100, 4104, 4112])
    def test_of_torchtitan(self, tmp_path, on, context, length):
        """The divisor of torchtitan/trainer.py (0.3): tp with sequence parallelism, and 2·cp with context ranks."""
        path = tmp_path / "config.json"
        parallel = {"tensor_parallel_degree": 4, "context_parallel_degree": context}
        parallel |= {} if on is None else {"enable_sequence_parallel": on}
        path.write_text(json.dumps({"parallelism": parallel, "training": {"seq_len": length}}))
        found = codes(check_job(read_config(str(path), "torchtitan", world_size=8)))
        divisor = (1 if on is False else 4) * (2 * context if context > 1 else 1)
        assert bool({"RA140", "RA145"} & set(found)) == (length % divisor != 0)

    def test_of_paddle(self, tmp_path):
        path = tmp_path / "args.json"
        for length, on, expected in ((4097, True, ["RA145"]), (4098, True, []), (4097, False, [])):
            path.write_text(
                json.dumps({"tensor_parallel_degree": 2, "max_seq_length": length, "sequence_parallel": on})
            )
            assert codes(check_job(read_config(str(path), world_size=4))) == expected


class TestTogether:
    @pytest.mark.parametrize(
        "more", ["--pipeline-model-parallel-size 2", "--expert-model-parallel-size 2 --num-experts 8"]
    )
    def test_fsdp2_of_megatron(self, more):
        found = only(megatron(f"{BASE} {more} --use-torch-fsdp2 --disable-bias-linear --sequence-parallel"), "RA200")
        assert "use_torch_fsdp2 and" in found.message
        assert "RA200" not in codes(megatron(f"{BASE} --use-torch-fsdp2"))

    @pytest.mark.parametrize("stage", [0, 1, 2, 3])
    def test_zero_beside_a_pipeline_of_deepspeed(self, tmp_path, stage):
        path = tmp_path / "ds.json"
        content = {"zero_optimization": {"stage": stage}, "train_micro_batch_size_per_gpu": 1}
        path.write_text(json.dumps({**content, "pipeline_parallel_size": 2}))
        findings = check_job(read_config(str(path), "deepspeed", world_size=8))
        assert ("RA200" in codes(findings)) == (stage >= 2)
        if stage >= 2:
            assert only(findings, "RA200").fixes[0].lines == ('"stage": 1  # in zero_optimization',)

    @pytest.mark.parametrize(
        ("sizes", "refused"),
        [
            ({"cp": 2, "sp": 2}, True),
            ({"tp": 2, "dp_replicate": 2}, True),
            ({"cp": 2, "dp_replicate": 2}, True),
            ({"tp": 2, "dp_replicate": 2, "dp_shard": 2}, False),
            ({"dp_replicate": 4}, False),
            ({"tp": 2, "dp_shard": 2}, False),
        ],
        ids=str,
    )
    def test_sizes_of_accelerate(self, tmp_path, sizes, refused):
        """What `ParallelismConfig` of accelerate 1.15 raises ValueError for."""
        path = tmp_path / "config.yaml"
        path.write_text("\n".join(f"parallelism_config_{axis}_size: {size}" for axis, size in sizes.items()))
        assert ("RA200" in codes(check_job(read_config(str(path), "accelerate")))) == refused

    @pytest.mark.parametrize(("count", "found"), [(2, False), (3, True)])
    def test_parts_of_the_optimizer(self, count, found):
        findings = megatron(f"{BASE} --use-distributed-optimizer --num-distributed-optimizer-instances {count}")
        assert ("RA201" in codes(findings)) == found
        if found:
            assert only(findings, "RA201").numbers["legal"] == [1, 2, 4]

    @pytest.mark.parametrize(("levels", "found"), [("2 2", False), ("2 4", True)])
    def test_levels_of_context_groups(self, levels, found):
        options = f"{BASE} --context-parallel-size 4 --hierarchical-context-parallel-sizes {levels}"
        assert ("RA147" in codes(megatron(options))) == found
