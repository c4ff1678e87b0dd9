"""SeedPlan and Stream: equal exactly along `same`, distinct along `differ`, and nothing else moves a seed."""

import json
import random
from hashlib import blake2b
from importlib.util import find_spec

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import brute
from rankatlas import Mesh
from rankatlas.errors import (
    DescriptionError,
    DuplicateAxisError,
    IntegerError,
    PartialTensorError,
    RankError,
    SeedError,
    UnknownAxisError,
    UnnamedAxisError,
)
from rankatlas.seeding import SeedPlan, distributed_seeds
from rankatlas.seeding.offsets import megatron_families
from rankatlas.tensors import TensorLayout
from refusals import refused
from strategies import axes_of, large_meshes, meshes, ranks_of, small_meshes

base_seeds = st.integers(0, 2**64 - 1)
stream_names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
LARGE = (2**32, 2**32 + 5, 2**63 - 1, 2**63, 2**64 - 1)


@st.composite
def streams(draw, meshes=small_meshes):
    mesh = draw(meshes)
    differ = draw(axes_of(mesh))
    plan = SeedPlan(draw(base_seeds), mesh)
    return plan.stream(
        draw(stream_names), same=[axis for axis in mesh.axes if axis not in differ], differ=tuple(differ)
    )


def seed_by_hand(base, name, places):
    text = json.dumps(["rankatlas.stream.1", base, name, sorted(map(list, places.items()))], separators=(",", ":"))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def test_the_vector_of_the_contract():
    stream = SeedPlan(1234, Mesh(dp=2, pp=2, tp=2)).stream("dropout", same=("tp",), differ=("dp", "pp"))
    rank = stream.mesh.rank(dp=1, pp=0, tp=1)
    assert f"{stream.seed(rank):016x}" == "6a8913925217b42d"
    text = b'["rankatlas.stream.1",1234,"dropout",[["dp",1],["pp",0]]]'
    assert stream.seed(rank) == int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


@given(streams(), st.data())
def test_a_seed_is_the_hash_of_the_places_it_depends_on(stream, data):
    rank = data.draw(ranks_of(stream.mesh))
    places = {axis: stream.mesh.coordinate(rank)[axis] for axis in stream.differ}
    assert stream.seed(rank) == seed_by_hand(stream.base_seed, stream.name, places)
    assert dict(stream.key(rank)) == places
    assert [axis for axis, _ in stream.key(rank)] == sorted(stream.differ)


@given(streams())
def test_equal_exactly_along_same(stream):
    by_seed = {}
    for rank in stream.mesh.select():
        by_seed.setdefault(stream.seed(rank), []).append(rank)
    assert list(by_seed.values()) == brute.groups(stream.mesh, stream.same)
    assert all(stream.group(ranks[-1]).ranks == ranks for ranks in by_seed.values())


@given(streams(large_meshes), st.data())
def test_equal_exactly_along_same_in_worlds_that_nobody_walks(stream, data):
    one, other = (data.draw(ranks_of(stream.mesh)) for _ in range(2))
    places = [stream.mesh.coordinate(rank) for rank in (one, other)]
    agree = all(places[0][axis] == places[1][axis] for axis in stream.differ)
    assert (stream.seed(one) == stream.seed(other)) is agree


@given(streams(meshes), st.data())
def test_the_order_of_axes_and_the_first_rank_do_not_matter(stream, data):
    rank = data.draw(ranks_of(stream.mesh))
    order = data.draw(st.permutations(stream.mesh.axes))
    sizes = [(axis, stream.mesh.size(axis)) for axis in order]
    other = SeedPlan(stream.base_seed, Mesh.from_axes(sizes, data.draw(st.integers(0, 10**6)))).stream(
        stream.name, same=stream.same, differ=data.draw(st.permutations(stream.differ))
    )
    assert stream.seed(rank) == other.seed(other.mesh.rank(**stream.mesh.coordinate(rank)))


@given(streams(), st.data())
def test_growing_any_axis_changes_no_seed_that_existed(stream, data):
    mesh = stream.mesh
    more = {axis: data.draw(st.integers(0, 3)) for axis in mesh.axes}
    grown = SeedPlan(
        stream.base_seed, Mesh.from_axes([(axis, mesh.size(axis) + more[axis]) for axis in mesh.axes])
    ).stream(stream.name, same=stream.same, differ=stream.differ)
    for rank in mesh.select():
        assert grown.seed(grown.mesh.rank(**mesh.coordinate(rank))) == stream.seed(rank)


