"""Reading configuration text: what is understood, what is refused, and that no bytes bring a traceback."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankatlas import Atlas, Mesh
from rankatlas.dialects import read_config
from rankatlas.errors import DescriptionError, RankatlasError, SourceError


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
    assert job.notes == ("tensor_parallel_degre_degree=4 is not understood and was left out",)


def test_seeds_and_groups_of_auto_parallel_follow_other_orders(file):
    args = {"enable_auto_parallel": True, "sep_parallel_degree": 2, "tensor_parallel_degree": 2}
    job = read_config(file(args), world_size=8)
    assert str(job.layout) == "pp=1 dp=2 sharding=1 mp=2 sep=2"
    assert "seeds and groups follow other coordinates" in job.notes[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "NoneType"),
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
        read_config("dp=2", "deepspeed")


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
