"""Random states in checkpoints: keyed by stream and coordinates, restored under another layout by a named policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any

from rankatlas.core import Mesh, Ranks
from rankatlas.errors import InputError, shown
from rankatlas.seeding.checkpoint_files import FORMAT, POLICIES, VERSION, check_format, refusal
from rankatlas.seeding.plan import SeedPlan, Stream
from rankatlas.seeding.tracker import RngStateTracker

_SHOWN = 8
_MOST_RANKS = 1000  # ranks an error lists


def writers(stream: Stream) -> Ranks:
    """The ranks that must save the state of `stream`: one, the first, of each set that shares it.  Cost: O(axes).

    >>> from rankatlas import Mesh
    >>> writers(SeedPlan(1, Mesh(dp=2, tp=2)).stream("dropout", same="tp", differ="dp"))
    [0, 2]
    """
    mesh = stream.mesh
    return mesh.select(**{axis: 0 for axis in mesh.axes if axis not in stream.differ})


def save_states(tracker: RngStateTracker, streams: Iterable[Stream], rank: int) -> dict[str, Any]:
    """What `rank` contributes to a checkpoint: the state of every stream that it is the writer of, as plain data.

    Raises RandomStateError when the tracker has no such stream, or a backend cannot give its state out.
    """
    kept = tracker.state_dict()
    streams = list(streams)
    for stream in streams:
        stream.mesh.coordinate(rank)  # a rank that is none would write nothing, and nobody would know
    found: dict[str, Any] = {}
    for stream in streams:
        if stream.name not in kept["streams"]:
            raise refusal(f"the tracker has no stream {shown(stream.name)} to save; add it with its seed first")
        if rank in writers(stream):
            found[stream.name] = {"key": stream.key(rank), **kept["streams"][stream.name]}
    return {"backends": kept["backends"], "streams": found}


def join_states(plan: SeedPlan, streams: Iterable[Stream], parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """One checkpoint of what all ranks contributed, each distinct state exactly once.

    Raises RandomStateError when a state is missing or stands twice, naming the ranks that should have written it.
    """
    streams = list(streams)
    joined: dict[str, dict[str, Any]] = {stream.name: {} for stream in streams}
    backends: list[str] = []
    places: dict[str, set[str]] = {}
    for stream in streams:
        if stream.mesh != plan.mesh:
            raise refusal(f"stream {shown(stream.name)} lies on {stream.mesh}, the plan on {plan.mesh}")
        places[stream.name] = {_text(stream.key(rank)) for rank in writers(stream)}
    for part in _whole_parts(parts):
        if backends and part["backends"] != backends:
            raise refusal(f"some ranks keep {', '.join(backends)}, others {', '.join(part['backends'])}")
        backends = list(part["backends"])
        for name, entry in part["streams"].items():
            key = _text(entry["key"])
            if name not in joined:
                raise refusal(f"a rank saved stream {shown(name)}, which is not among those to join")
            if key not in places[name]:
                raise refusal(f"a rank saved {shown(name)} at {key or 'every rank'}, which is no place of {plan.mesh}")
            if key in joined[name]:
                raise refusal(f"the state of {shown(name)} at {key or 'every rank'} was saved twice")
            joined[name][key] = {"seed": entry["seed"], "states": entry["states"]}
    for stream in streams:
        absent = [rank for rank in writers(stream) if _text(stream.key(rank)) not in joined[stream.name]]
        if absent:
            raise refusal(f"no state of {shown(stream.name)} from {_ranks(absent)}, which must write it", ranks=absent)
    return {
        "format": FORMAT,
        "version": VERSION,
        "mesh": plan.mesh.to_dict(),
        "fingerprint": plan.mesh.fingerprint(),
        "base_seed": plan.base_seed,
        "backends": backends,
        "streams": {stream.name: {"axes": sorted(stream.differ), "states": joined[stream.name]} for stream in streams},
    }


def _whole_parts(parts: object) -> list[Mapping[str, Any]]:
    """What the ranks contributed, each of the form of `save_states`.  Parts come from elsewhere, so that is checked."""
    if not isinstance(parts, Iterable):
        raise refusal("the parts to join are what save_states gave on every rank, in a list")
    found = list(parts)
    for place, part in enumerate(found):
        whole = (
            isinstance(part, Mapping)
            and isinstance(part.get("backends"), list)
            and all(isinstance(name, str) for name in part["backends"])
            and isinstance(part.get("streams"), Mapping)
            and all(
                isinstance(entry, Mapping)
                and {"key", "seed", "states"} <= set(entry)
                and isinstance(entry["key"], list)
                and all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in entry["key"])
                for entry in part["streams"].values()
            )
        )
        if not whole:
            raise refusal(f"part {place} of the random states to join is damaged: {shown(part)}")
    return found


def load_states(
    saved: Mapping[str, Any],
    tracker: RngStateTracker,
    streams: Iterable[Stream],
    rank: int,
    policy: str = "error",
) -> list[str]:
    """Give `tracker` the streams that `rank` finds in a checkpoint, also one of another layout; returns what was done.

    Ranks of a grown axis have no state.  `policy` says what then happens: "error" refuses, "reset-all" seeds every
    stream anew on every rank, "keep-old-and-seed-new" restores the ranks that have a state and seeds the others from
    their streams.  The decision follows from the layouts alone, so all ranks take the same one.

    Raises RandomStateError: a key lacks an axis the stream depends on (with the ranks that would restore a wrong
    stream), ranks without a state, unknown format, policy or stream.  Then the tracker is as it was.
    """
    streams = list(streams)
    check_format(saved, policy)
    done: list[str] = []
    fresh: dict[str, bool] = {}
    for stream in streams:
        entry = saved["streams"].get(stream.name)
        if entry is None:
            raise refusal(f"the checkpoint has no stream {shown(stream.name)}; it has {', '.join(saved['streams'])}")
        check_key(stream, entry["axes"])
        _check_no_extra_axes(stream, entry["axes"], saved)
        count, without = _without_state(stream, entry)
        if without and policy == "error":
            raise refusal(
                f"{_ranks(without, count)} have no saved state of {shown(stream.name)}: the layout grew."
                f"  Name a policy: {' or '.join(POLICIES[1:])}",
                ranks=without,
            )
        fresh[stream.name] = policy == "reset-all" or _found(stream, rank, entry) is None
        if policy == "reset-all":
            done.append(f"{stream.name}: every rank seeded anew")
        elif without:
            done.append(f"{stream.name}: {_ranks(without, count)} seeded anew, the others restored")
        else:
            done.append(f"{stream.name}: every rank restored")
    _install(saved, tracker, streams, rank, fresh)
    return done


def check_key(stream: Stream, saved_axes: Iterable[str]) -> None:
    """Refuse states that were saved under fewer axes than the stream depends on.

    Raises RandomStateError naming the axes and the ranks that would restore another rank's stream.

    >>> from rankatlas import Mesh
    >>> stream = SeedPlan(1, Mesh(pp=2, dp=1, tp=2)).stream("default", differ=("pp", "dp", "tp"))
    >>> check_key(stream, ["dp"])
    Traceback (most recent call last):
    rankatlas.errors.RandomStateError: states of 'default' are keyed by dp, but the stream depends on pp, tp as well: \