@given(streams(), stream_names, base_seeds, st.data())
def test_other_names_and_other_bases_give_other_seeds(stream, name, base, data):
    rank = data.draw(ranks_of(stream.mesh))
    other = SeedPlan(base, stream.mesh).stream(name, same=stream.same, differ=stream.differ)
    same = (base, name) == (stream.base_seed, stream.name)
    assert (other.seed(rank) == stream.seed(rank)) is same
    assert (other == stream) is same


def test_an_axis_of_size_1_counts_where_it_is_named():
    """So that a seed stays what it is when the axis grows."""
    plan = SeedPlan(1, Mesh(dp=2, tp=1))
    named = plan.stream("x", differ=("dp", "tp"))
    left_out = plan.stream("x", differ="dp")
    assert left_out.same == ("tp",)
    assert named.seed(1) == seed_by_hand(1, "x", {"dp": 1, "tp": 0}) != left_out.seed(1)
    assert named.seed(1) == SeedPlan(1, Mesh(dp=2, tp=4)).stream("x", differ=("dp", "tp")).seed(4)


def test_streams_are_values():
    plan = SeedPlan(1, Mesh(dp=2, pp=2))
    one, other = plan.stream("x", differ=("dp", "pp")), plan.stream("x", differ=("pp", "dp"))
    assert one == other
    assert hash(one) == hash(other)
    assert one != plan.stream("x", same=("dp", "pp"))
    assert (one == "x") is False
    assert repr(plan.stream("x", same="dp", differ="pp")) == "Stream('x', same=('dp',), differ=('pp',))"


def test_a_lone_axis_may_be_given_as_text():
    plan = SeedPlan(1, Mesh(dp=2, pp=2))
    assert plan.stream("x", "dp", "pp") == plan.stream("x", ["dp"], iter(["pp"]))


def test_what_a_stream_refuses():
    plan = SeedPlan(1, Mesh(pp=2, dp=3, tp=2, cp=1))
    with refused(UnnamedAxisError, "pp=2", "tp=2", "same", "differ", name="pp", forgotten=("pp", "tp")):
        plan.stream("x", differ="dp")
    with refused(DuplicateAxisError, "'dp'", "same", "differ", name="dp"):
        plan.stream("x", same=("dp", "pp"), differ=("tp", "dp"))
    with refused(DuplicateAxisError, name="dp"):
        plan.stream("x", same=("dp", "dp"), differ=("tp", "pp"))
    with refused(UnknownAxisError, "'dpp'", "Did you mean", name="dpp"):
        plan.stream("x", same=("dpp", "pp"), differ=("tp", "dp"))
    for name in ("", 7, None, b"x"):
        with refused(SeedError, "named by text"):
            plan.stream(name, same=("pp", "dp", "tp"))
    stream = plan.stream("x", same=("pp", "dp", "tp"))
    for question in (stream.seed, stream.key, stream.group, stream.numpy, stream.torch, stream.paddle):
        with refused(RankError, "rank 12", rank=12):
            question(12)


def test_what_a_plan_refuses():
    for bad in (-1, 2**64):
        with refused(SeedError, "base_seed", seed=bad):
            SeedPlan(bad, Mesh(dp=2))
    for bad in (1.0, False, "7"):
        with refused(IntegerError, "base_seed"):
            SeedPlan(bad, Mesh(dp=2))
    assert SeedPlan(numpy.uint64(2**64 - 1), Mesh(dp=2)) == SeedPlan(2**64 - 1, Mesh(dp=2))


@given(small_meshes, base_seeds, st.data())
def test_the_stream_of_a_tensor_is_equal_on_replicas_and_different_on_shards(mesh, base, data):
    sharded = data.draw(axes_of(mesh))
    layout = TensorLayout(mesh, [axis for axis in mesh.axes if axis not in sharded], sharded)
    stream = SeedPlan(base, mesh).stream_for("weight", layout)
    seeds = {}
    for rank in mesh.select():
        seeds.setdefault(layout.shard_index(rank), set()).add(stream.seed(rank))
    assert all(len(found) == 1 for found in seeds.values())
    assert len(set.union(*seeds.values())) == layout.shard_count


def test_the_stream_of_a_tensor_does_not_depend_on_the_order_of_its_shards():
    mesh = Mesh(pp=2, tp=2)
    orders = (("pp", "tp"), ("tp", "pp"))
    one, other = (SeedPlan(1, mesh).stream_for("w", TensorLayout(mesh, sharded=order)) for order in orders)
    assert one == other
    assert [one.seed(rank) for rank in range(4)] == [other.seed(rank) for rank in range(4)]


