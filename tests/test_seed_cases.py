"""Cases about tensors and seeds from tests/cases/seeds.json; one small function per kind.

What users reported elsewhere, with numbers and words as they are there, and ours beside them.  A further case of a
known kind needs data only.
"""

import json
import re
from pathlib import Path

import pytest

from rankatlas import Mesh
from rankatlas.errors import InputError, RandomStateError
from rankatlas.seeding import RngStateTracker, SeedPlan, distributed_seeds
from rankatlas.seeding.checkpoint import check_key, join_states, load_states, save_states
from rankatlas.seeding.relations import check_families, check_relations
from rankatlas.seeding.scheme import parse_scheme
from rankatlas.tensors import TensorLayout
from refusals import refused

CASES = json.loads(Path(__file__, "../cases/seeds.json").resolve().read_text(encoding="utf-8"))
ERRORS = {"RngKeyError": RandomStateError}

# What the reports' words mean: the axes along which a thing differs, where the mesh has them.
REGIONS = {
    "replicated-activation": ("pp", "dp", "cp"),
    "tp-sharded-activation": ("pp", "dp", "cp", "tp"),
    "weight": ("pp", "tp"),
    "norm-weight": ("pp",),
}
RULES = {
    "same inside one pipeline stage, different between stages": ("pp",),
    "adapter shared by all experts (copied over ep)": (),
}


def mesh_of(given):
    return Mesh.from_axes([(axis, given["degrees"][axis]) for axis in given["order"]])


def layout_of(mesh, differ):
    """The tensor that differs along these axes and is a copy along all others."""
    sharded = [axis for axis in mesh.axes if axis in differ]
    return TensorLayout(mesh, [axis for axis in mesh.axes if axis not in sharded], sharded)


def equal_sets(seed_of, mesh):
    found = {}
    for rank in mesh.select():
        found.setdefault(seed_of(rank), []).append(rank)
    return sorted(found.values())


def check_a_seed_relations_case(given, expected):
    mesh = mesh_of(given)
    for region in given["regions"]:
        stream = SeedPlan(1234, mesh).stream_for(region, layout_of(mesh, REGIONS[region]))
        assert equal_sets(stream.seed, mesh) == expected["equal_sets"][region.replace("-", "_")], region


def check_a_seed_table_case(given, expected):
    mesh = mesh_of(given)
    seeds = [distributed_seeds(given["seed"], mesh, rank=rank) for rank in mesh.select()]
    names = ("global_seed", "local_seed", "host_seed")
    assert [{"rank": rank, **dict(zip(names, seed))} for rank, seed in enumerate(seeds)] == expected["table"]
    for name, sets in expected["equal_sets"].items():
        assert equal_sets(lambda rank, name=name: getattr(seeds[rank], name), mesh) == sets
    # The plan's streams have the same relations.
    for name, stream in SeedPlan(given["seed"], mesh).paddle().items():
        assert equal_sets(stream.seed, mesh) == expected["equal_sets"].get(name, equal_sets(stream.seed, mesh))


def check_a_seed_collision_case(given, expected):
    for name, value in expected.items():
        if isinstance(value, dict):
            sizes = {axis: int(size) for axis, size in re.findall(r"([a-z]+)(\d+)", name)}
            mesh = Mesh(**{axis: 1 for axis in given if axis not in ("seed", "scheme")} | sizes)
            found = check_families(parse_scheme(given["scheme"], mesh)[-1:], mesh)
            assert (found.wanted, found.distinct) == (value["streams_wanted"], value["distinct_seeds"])
            continue
        mesh = Mesh(**{axis: size for axis, size in given.items() if axis not in ("seed", "scheme")})
        found = check_families(parse_scheme(given["scheme"], mesh), mesh, given.get("seed", 0))
        across, axes = name.startswith("cross_family"), name.rpartition("collisions_")[2].split("_")
        hits = [hit for hit in found.collisions if (hit.first[0] != hit.second[0]) is across]
        if across:
            both = [{**hit.first[1], **hit.second[1]} for hit in hits]
            assert sorted([places[axis] for axis in axes] for places in both) == value
        else:
            told = [[[places[axis] for axis in axes] for _, places in (hit.first, hit.second)] for hit in hits]
            assert told == value
        assert found.ok is (not found.collisions)


