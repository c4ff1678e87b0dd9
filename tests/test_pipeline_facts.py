"""Pipeline splits against what Megatron-core itself builds, frozen in tests/golden/megatron_pipeline.json."""

import pytest

from golden import facts
from rankatlas.dialects.megatron_pipeline import layers_in
from rankatlas.errors import PipelineSplitError
from rankatlas.pipeline import pipeline_split

POLICIES = {
    (False, False): "even",
    (True, False): "embedding",
    (False, True): "loss",
    (True, True): "embedding-and-loss",
}


def ours(given):
    policy = POLICIES[given["embedding"], given["loss"]]
    split = pipeline_split(
        given["layers"], given["pp"], given["vpp"] or 1, policy, first=given["first"], last=given["last"]
    )
    return [list(pair) for pair in zip(split.chunk_sizes, split.offsets)]


def holds_every_layer_once(chunks, layers):
    ends = [offset + size for size, offset in chunks]
    return [offset for _, offset in chunks] == [0, *ends[:-1]] and ends[-1] == layers


def test_megatron_builds_what_we_say_and_what_it_refuses_we_refuse():
    lost = refused = same = 0
    for fact in facts("megatron_pipeline", "shared"):
        given = fact["given"]
        if fact.get("error", {}).get("type") == "ZeroDivisionError":
            continue  # virtual stages and both ends on two stages: it fails before it shares anything out
        if "error" in fact or not holds_every_layer_once(fact["answer"], given["layers"]):
            lost += "error" not in fact
            refused += "error" in fact
            with pytest.raises(PipelineSplitError):
                ours(given)
        else:
            same += 1
            assert ours(given) == fact["answer"], given
    assert min(same, refused) > 90
    assert lost >= 5  # two stages with both ends told: Megatron-core builds a smaller model without a word


def test_a_picture_means_what_megatron_reads_in_it():
    for fact in facts("megatron_pipeline", "pictured"):
        layers = layers_in(fact["picture"])
        if "answer" not in fact:
            assert layers is None or len(layers) % fact["pp"]
            continue
        split = pipeline_split(sum(layers), fact["pp"], len(layers) // fact["pp"], explicit=layers)
        assert [list(pair) for pair in zip(split.chunk_sizes, split.offsets)] == fact["answer"]


@pytest.mark.parametrize("text", ["", "t*99999|t", "((t)*99999)*99999", "(" * 5000, "E|" * 70000, "t*-1", "Et*2|tl"])
def test_what_is_no_picture(text):
    assert layers_in(text) is None