def test_what_the_stream_of_a_tensor_refuses():
    mesh = Mesh(dp=2, tp=2)
    with refused(SeedError, "dp=2 tp=2", "dp=4", name="w"):
        SeedPlan(1, Mesh(dp=4)).stream_for("w", TensorLayout(mesh, "dp", "tp"))
    with refused(PartialTensorError, "tp", axes=("tp",)):
        SeedPlan(1, mesh).stream_for("w", TensorLayout(mesh, "dp", partial="tp"))


# Presets


def megatron_seeds(places, seed):
    """What Megatron-core 0.16 adds: `_set_random_seed` (100 per stage) and `model_parallel_cuda_manual_seed`."""
    seed += 100 * places.get("pp", 0)
    return {
        "data-parallel-rng": seed,
        "model-parallel-rng": seed + 2718 + places.get("tp", 0),
        "expert-parallel-rng": seed + 1024 + 100 * places.get("ep", 0) + places.get("etp", 0),
    }


def sharing(seed_of, ranks):
    """The sets of ranks that have one seed."""
    found = {}
    for rank in ranks:
        found.setdefault(seed_of(rank), []).append(rank)
    return sorted(found.values())


@pytest.mark.parametrize(
    "mesh",
    [Mesh(pp=2, dp=2, tp=4), Mesh(pp=3, dp=2, cp=2, tp=2), Mesh(tp=8), Mesh(dp=2, pp=1, tp=2), Mesh(pp=4, dp=2)],
    ids=str,
)
def test_megatron_relates_the_ranks_as_its_offsets_do(mesh):
    preset = SeedPlan(1234, mesh).megatron()
    assert "expert-parallel-rng" not in preset
    for name in ("data-parallel-rng", "model-parallel-rng"):
        offsets = sharing(lambda rank, name=name: megatron_seeds(mesh.coordinate(rank), 1234)[name], mesh.select())
        assert sharing(preset[name].seed, mesh.select()) == offsets, name


@pytest.mark.parametrize("mesh", [Mesh(pp=1, edp=2, ep=4), Mesh(edp=2, ep=4, etp=2), Mesh(ep=2, etp=1)], ids=str)
def test_megatron_relates_the_experts_as_its_offsets_do(mesh):
    """On one stage: across stages the offsets meet, which is what a plan is for."""
    name = "expert-parallel-rng"
    offsets = sharing(lambda rank: megatron_seeds(mesh.coordinate(rank), 1234)[name], mesh.select())
    assert sharing(SeedPlan(1234, mesh).megatron()[name].seed, mesh.select()) == offsets


@pytest.mark.parametrize("mesh", [Mesh(pp=2, dp=2, tp=4), Mesh(pp=3, edp=2, ep=4, etp=2), Mesh(ep=4)], ids=str)
def test_the_offsets_of_megatron(mesh):
    families = {one.name: one for one in megatron_families(SeedPlan(7, mesh).megatron(), mesh)}
    assert families
    for rank in mesh.select():
        places = mesh.coordinate(rank)
        told = {name: family.seed({"base": 7, **places}) for name, family in families.items()}
        expected = megatron_seeds(places, 7)
        assert told == {name: expected[name] for name in families}


def test_megatron_keeps_apart_what_the_offsets_let_meet():
    mesh = Mesh(pp=4, edp=2, ep=8)
    name = "expert-parallel-rng"
    offsets = sharing(lambda rank: megatron_seeds(mesh.coordinate(rank), 1234)[name], mesh.select())
    plan = sharing(SeedPlan(1234, mesh).megatron()[name].seed, mesh.select())
    assert (len(offsets), len(plan)) == (11, 32)
    assert plan == sorted(map(list, mesh.groups("edp")))


def test_megatron_has_a_context_stream_where_there_is_a_context_axis():
    """Issue 3 lists default, model-parallel, context and expert streams."""
    preset = SeedPlan(1234, Mesh(pp=2, cp=2, tp=2)).megatron()
    context = [stream for name, stream in preset.items() if "context" in name]
    assert len(context) == 1
    assert "cp" in context[0].differ
    assert not any("context" in name for name in SeedPlan(1234, Mesh(pp=2, tp=2)).megatron())