ranks 1, 2, 3 would restore another rank's stream
    """
    saved_axes = list(saved_axes)
    mesh = stream.mesh
    lacking = tuple(
        axis for axis in mesh.axes if axis in stream.differ and axis not in saved_axes and mesh.size(axis) > 1
    )
    if lacking:
        right = mesh.select(**dict.fromkeys(lacking, 0))
        wrong = list(islice((rank for rank in mesh.select() if rank not in right), _MOST_RANKS))
        raise refusal(
            f"states of {shown(stream.name)} are keyed by {', '.join(saved_axes) or 'nothing'}, but the stream"
            f" depends on {', '.join(lacking)} as well: {_ranks(wrong, mesh.world_size - len(right))} would restore"
            " another rank's stream",
            axes=lacking,
            ranks=wrong,
        )


def _check_no_extra_axes(stream: Stream, saved_axes: list[str], saved: Mapping[str, Any]) -> None:
    """Refuse states that differ along an axis along which the stream is the same now: which one counts is not known."""
    before = Mesh.from_dict(saved["mesh"])
    sizes = dict(zip(before.axes, before.sizes))
    extra = [axis for axis in saved_axes if axis not in stream.differ and sizes.get(axis, 1) > 1]
    if extra:
        raise refusal(
            f"states of {shown(stream.name)} were saved one per place along {', '.join(extra)}, along which the stream"
            " is the same here: which of them to take is not said",
            axes=tuple(extra),
        )


def _without_state(stream: Stream, entry: Mapping[str, Any]) -> tuple[int, list[int]]:
    """How many ranks have no saved state, and the first of them.  Cost: O(different states)."""
    groups = stream.mesh.groups(*stream.same)
    lost = [group for group in groups if _found(stream, group.ranks[0], entry) is None]
    return len(lost) * groups.size, sorted(islice(chain.from_iterable(lost), _MOST_RANKS))


def _found(stream: Stream, rank: int, entry: Mapping[str, Any]) -> Any:
    """The saved state of `rank`: an axis that one of the two layouts lacks has size 1 in the other, so place 0."""
    places = dict(stream.key(rank))
    return entry["states"].get(_text((axis, places.get(axis, 0)) for axis in entry["axes"]))


def _install(
    saved: Mapping[str, Any], tracker: RngStateTracker, streams: list[Stream], rank: int, fresh: Mapping[str, bool]
) -> None:
    kept = {stream.name: stream for stream in streams}
    restored = {name: _found(kept[name], rank, saved["streams"][name]) for name in kept if not fresh[name]}
    seeds = {name: kept[name].seed(rank) if fresh[name] else restored[name]["seed"] for name in kept}
    states = {name: entry["states"] for name, entry in restored.items()}
    # Tried on a tracker of its own first, so that a checkpoint that does not fit leaves this one as it was.
    try:
        for receiver in (RngStateTracker(tracker.keepers), tracker):
            receiver.restart(seeds)
            if states:
                receiver.load_packed(states, saved["backends"])
    except InputError as error:
        raise refusal(f"this checkpoint of random states cannot be taken: {error}") from None


def _text(key: Iterable[Iterable[Any]]) -> str:
    return ",".join(f"{axis}={place}" for axis, place in key)


def _ranks(ranks: list[int], count: int | None = None) -> str:
    count = len(ranks) if count is None else count
    listed = ", ".join(map(str, ranks[:_SHOWN])) + (f", ... ({count} in all)" if count > _SHOWN else "")
    return f"rank {listed}" if count == 1 else f"ranks {listed}"
