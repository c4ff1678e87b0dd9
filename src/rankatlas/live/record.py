"""What really runs: every group of every process, gathered once and written down."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rankatlas.core import Atlas, Mesh, parse_layout
from rankatlas.core.description import layout_from_dict
from rankatlas.errors import DescriptionError, GroupMismatch, JobError, RankSilent
from rankatlas.live.infer import infer_layout
from rankatlas.live.jobs import Store, current_job, identity
from rankatlas.live.kinds import Kind, axis_name, known_groups, name_kinds, sort_kinds

FORMAT = "rankatlas.record"
VERSION = 1
_PREFIX = "rankatlas/record"


class LayoutRecord:
    """What a job was made of: its ranks (host, local rank, device), its kinds of groups, and its layout.

    `layout` is the expected one, or the one inferred from the groups (`inferred` says which), or None where none
    explains them; `unexplained` names the kinds that match nothing in it.
    """

    __slots__ = ("framework", "inferred", "kinds", "layout", "ranks", "unexplained", "world_size")

    def __init__(
        self,
        world_size: int,
        ranks: list[dict[str, Any]],
        kinds: list[Kind],
        layout: Mesh | Atlas | None,
        *,
        inferred: bool,
        unexplained: list[str],
        framework: str,
    ) -> None:
        self.world_size = world_size
        self.ranks = ranks
        self.kinds = kinds
        self.layout = layout
        self.inferred = inferred
        self.unexplained = unexplained
        self.framework = framework

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, see `from_dict`."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "framework": self.framework,
            "world_size": self.world_size,
            "layout": None if self.layout is None else self.layout.to_dict(),
            "inferred": self.inferred,
            "unexplained": self.unexplained,
            "ranks": self.ranks,
            "kinds": [kind.to_dict() for kind in self.kinds],
        }

    @classmethod
    def from_dict(cls, data: object) -> LayoutRecord:
        """The record of `to_dict`.  Raises DescriptionError when the data is none."""
        fields: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
        if (fields.get("format"), fields.get("version")) != (FORMAT, VERSION):
            raise DescriptionError(f"this is no {FORMAT} of version {VERSION}")
        try:
            kinds = [
                Kind(str(one["description"]), _tables(one["groups"]), one["axes"], list(one["disagreements"]))
                for one in fields["kinds"]
            ]
            ranks = [{**one, "rank": int(one["rank"]), "host": str(one["host"])} for one in fields["ranks"]]
            layout = None if fields["layout"] is None else layout_from_dict(fields["layout"])
            return cls(
                int(fields["world_size"]),
                ranks,
                kinds,
                layout,
                inferred=bool(fields["inferred"]),
                unexplained=list(map(str, fields["unexplained"])),
                framework=str(fields["framework"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DescriptionError):
                raise
            raise DescriptionError(f"this record is damaged: {error!r}") from None

    def __repr__(self) -> str:
        return f"LayoutRecord({self.world_size} ranks, {len(self.kinds)} kinds of groups, layout={self.layout!r})"


def record(
    path: str | os.PathLike[str] | None = None,
    expect: Mesh | Atlas | str | None = None,
    *,
    timeout: float = 60,
    engine: str | None = None,
) -> LayoutRecord:
    """Gather every process group of the job; rank 0 writes them to `path` as JSON, whole or not at all.

    `expect` is the layout the job should have; without it the layout is inferred from the groups.  Every rank calls
    this, at the same point; it makes no group, draws no random number and runs no collective.
    Cost: about four messages per rank; on rank 0 O(groups).

    Raises RankSilent (a rank did not come within `timeout` seconds), JobError.
    """
    expected = parse_layout(expect) if isinstance(expect, str) else expect
    job = current_job(engine)
    own = {
        "rank": job.rank,
        "host": socket.gethostname(),
        "local_rank": _local_rank(),
        "device": job.device(),
        "groups": job.groups(),
    }
    gathered = _gather(job.store(), job.rank, job.world_size, own, timeout)
    kinds = sort_kinds({one["rank"]: one["groups"] for one in gathered})
    ranks = [{key: one[key] for key in ("rank", "host", "local_rank", "device")} for one in gathered]
    made = _made(len(gathered), ranks, kinds, expected, job.name)
    if path is not None and job.rank == 0:
        _write(made, os.fspath(path))
    return made


def verify(
    expect: Mesh | Atlas | str, *, axes: Sequence[str] = (), timeout: float = 60, engine: str | None = None
) -> LayoutRecord:
    """Hold every group of the job against the layout it should have; the record of it when all is right.

    Every kind must be groups of `expect`, the order of members included.  `axes` names what must exist ("tp",
    "dp+cp"), so that a group nobody made is a fault as well.

    Raises GroupMismatch on every rank: the kind, its first wrong group, what was expected, the ranks concerned.
    Otherwise as `record`.
    """
    made = record(expect=expect, timeout=timeout, engine=engine)
    layout = made.layout
    if layout is not None and layout.world_size != made.world_size:
        raise GroupMismatch(
            f"the job has {made.world_size} ranks, {layout} has {layout.world_size}",
            kind="world",
            given=None,
            expected=None,
            ranks=[],
        )
    for kind in made.kinds:
        if kind.disagreements:
            raise GroupMismatch(
                f"{kind.description}: ranks {kind.disagreements} see other members than the rest of their group",
                kind=kind.description,
                given=None,
                expected=None,
                ranks=kind.disagreements,
            )
        if kind.description in made.unexplained and layout is not None:
            raise _mismatch(kind, layout)
    there = {kind.axes for kind in made.kinds}
    for name in axes:
        if name not in there:
            raise GroupMismatch(
                f"no groups over {name} were made; there are {', '.join(sorted(filter(None, there))) or 'none'}",
                kind=name,
                given=None,
                expected=None,
                ranks=[],
            )
    return made


def _made(
    world_size: int, ranks: list[dict[str, Any]], kinds: list[Kind], expected: Mesh | Atlas | None, framework: str
) -> LayoutRecord:
    layout = expected
    if layout is None:
        layout = infer_layout(kinds, world_size).layout
    if layout is not None:
        name_kinds(kinds, layout)
    singles = [[rank] for rank in range(world_size)]
    unexplained = [kind.description for kind in kinds if kind.axes is None and kind.groups != singles]
    return LayoutRecord(
        world_size, ranks, kinds, layout, inferred=expected is None, unexplained=unexplained, framework=framework
    )


def _mismatch(kind: Kind, layout: Mesh | Atlas) -> GroupMismatch:
    """The error for a kind that is nothing in the layout: held against the family it shares most groups with."""
    given = [tuple(ranks) for ranks in kind.groups]
    families = known_groups(layout)
    name, table = max(
        ((name, table) for table, names in families.items() for name in names),
        key=lambda one: _likeness(given, one[1], kind, one[0]),
    )
    wrong = next((place for place, ranks in enumerate(given) if place >= len(table) or ranks != table[place]), 0)
    expected = list(table[wrong]) if wrong < len(table) else None
    concerned = sorted({*kind.groups[wrong], *(expected or [])})
    same = expected is not None and sorted(expected) == sorted(given[wrong])
    return GroupMismatch(
        f"{kind.description} is no set of groups of {layout}: nearest is {name}, whose group {wrong} is {expected},"
        f" and {'in another order ' if same else ''}{list(given[wrong])} was made (ranks {concerned})",
        kind=kind.description,
        given=list(given[wrong]),
        expected=expected,
        ranks=concerned,
    )


def _likeness(
    given: list[tuple[int, ...]], table: tuple[tuple[int, ...], ...], kind: Kind, name: str
) -> tuple[bool, int, int]:
    shared = len(set(given) & set(table))
    members = len({tuple(sorted(ranks)) for ranks in given} & set(table))
    return axis_name(kind.description) == name, members + shared, -abs(len(given) - len(table))


def _gather(
    store: Store | None, rank: int, world_size: int, own: dict[str, Any], timeout: float
) -> list[dict[str, Any]]:
    """What every rank said, on every rank: rank 0 reads all, and publishes them together."""
    if store is None:
        return [own]
    round_ = f"{_PREFIX}/{store.count(f'{_PREFIX}/calls/{rank}/{identity()}')}"
    started = time.monotonic()
    store.set(f"{round_}/rank/{rank}", json.dumps(own).encode())
    if rank == 0:
        keys = [f"{round_}/rank/{other}" for other in range(world_size)]
        missing = [] if store.wait(keys, timeout) else [one for one, key in enumerate(keys) if not store.has(key)]
        said = [] if missing else [json.loads(text) for text in store.get_all(keys)]
        store.set(f"{round_}/all", json.dumps({"missing": missing, "said": said}).encode())
    else:
        if not store.wait([f"{round_}/all"], timeout + 3):
            raise RankSilent(f"rank 0 gathered nothing within {timeout:g} s", ranks=[0])
        found = json.loads(store.get(f"{round_}/all"))
        missing, said = found["missing"], found["said"]
    if missing:
        waited = time.monotonic() - started
        raise RankSilent(f"ranks {missing} did not come to the record within {waited:.0f} s", ranks=missing)
    return list(said)


def _local_rank() -> int | None:
    """The local rank the launcher gave, where it gave one."""
    for name in ("LOCAL_RANK", "PADDLE_RANK_IN_NODE", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"):
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return None


def _tables(groups: Any) -> list[list[int]]:
    return [[int(rank) for rank in ranks] for ranks in groups]


def _write(made: LayoutRecord, path: str) -> None:
    draft = f"{path}.part-{os.getpid()}"
    try:
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(made.to_dict(), file)
            file.write("\n")
        os.replace(draft, path)
    except OSError as error:
        raise JobError(f"the record could not be written to {path!r}: {error.strerror}") from None
    finally:
        if os.path.exists(draft):
            os.unlink(draft)