@pytest.mark.parametrize(
    "mesh",
    [
        *(Mesh(pp=2, dp=2, sharding=2, mp=2), Mesh(sep=2, dp=3, mp=2), Mesh(dp=2, tp=4), Mesh(mp=8), Mesh(pp=4)),
        *(Mesh(pp=2, cp=2, mp=2), Mesh(dp=2, cp=3, tp=2)),
    ],
    ids=str,
)
def test_paddle_relates_the_ranks_as_the_reference_does(mesh):
    for name, stream in SeedPlan(1234, mesh).paddle().items():
        reference = sharing(lambda r, name=name: getattr(distributed_seeds(1234, mesh, rank=r), name), mesh.select())
        assert sharing(stream.seed, mesh.select()) == reference, name


# Generators


@pytest.fixture(params=[name for name in ("numpy", "torch", "paddle", "jax") if find_spec(name)])
def framework(request):
    return request.param, pytest.importorskip(request.param)


def draw(framework, generator):
    """Numbers that a generator of this framework gives next."""
    name, module = framework
    if name == "numpy":
        return generator.random(4).tolist()
    if name == "torch":
        return module.rand(4, generator=generator).tolist()
    if name == "jax":
        return module.random.uniform(generator, 4).tolist()
    # Paddle's functions draw from the default generator only, so its state is lent to that one.
    kept = module.get_rng_state()
    try:
        module.set_rng_state([generator.get_state()])
        return module.rand([4]).tolist()
    finally:
        module.set_rng_state(kept)


def test_a_generator_is_deterministic_and_follows_the_stream(framework):
    name, _ = framework
    stream = SeedPlan(1234, Mesh(dp=3, tp=2)).stream("x", same="tp", differ="dp")
    drawn = [draw(framework, getattr(stream, name)(rank)) for rank in range(6)]
    assert [drawn[rank] == drawn[0] for rank in range(6)] == [True, True, False, False, False, False]
    assert drawn[2] == drawn[3] != drawn[4] == drawn[5]
    assert drawn == [draw(framework, getattr(stream, name)(rank)) for rank in range(6)]


@pytest.mark.parametrize("seed", LARGE)
def test_a_generator_takes_64_bits(framework, seed):
    from rankatlas.seeding.backends import generator

    assert draw(framework, generator(framework[0], seed)) == draw(framework, generator(framework[0], seed))


UPPER = (5, 5 + 2**32, 5 + 2**63, 5 + 3 * 2**32)  # the same low half


def test_the_upper_half_of_a_seed_counts(framework):
    """Paddle's CPU generator alone starts from the lower half, whatever is done."""
    from rankatlas.seeding.backends import generator

    drawn = {tuple(draw(framework, generator(framework[0], seed))) for seed in UPPER}
    assert len(drawn) == (1 if framework[0] == "paddle" else 4)


@pytest.mark.parametrize("name", ["python", "numpy", "torch", "paddle"])
def test_the_upper_half_of_a_seed_counts_in_the_global_state(name):
    pytest.importorskip(name if name != "python" else "random")
    from rankatlas.seeding.backends import seed_globally

    drawn = set()
    with kept_state():
        for seed in UPPER:
            seed_globally(seed, [name])
            drawn.add(tuple(GLOBAL_DRAWS[name]()))
    assert len(drawn) == (1 if name == "paddle" else 4)


@pytest.mark.parametrize("seed", LARGE)
def test_torch_starts_from_a_large_seed_as_python_does(seed):
    """Its twister is the same, but takes one word by itself; float32 are the low 24 bits of a word."""
    torch = pytest.importorskip("torch")
    from rankatlas.seeding.backends import generator, seed_globally

    words = random.Random(seed)
    expected = [(words.getrandbits(32) & (2**24 - 1)) / 2**24 for _ in range(700)]
    assert torch.rand(700, generator=generator("torch", seed)).tolist() == expected
    assert generator("torch", seed).initial_seed() % 2**64 == seed
    seed_globally(seed, ["torch"])
    assert torch.rand(700).tolist() == expected
    assert torch.initial_seed() % 2**64 == seed


GLOBAL_DRAWS = {
    "python": lambda: [random.random() for _ in range(4)],
    "numpy": lambda: numpy.random.random(4).tolist(),
    "torch": lambda: __import__("torch").rand(4).tolist(),
    "paddle": lambda: __import__("paddle").rand([4]).tolist(),
}


class kept_state:
    """The global states of Python and numpy as they were, because other tests draw from them too."""

    def __enter__(self):
        self.kept = random.getstate(), numpy.random.get_state()

    def __exit__(self, *_):
        random.setstate(self.kept[0])
        numpy.random.set_state(self.kept[1])


