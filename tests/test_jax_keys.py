"""JAX keys as a value: named streams that go through jit and scan."""

import pytest

from rankatlas import Mesh
from rankatlas.errors import IntegerError, SeedError
from rankatlas.seeding import SeedPlan
from refusals import refused

jax = pytest.importorskip("jax")
from rankatlas.adapters.jax import Keys, generator  # noqa: E402


def words(key):
    return jax.random.key_data(key).tolist()


def test_taking_changes_nothing_in_place():
    keys = Keys().add("a", 50).add("b", 60)
    first, after = keys.take("a")
    again, _ = keys.take("a")
    second, _ = after.take("a")
    assert words(first) == words(again) != words(second)
    assert words(keys.take("b")[0]) == words(after.take("b")[0])


def test_a_key_depends_on_the_name_taken_and_the_times_only():
    one, other = Keys().add("a", 50), Keys().add("z", 1).add("x", 50)
    for _ in range(3):
        key, one = one.take("a")
        _, other = other.take("z")
        same, other = other.take("x")
        assert words(key) == words(same)


def test_keys_go_through_jit_and_scan():
    def step(keys, _):
        key, keys = keys.take("dropout")
        return keys, jax.random.uniform(key)

    keys = Keys().add("dropout", 2**63 + 1)
    after, drawn = jax.jit(lambda keys: jax.lax.scan(step, keys, length=4))(keys)
    one_by_one = []
    for _ in range(4):
        keys, value = step(keys, None)
        one_by_one.append(float(value))
    assert drawn.tolist() == one_by_one
    assert words(after.take("dropout")[0]) == words(keys.take("dropout")[0])
    with refused(SeedError, earlier_seed=2**63 + 1):
        after.add("dropout", 1)  # the seeds came through as well


def test_a_failed_add_names_what_is_in_the_way():
    keys = Keys().add("a", 50)
    with refused(SeedError, "'a'", "50", name="a", seed=51, earlier_name="a", earlier_seed=50):
        keys.add("a", 51)
    with refused(SeedError, "'a'", "'b'", name="b", seed=50, earlier_name="a", earlier_seed=50):
        keys.add("b", 50)
    with refused(IntegerError, "seed"):
        keys.add("b", 1.0)
    with refused(SeedError, "'z'", "a", name="z"):
        keys.take("z")
    with refused(SeedError, "none yet"):
        Keys().take("a")


def test_all_64_bits_of_a_seed_are_the_key():
    assert words(generator(2**63 + 7)) == [2**31, 7]
    stream = SeedPlan(1234, Mesh(dp=2)).stream("x", differ="dp")
    high, low = words(stream.jax(1))
    assert high * 2**32 + low == stream.seed(1)
