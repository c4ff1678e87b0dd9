"""A job: what a launch configuration says, each value with its origin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from rankatlas.core import Atlas, Mesh


class Fact:
    """One value of a configuration and where it came from, such as ("mp", 2, "tensor_parallel_degree").

    >>> Fact("dp", 4, "inferred from world size 8")
    Fact('dp', 4, 'inferred from world size 8')
    """

    __slots__ = ("name", "origin", "value")

    def __init__(self, name: str, value: object, origin: str) -> None:
        self.name = name
        self.value: Any = value
        self.origin = origin

    def __repr__(self) -> str:
        return f"Fact({self.name!r}, {self.value!r}, {self.origin!r})"


# What a configuration may say beside the layout, and in which unit.
SETTINGS = MappingProxyType(
    {
        "global_batch": "samples of one optimizer step, over all ranks",
        "micro_batch": "samples of one forward pass on one data rank",
        "accumulation": "micro-batches of one optimizer step on one data rank",
        "sequence_length": "tokens of one sample",
        "layers": "transformer layers of the whole model",
        "heads": "attention heads",
        "kv_heads": "heads of keys and values (fewer than heads with grouped queries)",
        "hidden": "features of a token between layers",
        "head_size": "features of one attention head, where it is not hidden ÷ heads",
        "ffn": "features inside a dense feed-forward layer",
        "vocab": "entries of the vocabulary, before padding",
        "vocab_multiple": "padding rounds the vocabulary up to a multiple of this times the tensor size",
        "experts": "routed experts of a layer",
        "expert_ffn": "features inside one expert",
        "virtual_stages": "pieces of the model on every pipeline stage",
        "virtual_stage_layers": "layers of every virtual stage, where the pieces are told by their length",
        "microbatch_group": "micro-batches that a piece takes in a row; as many as stages unless given",
        "stage_micro_batch": "samples that a stage takes at a time, where a micro-batch is cut for the pipeline",
        "first_stage_layers": "layers of the first stage, where it has another number than the rest",
        "last_stage_layers": "layers of the last stage, where it has another number than the rest",
        "stage_layers": "layers of every stage, or of every virtual stage in model order, as a list",
        "layer_split": "what shares layers out where it is not told: a policy of rankatlas.pipeline",
        "zero_stage": "0 to 3: what data ranks share out among them (optimizer states, gradients, parameters)",
        "fsdp": "how parameters are sharded, in the words of the framework",
        "cp_split": "contiguous or balanced: how a sequence is cut over context ranks",
        "sequence_parallel": "whether tensor ranks share a sequence out between the layers' matrices: true or false",
        "linear_bias": "whether the layers' matrices have a bias: true or false",
        "recompute": "what is computed again in the backward pass, in the words of the framework",
        "precision": "bf16, fp16, fp32, fp8 or fp4",
    }
)


class Offer:
    """A number of ranks to take where a source says none: `world`, and what offers it, such as "--nodes 8x8"."""

    __slots__ = ("origin", "world")

    def __init__(self, world: int, origin: str) -> None:
        self.world = world
        self.origin = origin


class Job:
    """A layout as it was read: the mesh or atlas, the `format` it was written in, `source`, facts and notes.

    `seed` is the base seed a configuration sets, None where it sets none.
    `settings` are the other numbers that must fit the layout, name → Fact; the names are `SETTINGS`, the same whatever
    the format calls them, and one that is neither given nor has a default is absent.
    `places` says where ranks run, rank → its `host`, `local_rank` and, of recorded jobs, `device`; `kinds` which groups
    a recorded job made, plain data.
    `launched` are the nodes and the processes on each that a launcher starts, None where it does not say so.
    `notes` are sentences about what was given and could not be understood, or was understood in one of several
    possible ways; a reader never keeps such a thing to itself.

    >>> Job(Mesh(dp=8), format="notation", source="dp=8").layout
    Mesh(dp=8)
    """

    __slots__ = ("facts", "format", "kinds", "launched", "layout", "notes", "places", "seed", "settings", "source")

    def __init__(
        self,
        layout: Mesh | Atlas,
        *,
        format: str,
        source: str,
        facts: Iterable[Fact] = (),
        notes: Iterable[str] = (),
        places: Mapping[int, Mapping[str, Any]] | None = None,
        kinds: Iterable[Mapping[str, Any]] = (),
        seed: int | None = None,
        settings: Iterable[Fact] = (),
        launched: tuple[int, int] | None = None,
    ) -> None:
        self.layout = layout
        self.format = format
        self.source = source
        self.facts = tuple(facts)
        self.notes = tuple(notes)
        self.places = {} if places is None else places
        self.kinds = tuple(kinds)
        self.seed = seed
        self.launched = launched
        self.settings = MappingProxyType({fact.name: fact for fact in settings})

    def __repr__(self) -> str:
        return f"Job({self.layout!r}, format={self.format!r}, source={self.source!r})"