def test_small_seeds_seed_the_frameworks_as_their_own_functions_do():
    torch = pytest.importorskip("torch")
    from rankatlas.seeding.backends import generator, seed_globally

    with kept_state():
        for seed in (0, 1, 42, 2**31, 2**32 - 1):
            assert numpy.array_equal(generator("numpy", seed).random(3), numpy.random.default_rng(seed).random(3))
            seed_globally(seed, ["numpy", "python", "torch"])
            assert numpy.random.random() == numpy.random.RandomState(seed).random()
            assert random.random() == random.Random(seed).random()
            own = torch.Generator().manual_seed(seed)
            assert torch.equal(torch.rand(3), torch.rand(3, generator=own))
            own.manual_seed(seed)
            assert torch.equal(torch.rand(3, generator=generator("torch", seed)), torch.rand(3, generator=own))


def test_seed_everything_seeds_the_named_backends_and_says_with_what():
    mesh = Mesh(pp=2, dp=2, tp=2)
    plan = SeedPlan(1234, mesh)
    with kept_state():
        seeds = [plan.seed_everything(rank, backends=["python", "numpy"]) for rank in range(8)]
        assert sharing(seeds.__getitem__, range(8)) == sorted(map(list, mesh.groups("tp")))
        stream = plan.stream("own", same=("pp", "dp"), differ="tp")
        seed = plan.seed_everything(5, stream, backends="python")
        assert seed == stream.seed(5)
        assert random.random() == random.Random(seed).random()
        plan.seed_everything(5, stream, backends=["numpy"])
        low, high = seed % 2**32, seed // 2**32
        assert numpy.random.random() == numpy.random.RandomState([low, high]).random()


def test_seed_everything_refuses_before_it_seeds():
    plan = SeedPlan(1, Mesh(dp=2))
    with kept_state():
        before = random.getstate()
        with refused(SeedError, "'cupy'", "numpy", name="cupy"):
            plan.seed_everything(0, backends=["python", "cupy"])
        with refused(RankError, rank=2):
            plan.seed_everything(2, backends=["python"])
        with refused(SeedError, "stands twice"):
            plan.seed_everything(0, backends=["python", "python"])
        assert random.getstate() == before


# Tables and state


@given(streams(), st.data())
def test_the_table_tells_who_shares(stream, data):
    (row,) = SeedPlan(stream.base_seed, stream.mesh).table([stream])
    groups = brute.groups(stream.mesh, stream.same)
    assert (row["name"], row["same"], row["differ"]) == (stream.name, list(stream.same), list(stream.differ))
    assert (row["seeds"], row["sharing"]) == (len(groups), len(groups[0]))
    assert row["first_groups"] == [group[:64] for group in groups[:3]]
    assert row["first_seeds"] == [stream.seed(group[0]) for group in groups[:3]]
    json.dumps(row)


def test_the_table_of_a_world_that_nobody_walks():
    plan = SeedPlan(1, Mesh(pp=2**10, dp=2**20, tp=2**10))
    rows = plan.table(plan.megatron().values())
    assert [(row["seeds"], row["sharing"]) for row in rows[:1]] == [(2**10, 2**30)]
    assert all(len(ranks) <= 64 for row in rows for ranks in row["first_groups"])


@given(meshes, base_seeds)
def test_a_plan_survives_json(mesh, base):
    plan = SeedPlan(base, mesh)
    again = SeedPlan.from_state_dict(json.loads(json.dumps(plan.state_dict())))
    assert again == plan
    assert hash(again) == hash(plan)
    assert plan != SeedPlan((base + 1) % 2**64, mesh)
    assert (plan == 1) is False
    assert repr(plan) == f"SeedPlan({base}, {mesh!r})"


def test_what_the_state_of_a_plan_refuses():
    state = SeedPlan(7, Mesh(dp=2)).state_dict()
    for change in ({"version": 2}, {"format": "rankatlas.mesh"}, {"more": 1}, {"mesh": None}, {"mesh": {"axes": []}}):
        with refused(DescriptionError):
            SeedPlan.from_state_dict({**state, **change})
    with refused(DescriptionError):
        SeedPlan.from_state_dict({})
    with refused(SeedError, seed=-1):
        SeedPlan.from_state_dict({**state, "base_seed": -1})
    with refused(IntegerError):
        SeedPlan.from_state_dict({**state, "base_seed": "7"})
