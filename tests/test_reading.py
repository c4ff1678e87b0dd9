"""Reading configuration text: what is understood, what is refused, and that no bytes bring a traceback."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from golden import facts
from rankatlas import Atlas, Mesh, Topology
from rankatlas.dialects import read_config
from rankatlas.errors import DescriptionError, NotationError, RankatlasError, SourceError
from rankatlas.topology.argument_names import OTHER_ARGUMENTS, near_misses
from rankatlas.topology.training_args import RELEASES, layout_keys


@pytest.fixture
def file(tmp_path):
    def write(content: object, name: str = "config.json") -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return str(path)

    return write


def test_a_file_whose_name_has_an_equals_sign_is_a_file(file):
    job = read_config(file({"mp_degree": 4}, name="lr=0.1.json"), world_size=8)
    assert job.layout == Mesh(dp=2, pp=1, sharding=1, sep=1, mp=4)


@pytest.mark.parametrize("text", ["dp=2 tp=4", "dp=2 tp=4\n", "\n dp=2 tp=4 \n"])
def test_a_file_with_notation(file, text):
    assert read_config(file(text.encode(), name="layout.txt")).layout == Mesh(dp=2, tp=4)


def test_a_file_with_an_atlas_in_notation(file):
    atlas = Atlas(dense=Mesh(dp=8), expert=Mesh(ep=8))
    assert read_config(file(str(atlas).encode(), name="layout.txt")).layout == atlas


def test_stored_layouts(file):
    for layout in (Mesh(dp=2, tp=4, first_rank=3), Atlas(dense=Mesh(dp=8), expert=Mesh(ep=8))):
        job = read_config(file(layout.to_dict()))
        assert (job.layout, job.format) == (layout, "rankatlas")


def test_yaml(file):
    text = b"# a comment\ntensor_parallel_degree: 2\npipeline_parallel_degree: 2\nsharding: stage1\n"
    job = read_config(file(text, name="config.yaml"), world_size=16)
    assert str(job.layout) == "dp=1 pp=2 sharding=4 sep=1 mp=2"


def test_formers_by_its_own_names(file):
    job = read_config(file({"tensor_model_parallel_size": 2, "sharding_parallel_size": 2}), world_size=8)
    assert job.format == "paddleformers-1.2"
    assert str(job.layout) == "dp=2 sharding=2 pp=1 sep=1 mp=2"


def test_names_shared_with_megatron_are_asked_about(file):
    path = file({"tensor_model_parallel_size": 2})
    with pytest.raises(SourceError, match="Megatron"):
        read_config(path, world_size=8)
    assert read_config(path, "paddleformers-1.2", world_size=8).layout.size("sharding") == 4


def test_what_looks_like_a_degree_is_never_dropped_in_silence(file):
    job = read_config(file({"mp_degree": 2, "tensor_parallel_degre_degree": 4, "virtual_pp_degree": 2}), world_size=2)
    assert job.notes == (
        "tensor_parallel_degre_degree=4 is not understood and was left out; did you mean tensor_parallel_degree?",
    )


def test_seeds_and_groups_of_auto_parallel_follow_other_orders(file):
    args = {"enable_auto_parallel": True, "sep_parallel_degree": 2, "tensor_parallel_degree": 2}
    job = read_config(file(args), world_size=8)
    assert str(job.layout) == "pp=1 dp=2 sharding=1 sep=2 mp=2"
    assert "seeds and groups follow other coordinates" in job.notes[0]
    assert "'pp=1 dp=2 sharding=1 mp=2 sep=2'" in job.notes[0]
    assert read_config(file({**args, "sep_parallel_degree": 1}), world_size=8).notes == ()


@pytest.mark.parametrize("choice", ["pp_first", "sharding_first"])
def test_auto_parallel_shows_the_order_of_its_trainer(file, choice):
    (order,) = [
        fact["order"]
        for fact in facts("paddlenlp_args", "order-literal")
        if len(fact["order"]) == 5
        and "self.enable_auto_parallel" in fact["under"]
        and fact["under"][-1] == f"self.hybrid_parallel_topo_order == '{choice}'"
    ]
    job = read_config(
        file({"enable_auto_parallel": "true", "hybrid_parallel_topo_order": choice, "mp_degree": 2}), world_size=8
    )
    assert list(job.layout.axes) == order


def test_origins_with_auto_parallel(file):
    args = {"enable_auto_parallel": True, "sharding": "stage1", "tensor_parallel_degree": 2}
    job = read_config(file(args), world_size=16)
    told = {fact.name: (fact.value, fact.origin) for fact in job.facts}
    assert told["dp"] == (8, "data degree 1 (not set) × sharding degree 8 (inferred from world size 16)")
    assert told["sharding"] == (1, "always 1 with auto-parallel, where it lies inside dp")
    assert told["mp"] == (2, "given: tensor_parallel_degree")
    settled = Topology.from_args(args, 0, 16, auto_parallel=True)
    assert {axis: job.layout.size(axis) for axis in job.layout.axes} == {
        axis: settled.mesh.size(axis) for axis in settled.mesh.axes
    }


SLIPS = {
    "hybrid_parallel_topo_ordre": ("sharding_first", "hybrid_parallel_topo_order"),
    "shardng": ("stage2", "sharding"),
    "sharding_degre": (4, "sharding_degree"),
    "sep_paralel": (2, "sep_parallel_degree"),
    "use_expert_paralel": (True, "use_expert_parallel"),
    "pipeline_paralel_degree": (2, "pipeline_parallel_degree"),
    "tensor_model_parallel_szie": (8, "tensor_model_parallel_size"),
    "Tensor-Parallel-Degree": (2, "tensor_parallel_degree"),
    "tensor_parallel": (2, "tensor_parallel_degree"),
    "ep_degree": (2, "expert_parallel_degree"),
    "tp": (2, "tp_degree"),
    "mp": (3, "mp_degree"),
    "pp": (2, "pp_degree"),
    "dp": (4, "dp_degree"),
}


@pytest.mark.parametrize("key", SLIPS)
def test_a_slip_of_the_pen_is_noted(file, key):
    value, meant = SLIPS[key]
    job = read_config(file({"mp_degree": 2, key: value}), world_size=8)
    assert job.notes == (f"{key}={value!r} is not understood and was left out; did you mean {meant}?",)
    with pytest.warns(UserWarning, match=f"did you mean {meant}"):
        Topology.from_args({"mp_degree": 2, key: value}, 0, 8)


def test_what_is_no_slip_is_not_noted(file):
    quiet = {
        **dict.fromkeys(OTHER_ARGUMENTS, 2), "sequence_parallel": True,
        "dp": "a/path", "shardng": None, "sharding_degre": -1, "pp": 1, "tp": True,
        "mp_degree": 2, "seed": 42, "model": "llama", "data": [1, 2], "x" * 10_000: 2,
    }  # fmt: skip
    assert read_config(file(quiet), world_size=8).notes == ()
    Topology.from_args(quiet, 0, 8)  # a warning would be an error here
    Topology.from_args(SimpleNamespace(mp_degree=2, tp=2, shardng="stage2"), 0, 8)


@pytest.mark.parametrize("release", RELEASES)
def test_no_real_argument_is_a_slip(release):
    real = [*layout_keys(release), *OTHER_ARGUMENTS]
    assert near_misses(real, release) == {}


@pytest.mark.parametrize("word", ["true", "True", "TRUE", True, 1])
@pytest.mark.parametrize("off", ["false", "False", False, 0, None])
def test_booleans_may_be_text(file, word, off):
    def order(given):
        return read_config(file({"mp_degree": 2, "use_expert_parallel": given}), world_size=8).layout.axes

    assert order(word) == ("pp", "sharding", "sep", "dp", "mp")
    assert order(off) == ("dp", "pp", "sharding", "sep", "mp")


@pytest.mark.parametrize(
    ("args", "layout"),
    [
        ({"dp_degree": 2, "mp_degree": 4, "pp_degree": 2, "sharding_degree": 2}, "dp=2 pp=2 sharding=2 sep=1 mp=4"),
        ({"dp_degree": 2, "mp_degree": 4, "sharding": ""}, "dp=2 pp=1 sharding=1 sep=1 mp=4"),
        ({"dp_degree": 2, "mp_degree": 4}, "dp=2 pp=1 sharding=1 sep=1 mp=4"),
        ({"data_parallel_size": 2, "sharding": "", "tensor_model_parallel_size": 4}, "dp=2 sharding=1 pp=1 sep=1 mp=4"),
        ({"dp_degree": 2, "sharding": "stage1", "mp_degree": 4}, None),
        ({"data_parallel_size": 2, "tensor_model_parallel_size": 4}, None),  # sharding is on there
        ({"mp_degree": 4, "pp_degree": 2}, None),
    ],
)
def test_the_world_may_follow_from_the_degrees(file, args, layout):
    if layout is None:
        with pytest.raises(SourceError, match="--world-size"):
            read_config(file(args))
    else:
        assert str(read_config(file(args)).layout) == layout


@pytest.mark.parametrize("sign", [{"sharding": ""}, {"stage": "SFT"}, {"hybrid_parallel_topo_order": "pp_first"}])
def test_what_megatron_has_not_settles_whose_a_shared_name_is(file, sign):
    job = read_config(file({"tensor_model_parallel_size": 2, **sign}), world_size=8)
    assert job.format == "paddleformers-1.2"


def test_the_other_release_is_named_as_the_option_too(file):
    path = file({"mp_degree": 2, "tensor_model_parallel_size": 2})
    with pytest.raises(RankatlasError, match=r"--from paddleformers-1\.2"):
        read_config(path, "paddlenlp-2.8", world_size=8)


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        (b"dp=2\ntp=4\n", "dp=2 tp=4"),
        (b"# what it is\n\ndp=2   # outer\ntp=4 # inner\n", "dp=2 tp=4"),
        (b"dense: pp=2 dp=4\nexpert: pp=2 ep=4\nshared: pp\n", "dense: pp=2 dp=4; expert: pp=2 ep=4; shared: pp"),
        (b"dense: pp=2 dp=4;\nexpert: pp=2\n  ep=4;\n", "dense: pp=2 dp=4; expert: pp=2 ep=4"),
        (b"dp=? tp=4", "dp=2 tp=4"),
    ],
)
def test_notation_on_several_lines(file, text, layout):
    path = file(text.rstrip(b";\n") + b"\n", name="layout.txt")
    assert str(read_config(path, world_size=8).layout) == layout
    assert str(read_config(path, "notation", world_size=8).layout) == layout


def test_yaml_with_an_equals_sign_in_a_comment_is_yaml(file):
    job = read_config(file(b"mp_degree: 2 # a=b\n", name="one.yaml"), world_size=4)
    assert job.layout.size("mp") == 2


def test_notation_is_read_as_nothing_else(file):
    path = file(b"dp=8\n", name="note.txt")
    for source in ("dp=8", path):
        with pytest.raises(SourceError, match=r"leave --from paddlenlp-2\.8 out"):
            read_config(source, "paddlenlp-2.8", world_size=8)


def test_a_bad_size_in_a_file_of_notation_has_its_caret(file):
    with pytest.raises(NotationError) as caught:
        read_config(file(b"dp=2\ntp=x\n", name="layout.txt"))
    assert str(caught.value).splitlines()[:2] == ["dp=2 tp=x", "        ^"]


def test_a_missing_file_is_told_as_one():
    for source in ("missing.json", "runs/lr=0.1.json", "lr=0.1.yaml"):
        with pytest.raises(SourceError, match=f"^no such file: '{source}'"):
            read_config(source)


def test_a_pipe_is_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("dp=2 tp=4\n",))
    writer.start()
    assert read_config(str(pipe)).layout == Mesh(dp=2, tp=4)
    writer.join()


def test_devices_and_directories(tmp_path):
    for source, words in (("/dev/zero", "16 MiB"), ("/dev/null", "is empty"), (str(tmp_path), "is a directory")):
        with pytest.raises(SourceError, match=words):
            read_config(source)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"null", "is empty"),
        (b"# only a comment\n", "is empty"),
        (b"one line of something else", "text that is no notation"),
        (b'{"learning_rate": 8, "scheduler": {"stage": 2}}', "'learning_rate', 'scheduler'"),
        (b'{"learning_rate": 8, "scheduler": {"stage": 2}}', "PaddleFormers 1.2"),
        (b'{"parallel": {"mp_degree": 2}}', "there are degrees below 'parallel'"),
        (b'{"shardng_degree": 2}', "did you mean sharding_degree?"),
        (b'{"mp_degree": 2, "enable_auto_parallel": "yes"}', "enable_auto_parallel is true or false, not 'yes'"),
        (b'{"mp_degree": 2, "use_expert_parallel": 2}', "use_expert_parallel is true or false, not 2"),
        (b"{", "not valid JSON"),
        (b"[1, 2]", "list"),
        (b'{"mp_degree": 2, "mp_degree": 4}', "twice"),
        (b"mp_degree: 2\nmp_degree: 4\n", "twice"),
        (b"a: &x [1]\nb: *x\n", "aliases"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"[" * 100_000, "nested"),
        (b"- " * 20_000, ""),
        (b"{}", "sets a parallel degree"),
        (b'{"learning_rate": 1}', "sets a parallel degree"),
        (b'{"format": "rankatlas.future", "version": 1}', "rankatlas.future"),
        (b'{"format": "rankatlas.mesh", "version": 2, "axes": [["dp", 2]], "first_rank": 0}', "version"),
        (b'{"mp_degree": 2.0}', "integer"),
        (b'{"mp_degree": "2"}', "integer"),
        (b'{"mp_degree": true}', "integer"),
        (b'{"mp_degree": 0}', "1 or more"),
        (b'{"mp_degree": 3}', "8"),
        (b'{"mp_degree": 1e999}', "integer"),
        (b"a: !!python/object/apply:os.system ['true']\n", "neither"),
        (b"2024-99-99: 3\n", ""),
    ],
)
def test_garbage_is_refused_in_words(file, content, words):
    with pytest.raises(RankatlasError) as caught:
        read_config(file(content), world_size=8)
    assert words in str(caught.value)


def test_the_world_size_is_asked_for(file):
    with pytest.raises(SourceError, match="--world-size"):
        read_config(file({"mp_degree": 2}))


def test_a_stored_layout_of_another_world(file):
    with pytest.raises(RankatlasError, match="8 ranks, the world size given is 16"):
        read_config(file(Mesh(dp=8).to_dict()), world_size=16)


@pytest.mark.parametrize("source", ["/nonexistent", "/", "/dev/null", "a\0=b", "x" * 5000])
def test_no_such_file(source):
    with pytest.raises(RankatlasError):
        read_config(source)


def test_too_large(file):
    with pytest.raises(SourceError, match="16 MiB"):
        read_config(file(b" " * (17 << 20)))


def test_unknown_format():
    with pytest.raises(SourceError, match="the formats are"):
        read_config("dp=2", "deepsped")


def test_unknown_keys_of_a_stored_layout(file):
    with pytest.raises(DescriptionError, match="colour"):
        read_config(file({**Mesh(dp=2).to_dict(), "colour": "red"}))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"? a\n: b\n")
@example(b"=: 1\n")
@example(b"<<: 3\n")
@example(b"{? [1]: 2}")
def test_no_bytes_bring_anything_but_our_errors(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "config"
    path.write_bytes(content)
    with contextlib.suppress(RankatlasError):
        read_config(str(path), world_size=8)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = [
    "tensor_parallel_degree", "mp_degree", "sharding", "sharding_degree", "hybrid_parallel_topo_order", "format",
    "version", "axes", "first_rank", "charts", "shared", "enable_auto_parallel", "use_expert_parallel",
    "context_parallel_degree", "sharding_parallel_size", "tensor_model_parallel_size",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), json_values | st.sampled_from(["rankatlas.mesh", "stage1", "pp_first"])))
def test_no_settings_bring_anything_but_our_errors(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "config.json"
    path.write_text(json.dumps(content))
    with contextlib.suppress(RankatlasError):
        read_config(str(path), world_size=8)


def test_options_that_stand_in_a_file_as_a_mapping(file):
    options = {"--num-layers": 12, "--tensor-model-parallel-size": 2, "--context-parallel-size": 2, "--bf16": True}
    held = {"ENV_VARS": {"CUDA_DEVICE_MAX_CONNECTIONS": 1}, "MODEL_ARGS": options, "TEST_TYPE": "regular"}
    for content in (held, options):
        job = read_config(file(content), world_size=8)
        assert (str(job.layout), job.format) == ("pp=1 dp=2 cp=2 tp=2", "megatron-0.16")


@pytest.mark.parametrize("name", ["run.sh", "run.slurm"])
def test_a_script_is_known_by_its_name(tmp_path, name):
    path = tmp_path / name
    path.write_text("# variables\nTP=2\nNUM_NODE=1\nCMD=${LAUNCHER:-deepspeed}\n$CMD --num_gpus 8 x.py --tp $TP\n")
    with pytest.raises(SourceError, match=r"no option in .* sets a parallel size"):
        read_config(str(path))
