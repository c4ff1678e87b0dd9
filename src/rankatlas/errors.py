"""Every error rankatlas raises: one small tree, each leaf also the builtin a caller would expect.

An error says what was asked, what exists and what to do, and carries the same facts as attributes, so that a
program can act on them without reading the sentence.  All of them pickle, because ranks are processes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


_LONGEST = 8000  # characters of a message
_SHOWN = 160  # characters of a value in it
_MOST_BITS = 256  # of an integer that is written out


def shown(value: object) -> str:
    """`value` for a message, never longer than a line and never costly to make, whatever somebody gave.

    >>> shown("tp"), shown(10**100), shown(list(range(1000)))
    ("'tp'", 'an integer of 333 bits', '[0, 1, 2, 3, 4, 5, ...]')
    """
    if type(value) is int:
        bits = value.bit_length()
        return str(value) if bits <= _MOST_BITS else f"an integer of {bits} bits"
    if isinstance(value, str):
        return repr(str.__str__(value)) if len(value) <= _SHOWN else f"{str.__str__(value)[:_SHOWN]!r}..."
    from reprlib import Repr

    brief = Repr()
    brief.maxstring = brief.maxother = _SHOWN
    brief.maxlong = _SHOWN
    try:
        text = brief.repr(value)
    except Exception:  # a value whose own repr fails
        text = f"a {type(value).__name__}"
    return text if len(text) <= 2 * _SHOWN else f"{text[: 2 * _SHOWN]}..."


class RankatlasError(Exception):
    """The root: `except RankatlasError` catches whatever this library raises on purpose.

    >>> try:
    ...     raise RankatlasError("no such thing", asked="thing")
    ... except RankatlasError as error:
    ...     error.asked
    'thing'
    """

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message if len(message) <= _LONGEST else f"{message[:_LONGEST]} ...")
        self.__dict__.update(fields)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors travel between processes; what somebody gave by mistake may be unable to.
        fields = {name: value if _travels(value) else shown(value) for name, value in self.__dict__.items()}
        return type(self), self.args, fields

    def __str__(self) -> str:
        # KeyError prints the repr of its argument; every error here is a sentence.
        return str(self.args[0])


def _travels(value: object) -> bool:
    from pickle import dumps

    try:
        dumps(value)
    except Exception:  # pickle raises whatever the value's own methods do
        return False
    return True


class InputError(RankatlasError, ValueError):
    """Something given to rankatlas cannot be used."""


class AxisError(InputError):
    """An axis name that cannot be used where it stands.  `name` is the name."""

    name: str


class UnknownAxisError(AxisError, KeyError):
    """No such axis.  `name` was asked for, `known` are the axes there are, `near` the likely meant ones."""

    known: tuple[str, ...]
    near: tuple[str, ...]


class DuplicateAxisError(AxisError):
    """The same axis twice where each may stand once."""


class UnnamedAxisError(AxisError):
    """Axes of size > 1 about which nothing was said.  `forgotten` lists them."""

    forgotten: tuple[str, ...]


class PartialTensorError(InputError):
    """A question that has no answer while a tensor is partial.  `axes` are those it still has to be summed along."""

    axes: tuple[str, ...]


class SeedError(InputError):
    """A seed that cannot be used, or a name or seed that is already taken.

    `name` and `seed` are what was asked for; `earlier_name` and `earlier_seed` what stands in its way, or None.
    """

    name: str | None = None
    seed: object = None
    earlier_name: str | None = None
    earlier_seed: int | None = None


class SchemeError(InputError):
    """Text that is no seed scheme.  `text` is the text, `position` the offset of the offending character."""

    text: str
    position: int


class RandomStateError(InputError):
    """Stored random states that do not belong to this layout.

    `axes` lists the axes their keys lack, `ranks` the ranks that have no state or would restore a wrong one.
    """

    axes: tuple[str, ...]
    ranks: list[int]


class SizeError(InputError):
    """A size below 1.  `axis` and `size` say which."""

    axis: str
    size: object


class SizeTypeError(SizeError, TypeError):
    """A size that is no integer (a bool or a float is none, even 2.0)."""


class WorldSizeError(InputError):
    """Sizes and world size do not fit together.

    `factors` are (axis, size) pairs, `product` is theirs, `remainder` is world_size modulo product,
    `nearest_worlds` are the world sizes next to the given one that these sizes do fit, and `fixes` are the
    nearest changes of sizes that fit the given world, each a dict axis → size.  Where sizes were resolved there are
    also `open_axis`, the one without a size (None where all have one), and `origins`, axis → where its size came from.
    """

    factors: tuple[tuple[str, int], ...]
    product: int
    world_size: int | None
    remainder: int
    nearest_worlds: list[int]
    fixes: list[dict[str, int]]
    open_axis: str | None
    origins: dict[str, str]


class BatchError(InputError):
    """A global batch that is not micro batch × accumulation × data size.

    `product` is what the factors make (without an accumulation: of one micro-step), `remainder` what micro batch × data
    size leaves over.  `legal_global_batches` lie next to the given one; with an accumulation it is the one that the
    factors make.  `legal_micro_batches` and `legal_data_sizes` go up to the next one above, each with the other factors
    kept and the accumulation left out.
    """

    global_batch: int
    micro_batch: int
    data_size: int
    accumulation: int | None
    product: int
    remainder: int
    legal_global_batches: list[int]
    legal_micro_batches: list[int]
    legal_data_sizes: list[int]


class DataCoverageError(InputError):
    """Samples that are not each read exactly once by one data rank, or peers that read different ones.

    `kinds` names what was found ("sharded-by-world", "sharded-twice", "tail-per-rank", "peers-disagree", …), `samples`
    how many there are and `covered_count` how many of them are read.  `covered`, `missing` and `repeated` list the
    first 1,024 samples each, `ranks` the first 1,024 ranks that differ from a peer.
    """

    kinds: tuple[str, ...]
    samples: int
    covered_count: int
    covered: list[int]
    missing: list[int]
    repeated: list[int]
    ranks: list[int]


class DataResumeError(InputError):
    """A saved position in the data from which this job cannot go on.

    Of a ShardedSampler's state: `state` is what was saved (None when it is no state), `changed` is key → (saved, own).
    Of per-rank states of other loaders: `orphaned_states` are data ranks whose state nobody would load,
    `missing_states` those that have none.
    """

    state: dict[str, object] | None
    changed: dict[str, tuple[object, object]]
    orphaned_states: list[int]
    missing_states: list[int]


class SequenceError(InputError):
    """A sequence that cannot be cut as asked.

    `nearest_lengths` and `legal_cp` are what can be, each with the other kept; `remainder` is what is left over.
    """

    length: int
    cp: int
    split: object
    remainder: int
    nearest_lengths: list[int]
    legal_cp: list[int]


class DegreeError(InputError):
    """A size that must divide a number of ranks and does not.

    `name` and `size` are its own, `ranks` what it must divide, `remainder` what is left, `legal` the sizes that fit.
    """

    name: str
    size: int
    ranks: int
    remainder: int
    legal: list[int]


class RankError(InputError, IndexError):
    """A rank outside the mesh.  `rank`, `first_rank` and `world_size` say by how much."""

    rank: int
    first_rank: int
    world_size: int


class IntegerError(InputError, TypeError):
    """Something that must be an integer is none.  `what` names it, `value` is what was given."""

    what: str
    value: object


class CoordinateError(InputError):
    """A coordinate that names no single rank.  `missing` lists the axes it lacks."""

    missing: tuple[str, ...]


class CoordinateRangeError(CoordinateError, IndexError):
    """A place beyond the end of its axis.  `axis`, `place` and `size` say where."""

    axis: str
    place: int
    size: int


class LayoutChangeError(InputError):
    """A flatten, unflatten or reorder that is not possible as asked."""


class NotationError(InputError):
    """Text that is no mesh notation.  `text` is the text, `position` the offset of the offending character."""

    text: str
    position: int


class DescriptionError(InputError):
    """A stored description (a dict, or JSON) that is not one of ours, or of another version."""


class GroupError(InputError):
    """A table of groups that does not fit the mesh.

    `out_of_range`, `missing` and `repeated` list ranks; `group`, `expected` and `given` show the first group
    whose members are others than the mesh says (None when the ranks alone are already wrong).
    """

    out_of_range: list[int]
    missing: list[int]
    repeated: list[int]
    group: int | None
    expected: list[int] | None
    given: list[int] | None


class MemberOrderError(GroupError):
    """The right members in another order.

    `wrong_positions` lists [group, position] pairs; `same_members` is always True.  Reductions over such a
    group still work, while every listed rank holds another shard index than it believes.
    """

    wrong_positions: list[list[int]]
    same_members: bool


class GroupOrderError(GroupError):
    """The right groups, listed in another order; `wrong_positions` lists the places that differ."""

    wrong_positions: list[int]


class AtlasError(InputError):
    """Charts that do not belong together, or an axis address that names no chart."""


class UnknownChartError(AtlasError, KeyError):
    """No such chart.  `name` was asked for, `known` are the charts there are."""

    name: object
    known: tuple[str, ...]


class SharedAxisError(AtlasError):
    """An axis declared shared whose groups differ between two charts.

    `axis`, `charts` (two names), `index` of the first differing group, and its ranks in both (`first`, `second`).
    """

    axis: str
    charts: tuple[str, str]
    index: int
    first: Sequence[int] | None
    second: Sequence[int] | None


class ArgumentsError(InputError):
    """Training arguments that contradict each other or name something we cannot express.  `names` lists the keys."""

    names: tuple[str, ...]


class SourceError(InputError):
    """A file, or text, from which no layout can be read.  `source` names it."""

    source: str


class NoLayoutError(SourceError):
    """A file that says nothing of a layout, nor anything near it, and so may well be about something else."""


class PipelineSplitError(InputError):
    """Layers that stages cannot hold exactly once.

    `layers`, `stages` and `virtual` are what was asked; `dropped_by_floor` is how many a silent division would lose;
    `offered_split` (per stage) and `offered_chunks` (per chunk, in model order) add up, None where there is no way.
    """

    layers: int
    stages: int
    virtual: int
    dropped_by_floor: int
    offered_split: list[int] | None
    offered_chunks: list[int] | None


class ClusterError(InputError):
    """Nodes or hosts that cannot be read, or have fewer devices than the job has ranks.  `text` is what was given."""

    text: str


class CreationOrderError(InputError):
    """Ranks that create groups by different calls: they would wait for each other, or reduce into each other's groups.

    `first_divergent_call` is the number of the call, from 0; `odd_ranks` are those who do something else there than
    the others (or than the plan says), `expected` and `given` what was due and what the first of them does (None for
    no call); `canonical_plan` is an order of creation in which every rank can make all of these groups.
    """

    first_divergent_call: int
    odd_ranks: list[int]
    expected: list[object] | None
    given: list[object] | None
    canonical_plan: list[list[int]]


class IssueOrderError(InputError):
    """Ranks that use the groups they share in different orders, so that each waits for the other.

    `conflicting_rank_pairs` are those pairs; `stuck` is rank → what it waits in (name and members), for every rank that
    would wait for ever.
    """

    conflicting_rank_pairs: list[list[int]]
    stuck: dict[int, tuple[str, list[int]]]


class JobError(RankatlasError, RuntimeError):
    """Something about the running job: none is initialised, or another one uses the same store."""


class LaunchError(JobError):
    """What launchers said about this process is missing, damaged or contradictory.

    `about` is what it concerns ("rank", "world_size", ...) or None; `sources` are launchers → variables → values.
    """

    about: str | None
    sources: dict[str, dict[str, str]]


class LayoutMismatch(JobError):
    """Ranks are about to build different layouts.

    `odd_ranks` differ from the most; `camps` groups them by what they said: `ranks`, `hosts`, and `fields`, name →
    [what the most say, what these say].  `rank` is the rank that raised.
    """

    rank: int
    odd_ranks: list[int]
    camps: list[dict[str, object]]


class RankSilent(JobError, TimeoutError):
    """Ranks that did not come, or fell silent, within the time.  `ranks` names them."""

    ranks: list[int]


class AuditError(JobError):
    """Tensors, batches or random states that are not what their layout says.  `findings` are plain dicts."""

    findings: list[dict[str, object]]


class ProbeError(JobError):
    """A probe that could not be finished: `ranks` died, hang or have not come, `during` is what was going on."""

    ranks: list[int]
    during: str


class GroupMismatch(JobError):
    """Groups of a running job that are not those of the layout it should have.

    `kind` is their description, `given` and `expected` the first group that differs (None where there is none), `ranks`
    who is concerned, `others` the descriptions of the other kinds that are wrong.
    """

    kind: str
    given: list[int] | None
    expected: list[int] | None
    ranks: list[int]
    others: list[str]


class HandleError(JobError, KeyError):
    """No communicator of that name on this rank.  `name` was asked for, `known` are the names there are."""

    name: object
    known: tuple[str, ...]


def unknown_axis(name: object, known: tuple[str, ...], what: str = "mesh", instead: str = "") -> UnknownAxisError:
    """The error for an axis that is not there, with near names.  Cost: O(known)."""
    from difflib import get_close_matches

    plain = {axis.lower(): axis for axis in known}
    asked = name.lower() if isinstance(name, str) and len(name) <= _SHOWN else ""
    close = get_close_matches(asked, plain, n=3, cutoff=0.5)
    close.sort(key=lambda axis: sorted(axis) != sorted(asked))  # swapped letters first
    near = tuple(plain[axis] for axis in close)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else instead
    listed = ", ".join(map(repr, known))
    label = "axis is" if len(known) == 1 else "axes are"
    return UnknownAxisError(
        f"{what} has no axis {shown(name)}; its {label} {listed}.{hint}", name=name, known=known, near=near
    )
