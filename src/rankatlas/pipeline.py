"""Which layers stand on which pipeline stage: named ways to share them out, each layer exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from types import MappingProxyType

from rankatlas.catalogue import said
from rankatlas.core.border import as_int, in_order
from rankatlas.core.sizes import checked_size
from rankatlas.errors import PipelineSplitError, SizeError, shown

# What each way of sharing out does with layers that do not divide.
POLICIES = MappingProxyType(
    {
        "even": "every chunk has the same number of layers; anything else is refused",
        "remainder-first": "layers that are left over go to the first chunks, one each",
        "remainder-last": "layers that are left over go to the last chunks, one each",
        "embedding": "the embedding counts as a layer of the first chunk; the sum must divide",
        "loss": "the loss counts as a layer of the last chunk; the sum must divide",
        "embedding-and-loss": "the embedding and the loss count as a layer each; the sum must divide",
    }
)
_MOST_LAYERS = 1 << 20  # chunks are listed, and no model is deeper
_COUNTED = MappingProxyType({"embedding": (1, 0), "loss": (0, 1), "embedding-and-loss": (1, 1)})


class PipelineSplit:
    """Layers shared out over stages: `sizes` per stage, `chunk_sizes` and `offsets` per chunk in model order.

    With virtual stages every stage holds several chunks that are not adjacent: chunk v of stage s is the
    (v × stages + s)-th piece of the model.  `offsets` are prefix sums of `chunk_sizes`, whatever the sizes.

    >>> split = PipelineSplit(2, 2, [2, 2, 2, 2])
    >>> split.chunks(1), split.sizes, split.place(6)
    ([range(2, 4), range(6, 8)], [4, 4], (1, 1))
    """

    __slots__ = ("chunk_sizes", "layers", "offsets", "sizes", "stages", "virtual")

    def __init__(self, stages: int, virtual: int, chunk_sizes: Sequence[int]) -> None:
        self.stages = stages
        self.virtual = virtual
        self.chunk_sizes = list(chunk_sizes)
        self.layers = sum(chunk_sizes)
        self.sizes = [sum(self.chunk_sizes[stage::stages]) for stage in range(stages)]
        self.offsets = list(accumulate(self.chunk_sizes, initial=0))[:-1]

    def chunks(self, stage: int) -> list[range]:
        """The layers of every chunk of `stage`, as ranges.  Cost: O(virtual)."""
        pieces = range(stage, self.stages * self.virtual, self.stages)
        return [range(self.offsets[piece], self.offsets[piece] + self.chunk_sizes[piece]) for piece in pieces]

    def place(self, layer: int) -> tuple[int, int]:
        """(stage, chunk) that holds `layer`.  Cost: O(log chunks).  Raises SizeError outside the model."""
        from bisect import bisect_right

        layer = as_int(layer, "layer")
        if not 0 <= layer < self.layers:
            raise SizeError(f"there are layers 0 to {self.layers - 1}, not {shown(layer)}", axis="layers", size=layer)
        # Of chunks that begin at the same layer only the last one holds any.
        chunk, stage = divmod(bisect_right(self.offsets, layer) - 1, self.stages)
        return stage, chunk

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PipelineSplit):
            return NotImplemented
        return (self.stages, self.chunk_sizes) == (other.stages, other.chunk_sizes)

    def __hash__(self) -> int:
        return hash((self.stages, tuple(self.chunk_sizes)))

    def __repr__(self) -> str:
        return f"PipelineSplit({self.stages}, {self.virtual}, {self.chunk_sizes})"


def pipeline_split(
    layers: int,
    stages: int,
    virtual: int = 1,
    policy: str = "even",
    *,
    explicit: Iterable[int] | None = None,
    first: int | None = None,
    last: int | None = None,
) -> PipelineSplit:
    """`layers` shared out over `stages` × `virtual` chunks by a policy of `POLICIES`, or exactly as told.

    `explicit` has one number per stage (which the chunks of the stage share evenly) or one per chunk in model order;
    `first` and `last` are the layers of the first and last stage, the stages between share the rest evenly.
    Cost: O(layers).  Raises PipelineSplitError where layers would be lost or invented, SizeError, IntegerError.

    >>> pipeline_split(32, 4, explicit=[7, 8, 9, 8]).offsets
    [0, 7, 15, 24]
    >>> pipeline_split(30, 4, policy="remainder-last").sizes
    [7, 7, 8, 8]
    >>> pipeline_split(30, 4)
    Traceback (most recent call last):
        ...
    rankatlas.errors.PipelineSplitError: 30 layers cannot be shared evenly by 4 stages: 4 × 7 = 28, so 2 would be lost
    stages that divide 30: 1, 2, 3, 5, 6, 10, 15, 30; or give the sizes, which add up: explicit=[8, 8, 7, 7]
    """
    layers = checked_size("layers", layers, label="layers")
    stages = checked_size("stages", stages, label="stages")
    virtual = checked_size("virtual", virtual, label="virtual")
    if layers > _MOST_LAYERS:
        raise SizeError(
            said("split.too_many", layers=shown(layers), most=f"{_MOST_LAYERS:,}"), axis="layers", size=layers
        )
    if policy not in POLICIES:
        raise PipelineSplitError(
            f"no policy {shown(policy)}; the policies are {', '.join(POLICIES)}", **_facts(layers, stages, virtual)
        )
    if explicit is not None:
        if first is not None or last is not None:
            raise PipelineSplitError(
                "explicit sizes and sizes of the first and last stage exclude each other",
                **_facts(layers, stages, virtual),
            )
        return _explicit(layers, stages, virtual, explicit)
    if first is not None or last is not None:
        return _with_ends(layers, stages, virtual, first, last)
    pieces = stages * virtual
    if policy.startswith("remainder"):
        if pieces > layers:
            raise _too_many(layers, stages, virtual)
        return PipelineSplit(stages, virtual, shared_out(layers, pieces, policy == "remainder-last"))
    before, after = _COUNTED.get(policy, (0, 0))
    counted = layers + before + after
    if counted % pieces or (policy == "even" and pieces > layers):
        raise _uneven(layers, stages, virtual, counted, policy)
    sizes = [counted // pieces] * pieces
    sizes[0] -= before
    sizes[-1] -= after
    if sizes[0] < 0:  # one layer's worth, counted twice over
        raise _too_many(layers, stages, virtual)
    return PipelineSplit(stages, virtual, sizes)


def shared_out(layers: int, pieces: int, last: bool = False) -> list[int]:
    """`layers` over `pieces` as evenly as whole numbers allow, the larger ones first (or `last`).

    >>> shared_out(30, 4), shared_out(30, 4, last=True)
    ([8, 8, 7, 7], [7, 7, 8, 8])
    """
    each, more = divmod(layers, pieces)
    sizes = [each + 1] * more + [each] * (pieces - more)
    return sizes[::-1] if last else sizes


def _explicit(layers: int, stages: int, virtual: int, explicit: Iterable[int]) -> PipelineSplit:
    given = [as_int(size, "a number of layers") for size in in_order(explicit, "explicit")]
    told = shown(given)
    if any(size < 0 for size in given):
        raise PipelineSplitError(said("split.negative", told=told), **_facts(layers, stages, virtual))
    if len(given) not in (stages, stages * virtual):
        chunks = said("split.sizes_chunks", pieces=stages * virtual, virtual=virtual) if virtual > 1 else ""
        raise PipelineSplitError(
            said("split.sizes", told=told, count=len(given), stages=stages, chunks=chunks),
            **_facts(layers, stages, virtual),
        )
    total = sum(given)
    if total != layers:
        lost = layers - total
        wrong = said("split.total_lost", lost=lost) if lost > 0 else said("split.total_more", more=-lost)
        raise _offering(
            said("split.total", told=told, total=total, layers=layers, wrong=wrong), layers, stages, virtual
        )
    if len(given) == stages * virtual:
        return PipelineSplit(stages, virtual, given)
    odd = [stage for stage, size in enumerate(given) if size % virtual]
    if odd:
        raise PipelineSplitError(
            said("split.stage", stage=odd[0], size=given[odd[0]], virtual=virtual, pieces=stages * virtual),
            **_facts(layers, stages, virtual),
        )
    return PipelineSplit(stages, virtual, [size // virtual for size in given] * virtual)


def _with_ends(layers: int, stages: int, virtual: int, first: int | None, last: int | None) -> PipelineSplit:
    ends = {}
    for name, size in (("first", first), ("last", last)):
        if size is not None:
            ends[name] = checked_size(name, size, label=f"layers of the {name} stage")
    inner = stages - len(ends)
    rest = layers - sum(ends.values())
    parts = [said(f"split.ends_{name}", size=size) for name, size in ends.items()]
    told = said("both", first=parts[0], second=parts[1]) if len(parts) > 1 else parts[0]
    if inner < 0:
        raise PipelineSplitError(said("split.one_stage", told=told), **_facts(layers, stages, virtual))
    if rest < 0 or (inner == 0 and rest) or (inner and rest % inner):
        wrong = said("split.ends_uneven", rest=rest, inner=inner)
        if rest < 0:
            wrong = said("split.ends_more", more=-rest, layers=layers)
        elif inner == 0:
            wrong = said("split.ends_lost", rest=rest, layers=layers)
        raise _offering(said("split.ends", told=told, wrong=wrong), layers, stages, virtual)
    sizes = [rest // inner] * inner if inner else []
    sizes = [*([ends["first"]] if "first" in ends else []), *sizes, *([ends["last"]] if "last" in ends else [])]
    return _explicit(layers, stages, virtual, sizes)


def _uneven(layers: int, stages: int, virtual: int, counted: int, policy: str) -> PipelineSplitError:
    pieces = stages * virtual
    if pieces > layers:
        return _too_many(layers, stages, virtual)
    each, lost = divmod(counted, pieces)
    who = f"{stages} stages" if virtual == 1 else f"{stages} stages of {virtual} chunks each"
    what = f"{layers} layers" if counted == layers else f"{layers} layers, with {policy} counted {counted},"
    facts = _facts(layers, stages, virtual)
    # With 1 counted for an end the stages that divide are those of the sum.
    legal = [number for number in range(1, layers // virtual + 1) if counted % (number * virtual) == 0]
    few = legal if len(legal) <= 12 else [*legal[:11], "…"]
    return PipelineSplitError(
        f"{what} cannot be shared evenly by {who}: {pieces} × {each} = {counted - lost}, so {lost} would be lost\n"
        f"stages that divide {counted}{f' with {virtual} chunks' if virtual > 1 else ''}:"
        f" {', '.join(map(str, few)) or 'none'}; or give the sizes, which add up: explicit={shown_sizes(facts)}",
        **facts,
    )


def shown_sizes(facts: dict[str, object]) -> str:
    """The offered sizes for a message, as many as a person reads."""
    sizes: list[int] = facts["offered_chunks"] or []  # type: ignore[assignment]
    return str(sizes) if len(sizes) <= 64 else f"[{', '.join(map(str, sizes[:8]))}, … ({len(sizes)} sizes)]"


def _too_many(layers: int, stages: int, virtual: int) -> PipelineSplitError:
    sentence = said(
        "split.few",
        layers=layers,
        stages=shown(stages),
        chunks=said("split.few_chunks", virtual=virtual) if virtual > 1 else "",
        most=max(1, layers // virtual),
        so_many=said("split.few_so_many") if virtual > 1 else "",
    )
    return PipelineSplitError(sentence, **_facts(layers, stages, virtual))


def _offering(sentence: str, layers: int, stages: int, virtual: int) -> PipelineSplitError:
    """The error that says this, with sizes that add up on a second line where there are any."""
    facts = _facts(layers, stages, virtual)
    offer = f"\nsizes that add up: explicit={shown_sizes(facts)}" if facts["offered_chunks"] else ""
    return PipelineSplitError(f"{sentence}{offer}", sentence=sentence, **facts)


def _facts(layers: int, stages: int, virtual: int) -> dict[str, object]:
    pieces = stages * virtual
    chunks = shared_out(layers, pieces) if pieces <= layers else None
    return {
        "layers": layers,
        "stages": stages,
        "virtual": virtual,
        "dropped_by_floor": layers % pieces,
        "offered_chunks": chunks,
        "offered_split": [sum(chunks[stage::stages]) for stage in range(stages)] if chunks else None,
    }
