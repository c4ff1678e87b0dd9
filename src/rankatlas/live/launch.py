"""Who this process is, by the word of whoever started it: launchers' variables, and Ascend's rank table.

Where each meaning comes from; with * it was also seen by running that launcher:

- torchrun: `distributed/run.py`, "Environment Variables", torch 2.13 *; plain variables: `distributed/rendezvous.py`
- Paddle: `distributed/launch/controllers/collective.py` and `distributed/parallel.py`, paddlepaddle 3.3 *
- Ascend: hiascend.com CANN 9.0, `envref_07_0047` to `_0049`, `hcclug_000067` (rank table 1.0)
- Open MPI: docs.open-mpi.org v5.0, "Environment variables set for MPI applications", 5.0.11 *; NODE_RANK is no node
- PMI: MPICH `src/pm/hydra/proxy/pmip_cb.c`, Hydra 5.0.2 and Intel MPI 2021.18 *; PMI_LOCAL_*: Slurm's `cray_shasta`
- Slurm: srun(1), "OUTPUT ENVIRONMENT VARIABLES"; `src/common/env.c`.  A batch shell, too, has SLURM_PROCID=0 and the
  SLURM_NTASKS of its allocation; only a task has the step of an srun.
- PMIx: PMIX_RANK stands beside Open MPI's *, or Slurm's with `--mpi=pmix`; no variable tells the size.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankatlas.errors import LaunchError, shown

_NUMBERS = ("rank", "world_size", "local_rank", "local_world_size", "node", "node_count", "second_rank")
_TABLE = "RANK_TABLE_FILE"
RankTable = str | os.PathLike[str] | Mapping[str, Any]  # a path, or what is in the file
_LAST_STEP = 0xFFFFFFF0  # SLURM_MAX_NORMAL_STEP_ID; above it are batch, interactive and extern steps


@dataclass(frozen=True, slots=True)
class Launch:
    """Who this process is: `rank` of `world_size`, `local_rank` of `local_world_size`, `node` of `node_count`.

    What nobody said is None.  `host` is this machine's name, `source` the launcher whose word counts, and `seen` every
    variable that was read, with its value.
    """

    rank: int
    world_size: int
    local_rank: int | None
    local_world_size: int | None
    node: int | None
    node_count: int | None
    host: str
    source: str
    seen: dict[str, str] = field(hash=False)

    @classmethod
    def detect(cls, environ: Mapping[str, str] | None = None, *, rank_table: RankTable | None = None) -> Launch:
        """Read what the launcher said in `environ` (default `os.environ`); no framework is imported.

        `rank_table`, a path or what is in the file, stands in for RANK_TABLE_FILE.  Where several speak, the innermost
        counts, in the order of VARIABLES; the others must say the same, or be what started it on every node (srun
        torchrun).  Local rank and node, if it left them open, come from those that say the same rank and world size.
        Cost: O(variables); O(world) where Paddle's endpoints or a rank table list it.

        Raises LaunchError: nothing said, or half of it, no integers, ranks outside their world, contradictions.

        >>> launch = Launch.detect({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8"})
        >>> launch.rank, launch.world_size, launch.local_rank, launch.source
        (5, 8, None, 'Open MPI')
        >>> Launch.detect({"RANK": "5", "WORLD_SIZE": "4"})  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        LaunchError: plain variables: RANK=5, but WORLD_SIZE=4 allows ranks up to 3. ...
        """
        if not isinstance(environ, (Mapping, type(None))):
            raise LaunchError(f"environ is a mapping of variables, not {shown(environ)}", about=None, sources={})
        known: dict[str, Any] = dict(os.environ if environ is None else environ)
        if rank_table is not None:
            known[_TABLE] = rank_table
        known.pop("=", None)  # no variable, as in VARIABLES
        heard = _everything_said(known)
        chosen = next((said for said in heard if {"rank", "world_size"} <= said.values.keys()), None)
        if chosen is None:
            raise _too_little(heard, known)
        for said in heard:
            said.check()
            if said is not chosen and not _started_the_launcher(chosen, said):
                _agree(chosen, said)
        seen = {name: value for said in heard for name, value in said.seen.items()}
        numbers: dict[str, Any] = {name: chosen.values.get(name) for name in _NUMBERS[:6]}
        return cls(**numbers, host=socket.gethostname(), source=chosen.name, seen=seen)


class _Said:
    """What one launcher said: the variables `seen`, the numbers in `values`, and in `told` the words they came in."""

    def __init__(self, name: str, environ: Mapping[str, Any]) -> None:
        self.name, self.environ = name, environ
        self.seen: dict[str, str] = {}
        self.values: dict[str, int] = {}
        self.told: dict[str, str] = {}
        self.text(_MARKS.get(name, "="))
        for about, names in zip(_NUMBERS, VARIABLES[name].split()):
            if found := self.text(names):
                self.put(about, self.number(*found, about), "=".join(found))
        if name in _MORE:
            _MORE[name](self)

    def text(self, names: str) -> tuple[str, str] | None:
        """The first of these variables that is set, and its value."""
        for name in names.split("|"):
            if name in self.environ:
                self.seen[name] = str(self.environ[name])
                return name, self.seen[name]
        return None

    def put(self, about: str, value: int, told: str) -> None:
        self.values[about] = value
        self.told[about] = told

    def number(self, name: str, text: str, about: str) -> int:
        value, least = _whole(text), int(about.endswith(("size", "count")))
        if value is None or value < least:
            given = f"{name} is {text[:80]!r}" if text.strip() else f"{name} is set but empty"
            wanted = f"it is the {_words(about)} of {self.name}, a whole number of at least {least}"
            raise self.error(f"{given}; {wanted}. Set it so, or unset it", about)
        return value

    def check(self) -> None:
        """Places are within their sizes, a node has no more processes than there are, and a rank is one rank."""
        also = ("local_rank", "world_size"), ("local_world_size", "world_size"), ("node_count", "world_size")
        for place, size in (*zip(_NUMBERS[0:6:2], _NUMBERS[1:6:2]), *also):
            highest = self.values.get(size, 1 << 64) - (place not in ("local_world_size", "node_count"))
            if self.values.get(place, 0) > highest:
                raise self.wrong(f"{self.told[size]} allows {_words(place)}s up to {highest}", place)
        if self.values.get("second_rank", self.values.get("rank")) != self.values.get("rank"):
            raise self.wrong(f"{self.told['second_rank']} must be the same rank", "rank")

    def wrong(self, other: str, about: str) -> LaunchError:
        told = self.told.get(about, f"no {_words(about)}")
        return self.error(f"{self.name}: {told}, but {other}. Correct one of them, or unset a stale one", about)

    def error(self, message: str, about: str | None, *others: _Said) -> LaunchError:
        return LaunchError(message, about=about, sources={said.name: dict(said.seen) for said in (self, *others)})


def _of_a_step(environ: Mapping[str, Any]) -> bool:
    """Whether srun started this process: the shells of an allocation are task 0, of no step or a special one."""
    step = _whole(str(environ.get("SLURM_STEP_ID", environ.get("SLURM_STEPID", ""))))
    return (_whole(str(environ.get("SLURM_PROCID", ""))) or 0) > 0 if step is None else 0 <= step < _LAST_STEP


def _tasks_on_node(said: _Said) -> None:
    """Slurm's "2(x3),1": three nodes of two tasks, then a node of one."""
    found, node = said.text("SLURM_STEP_TASKS_PER_NODE|SLURM_TASKS_PER_NODE"), said.values.get("node")
    if found and node is not None:
        for run in found[1].split(","):
            tasks, repeated, times = run.rstrip(")").partition("(x")
            node -= said.number(found[0], times if repeated else "1", "repetition count")
            if node < 0:
                return said.put("local_world_size", said.number(found[0], tasks, "local_world_size"), "=".join(found))


def _endpoints(said: _Said) -> None:
    """Paddle's endpoints stand in order of rank; their hosts, in order, are the nodes."""
    found, own = said.text("PADDLE_TRAINER_ENDPOINTS"), said.text("PADDLE_CURRENT_ENDPOINT")
    rank, world_size = said.values.get("rank"), said.values.get("world_size")
    if not found or rank is None or world_size is None or rank >= world_size:
        return
    endpoints = found[1].split(",")
    if len(endpoints) != world_size:
        raise said.wrong(f"{found[0]} lists {len(endpoints)}", "world_size")
    if own and own[1] != endpoints[rank]:
        raise said.wrong(f"{'='.join(own)}, while {found[0]} has {endpoints[rank]} at this rank", "rank")
    hosts = list(dict.fromkeys(endpoint.rpartition(":")[0] for endpoint in endpoints))
    if said.values.get("node_count", len(hosts)) == len(hosts):  # else nodes share a host
        said.put("node", hosts.index(endpoints[rank].rpartition(":")[0]), found[0])
        said.put("node_count", len(hosts), found[0])


def _rank_table(said: _Said) -> None:
    """Ascend's table: a rank is a device, a node a server; on a single server DEVICE_ID, too, tells the rank."""
    source, own = said.environ.get(_TABLE), said.text("DEVICE_ID")
    if source is None:
        return
    path = said.seen[_TABLE] = "given as an argument" if isinstance(source, Mapping) else str(source)
    try:
        table = source if isinstance(source, Mapping) else json.loads(Path(source).read_text("utf-8"))
        servers = [[int(str(one["rank_id"])) for one in server["device"]] for server in table["server_list"]]
        devices = {str(one["device_id"]): int(str(one["rank_id"])) for one in table["server_list"][0]["device"]}
        claims = [str(table.get("status", "completed")), str(table.get("server_count", len(servers)))]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        wanted = "server_list → device → rank_id, device_id"
        raise said.error(f"rank table {path} cannot be read as {wanted}: {error!r:.200}. Correct it", None) from None
    times = Counter(rank for server in servers for rank in server)
    count = times.total()
    if claims != ["completed", str(len(servers))]:
        wrong = f"status {claims[0]!r:.80}, server_count {claims[1]!r:.80}, {len(servers)} servers listed"
        raise said.error(f"rank table {path}: {wrong}. Wait until it is completed, or correct it", "node_count")
    if not count or any(times[rank] != 1 for rank in range(count)):
        missing = [rank for rank in range(count) if rank not in times]
        repeated = [rank for rank in times if times[rank] > 1]
        wrong = f"{count} devices, rank_ids {missing[:8]} are missing, {repeated[:8]} repeated"
        raise said.error(f"rank table {path}: {wrong}. Number the devices from 0, each once", "rank")
    if said.values.get("world_size", count) != count:
        raise said.wrong(f"rank table {path} lists {count} devices", "world_size")
    said.put("world_size", count, f"{count} devices listed")
    said.put("node_count", len(servers), f"{len(servers)} servers listed in rank table {path}")
    if own and "rank" not in said.values and len(servers) == 1 and own[1] in devices:
        said.put("rank", devices[own[1]], "=".join(own))
    for node, server in enumerate(servers):
        if (rank := said.values.get("rank")) in server:
            for about, value in zip(_NUMBERS[2:5], (sorted(server).index(rank), len(server), node)):
                said.put(about, value, f"{_words(about)} {value} there")


# Innermost first, variables in the order of _NUMBERS; "=" is none, of "A|B" the first that is set counts.
VARIABLES = {
    "torchrun": "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE",
    "Paddle": "PADDLE_TRAINER_ID PADDLE_TRAINERS_NUM PADDLE_RANK_IN_NODE PADDLE_LOCAL_SIZE = PADDLE_NNODES",
    "Ascend": "RANK_ID RANK_SIZE",
    "plain variables": "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE",
    "Open MPI": "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE"
    " = = PMIX_RANK",
    "PMI": "PMI_RANK PMI_SIZE MPI_LOCALRANKID|PMI_LOCAL_RANK MPI_LOCALNRANKS|PMI_LOCAL_SIZE",
    "Slurm": "SLURM_PROCID SLURM_STEP_NUM_TASKS|SLURM_NTASKS SLURM_LOCALID ="
    " SLURM_NODEID SLURM_STEP_NUM_NODES|SLURM_NNODES PMIX_RANK",
    "PMIx": "PMIX_RANK =",
}
_MARKS = {"torchrun": "TORCHELASTIC_RUN_ID", "Ascend": _TABLE, "Slurm": "SLURM_STEP_ID|SLURM_STEPID"}  # also known by
_SPEAKS = {"torchrun": lambda environ: "TORCHELASTIC_RUN_ID" in environ, "Slurm": _of_a_step}  # else always
_MORE = {"Paddle": _endpoints, "Ascend": _rank_table, "Slurm": _tasks_on_node}  # what one variable alone does not say
_HIDDEN_BY = {"Slurm": "Open MPI"}  # mpirun starts its daemons by srun, and not where it is itself
_NUMBERING_ANEW = ("torchrun", "Paddle")  # their ranks need not follow those of the tasks that started them


def _everything_said(environ: Mapping[str, Any]) -> list[_Said]:
    heard: list[_Said] = []
    for name, variables in VARIABLES.items():
        own = "|".join(variables.split()[:2]).split("|")
        if any(one in environ for one in (*own, *_MARKS.get(name, "=").split("|"))):
            taken = any(said.name == _HIDDEN_BY.get(name) or said.seen.keys() & own for said in heard)
            if not taken and (name not in _SPEAKS or _SPEAKS[name](environ)):
                heard.append(_Said(name, environ))
    return heard


def _started_the_launcher(chosen: _Said, other: _Said) -> bool:
    """Whether the tasks of `other` can have started the launcher of `chosen`, once on every node."""
    tasks, world_size = other.values.get("world_size"), chosen.values["world_size"]
    nodes, local = chosen.values.get("node_count"), chosen.values.get("local_world_size")
    if other.name not in list(VARIABLES)[list(VARIABLES).index(chosen.name) :] or other.name == "Ascend":
        return False
    if tasks is None or (tasks == world_size and chosen.name not in _NUMBERING_ANEW):
        return tasks is None
    if nodes is not None or local is None:
        place = chosen.values["rank"] * tasks // world_size
        return tasks == nodes if nodes else world_size % tasks == 0 and other.values.get("rank", place) == place
    return local == world_size if tasks == 1 else tasks - 1 + local <= world_size  # nodes may be uneven


def _agree(chosen: _Said, other: _Said) -> None:
    """Both speak of one rank in one world; what `chosen` left open is taken from `other`, never half a pair."""
    for about in ("world_size", "rank"):
        if other.values.get(about, chosen.values[about]) != chosen.values[about]:
            claims = [f"  {said.name}: {', '.join(said.told.values())}" for said in (chosen, other)]
            title = f"{chosen.name} and {other.name} disagree about the {_words(about)}:"
            remedy = "Start it with one of them, or give detect() an environ without the other's stale variables."
            raise chosen.error("\n".join((title, *claims, remedy)), about, other)
    for pair in (_NUMBERS[2:4], _NUMBERS[4:6]):
        if {"rank", "world_size"} <= other.values.keys() and not chosen.values.keys() & pair:
            chosen.values.update({name: other.values[name] for name in pair if name in other.values})


def _too_little(heard: list[_Said], environ: Mapping[str, Any]) -> LaunchError:
    """The error for half an answer, or none."""
    if heard:
        said, names = heard[0], VARIABLES[heard[0].name].split()
        missing = [i for i in (0, 1) if _NUMBERS[i] not in said.values]
        lacks = " and ".join(f"{_words(_NUMBERS[i])} ({names[i]})" for i in missing).replace(" (=)", " in any variable")
        claim = f"{said.name}: {', '.join(said.told.values()) or ', '.join(said.seen)}, but no {lacks}"
        return said.error(f"{claim}. Set what is missing, or RANK and WORLD_SIZE", _NUMBERS[missing[0]])
    rows = [[f"\n  {name}:", *names.split()[:2], _MARKS.get(name, "")] for name, names in VARIABLES.items()]
    looked = "".join(" ".join(row).replace(" =", "").rstrip() for row in rows)
    shell = environ.keys() & {"SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_PROCID"}
    remedy = "A shell of a Slurm allocation is no task: use srun" if shell else "Start it with one of them"
    message = f"no launcher said which rank this process is; looked for{looked}\n{remedy}, or set RANK and WORLD_SIZE"
    return LaunchError(message, about=None, sources={})


def _words(about: str) -> str:
    return about.replace("_", " ")


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r" *-?[0-9]{1,19} *", text) else None