def check_a_key_case(given, expected):
    mesh = mesh_of(given)
    stream = SeedPlan(1, mesh).stream_for("default", layout_of(mesh, given["stream_depends_on"]))
    if "error" not in expected:
        assert expected == {"ok": True}
        check_key(stream, given["saved_key"])
        return
    error, ranks = expected["error"], expected["ranks_that_would_restore_a_wrong_stream"]
    lacking = [axis for axis in mesh.axes if axis in given["stream_depends_on"] and axis not in given["saved_key"]]
    lacking = tuple(axis for axis in lacking if mesh.size(axis) > 1)
    with refused(ERRORS[error["cls"]], *error["must_mention"], str(ranks[-1]), axes=lacking, ranks=ranks):
        check_key(stream, given["saved_key"])


def tracker_with(stream, rank):
    tracker = RngStateTracker(["python"])
    tracker.add(stream.name, stream.seed(rank))
    return tracker


def check_a_resume_case(given, expected):
    before, after = Mesh(**given["saved"]), Mesh(**given["target"])
    old, new = (SeedPlan(1, mesh).stream_for("dropout", layout_of(mesh, given["keyed_by"])) for mesh in (before, after))
    parts = [save_states(tracker_with(old, rank), [old], rank) for rank in before.select()]
    saved = join_states(SeedPlan(1, before), [old], parts)
    without = expected["ranks_without"]
    assert sorted([*expected["ranks_with_state"], *without]) == list(after.select())
    for rank in after.select():
        tracker = RngStateTracker(["python"])
        if without:
            with refused(RandomStateError, *expected["policy_must_be_named"][:2], ranks=without):
                load_states(saved, tracker, [new], rank)
        else:
            load_states(saved, tracker, [new], rank)
        for policy in ("keep-old-and-seed-new", "reset-all"):
            (told,) = load_states(saved, tracker, [new], rank, policy)
            assert tracker.seeds_ == {new.seed(rank)}
            assert ("anew" in told) is (policy == "reset-all" or bool(without))


def rule_of(given):
    """The axes along which a thing differs, from the words of the case."""
    text = given.get("rule", given.get("tensor"))
    differ = RULES.get(text)
    return re.findall(r"\w+", text.partition("different along ")[2]) if differ is None else differ


def check_an_initial_seed_case(given, expected):
    mesh = mesh_of(given)
    layout = layout_of(mesh, rule_of(given))
    stream = SeedPlan(1234, mesh).stream_for("weight", layout)
    assert equal_sets(stream.seed, mesh) == expected["equal_sets"]
    assert sorted(map(list, mesh.groups(*layout.replicated))) == expected["equal_sets"]
    preset = SeedPlan(1234, mesh).megatron()
    for key, name in (("scheme_expert_stream", "expert-parallel-rng"), ("scheme_default_stream", "data-parallel-rng")):
        if key in expected:
            found = check_relations(preset[name].seed, mesh, same=layout.replicated, differ=layout.sharded)
            assert ("ok" if found.ok else "violates") == expected[key], key


def check_a_tracker_case(given, expected):
    tracker = RngStateTracker(["python"])
    for (verb, *arguments), result in zip(given["calls"], expected["results"], strict=True):
        before = repr(tracker)
        try:
            getattr(tracker, verb)(*arguments)
            told = "ok"
        except InputError as error:
            told = f"error: {error}"
            assert repr(tracker) == before
        assert told.startswith(result) if result != "ok" else told == "ok", told


def check_a_checkpoint_shards_case(given, expected):
    for when in ("before", "after"):
        mesh = mesh_of({**given, "order": given[f"order_{when}"]})
        sharded = given.get("sharded", ["tp"])
        layout = TensorLayout(mesh, [axis for axis in mesh.axes if axis not in sharded], sharded)
        shards = [layout.shard_index(rank) for rank in mesh.select()]
        assert shards == expected.get(f"checkpoint_shard_of_rank_{when}", shards)
        writers = [rank for rank in mesh.select() if layout.is_owner(rank)]
        assert writers == expected.get(f"writers_{when}", writers)
        assert sorted(shards[rank] for rank in writers) == list(range(layout.shard_count))


CHECKS = {
    "seed-relations": check_a_seed_relations_case,
    "seed-table": check_a_seed_table_case,
    "seed-collision": check_a_seed_collision_case,
    "rng-checkpoint-key": check_a_key_case,
    "rng-resume-policy": check_a_resume_case,
    "init-seed-check": check_an_initial_seed_case,
    "tracker": check_a_tracker_case,
    "checkpoint-shards": check_a_checkpoint_shards_case,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case):
    CHECKS[case["kind"]](case["input"], case["expected"])


def test_the_cases_of_this_issue_are_all_here():
    ids = [case["id"] for case in CASES]
    assert len(set(ids)) == len(ids)
    assert {*(f"SEED-{number:03}" for number in range(1, 18, 2)), "MAP-011"} <= set(ids)
    for kind in CHECKS:
        assert sum(case["kind"] == kind for case in CASES) >= 4, kind
