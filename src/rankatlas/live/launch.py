"""Who this process is, by the word of whoever started it: launchers' variables, and Ascend's rank table.

Where each meaning is taken from, and whether it was also seen by running that launcher (*):

- torchrun: torch 2.13 `distributed/run.py`, "Environment Variables", and `_start_workers` of its local agent (*)
- Paddle: paddlepaddle 3.3 `distributed/launch/controllers/collective.py`, `distributed/parallel.py` (*)
- Ascend: hiascend.com CANN 9.0 `envref_07_0047` to `_0049`, `hcclug_000067` (rank table 1.0); the MindSpore tutorial
  "rank table Startup"
- plain: `env://` in torch 2.13 `distributed/rendezvous.py`
- Open MPI: docs.open-mpi.org v5.0 "Environment variables set for MPI applications" (*, 5.0.11).  Its
  OMPI_COMM_WORLD_NODE_RANK is a place on the node, among all jobs, and no number of a node, hence not read.
- PMI: MPICH `src/pm/hydra/proxy/pmip_cb.c` (*, Hydra 5.0.2 and Intel MPI 2021.18); PMI_LOCAL_* as of Cray in
  Slurm's `src/plugins/mpi/cray_shasta`
- Slurm: srun(1) "OUTPUT ENVIRONMENT VARIABLES", `env_array_for_step` in `src/common/env.c`.  A batch shell has
  SLURM_PROCID=0 and the SLURM_NTASKS of its allocation too; what only a task has is the step of an srun.
- PMIx: PMIX_RANK beside OMPI_* (*) or under `srun --mpi=pmix`; there is no variable for the size
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankatlas.errors import JobError

_PLACES = (("rank", "world_size"), ("local_rank", "local_world_size"), ("node", "node_count"))
_TABLE = "RANK_TABLE_FILE"
_LAST_STEP = 0xFFFFFFF0  # SLURM_MAX_NORMAL_STEP_ID; above it stand batch, interactive and extern steps
_REMEDY = "Start the process with one of them, or give detect() an environ without the variables of the other."


class LaunchError(JobError):
    """What launchers said about this process is missing, damaged or contradictory.

    `about` is what it concerns ("rank", "world_size", ...), or None; `sources` are the launchers concerned, each with
    the variables read and their values.
    """

    about: str | None
    sources: dict[str, dict[str, str]]


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
    def detect(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        rank_table: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    ) -> Launch:
        """Read what the launcher said; `environ` is `os.environ` unless given, and no framework is imported.

        `rank_table`, a path or its content, stands in for RANK_TABLE_FILE.  Where several speak, the innermost counts,
        in the order of LAUNCHERS; the others must say the same, or be what started it once per node (torchrun under
        srun).  Places it left open are taken from those that say the same rank and world size.
        Cost: O(variables), and O(world) where Paddle's endpoints or a rank table list it.

        Raises LaunchError: nobody said anything, half of it, no integers, ranks outside their world, contradictions.

        >>> launch = Launch.detect({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8"})
        >>> launch.rank, launch.world_size, launch.local_rank, launch.source
        (5, 8, None, 'Open MPI')
        >>> Launch.detect({"RANK": "5", "WORLD_SIZE": "4"})
        Traceback (most recent call last):
        ...
        rankatlas.live.launch.LaunchError: plain RANK and WORLD_SIZE says RANK=5 and WORLD_SIZE=4, which do not ...
        """
        known: dict[str, Any] = dict(os.environ if environ is None else environ)
        if rank_table is not None:
            known[_TABLE] = rank_table
        heard = _everything_said(known)
        chosen = next((said for said in heard if {"rank", "world_size"} <= said.values.keys()), None)
        if chosen is None:
            raise _half_said(heard[0]) if heard else _nothing_said(known)
        _check(chosen)
        for place, said in enumerate(heard):
            if said is not chosen:
                _check(said)
                if _same_thing(chosen, said, is_outer=place > heard.index(chosen)):
                    chosen.fill_from(said)
        seen = {name: value for said in heard for name, value in said.seen.items()}
        numbers = {name: chosen.values.get(name) for pair in _PLACES[1:] for name in pair}
        rank, world_size = chosen.values["rank"], chosen.values["world_size"]
        return cls(rank, world_size, **numbers, host=socket.gethostname(), source=chosen.launcher.name, seen=seen)


class _Said:
    """What one launcher said: `values` by field, and `told`, the words they came in."""

    def __init__(self, launcher: Launcher, environ: Mapping[str, Any]) -> None:
        self.launcher = launcher
        self.environ = environ
        self.seen: dict[str, str] = {name: str(environ[name]) for name in launcher.marks if name in environ}
        self.values: dict[str, int] = {}
        self.told: dict[str, str] = {}
        for pair in _PLACES:
            for about, least in zip(pair, (0, 1)):
                self.read(about, getattr(launcher, about), least)
        self.read("second rank", launcher.second_rank, 0)
        if launcher.more is not None:
            launcher.more(self)

    def text(self, names: Sequence[str]) -> tuple[str, str] | None:
        """The first of these variables that is set, and its value."""
        for name in names:
            if name in self.environ:
                self.seen[name] = str(self.environ[name])
                return name, self.seen[name]
        return None

    def read(self, about: str, names: Sequence[str], least: int) -> None:
        found = self.text(names)
        if found is not None:
            self.put(about, self.number(*found, about, least), "=".join(found))

    def put(self, about: str, value: int, told: str) -> None:
        self.values[about] = value
        self.told[about] = told

    def number(self, name: str, text: str, about: str, least: int = 0) -> int:
        value = _whole(text)
        if value is None or value < least:
            given = "is empty" if not text.strip() else f"is {text[:80]!r}"
            wanted = f"{about.replace('_', ' ')} is a whole number of at least {least}"
            raise self.error(f"{name} {given}, read as {self.launcher.name}'s; {wanted}. Set it so, or unset it", about)
        return value

    def error(self, message: str, about: str | None = None, *others: _Said) -> LaunchError:
        sources = {said.launcher.name: dict(said.seen) for said in (self, *others)}
        return LaunchError(message, about=about, sources=sources)

    def fill_from(self, other: _Said) -> None:
        """Take local places, and nodes, of which nothing is known here; never half a pair."""
        for pair in _PLACES[1:]:
            if not any(name in self.values for name in pair):
                for name in pair:
                    if name in other.values:
                        self.put(name, other.values[name], other.told[name])


def _of_a_step(environ: Mapping[str, Any]) -> bool:
    """Whether srun started this process as a task: the shells of an allocation are task 0 of no normal step."""
    step = _whole(str(environ.get("SLURM_STEP_ID", environ.get("SLURM_STEPID", ""))))
    if step is None:
        return (_whole(str(environ.get("SLURM_PROCID", ""))) or 0) > 0
    return 0 <= step < _LAST_STEP


def _tasks_on_node(said: _Said) -> None:
    """Slurm's "2(x3),1": three nodes of two tasks, then one of one."""
    found = said.text(("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"))
    node = said.values.get("node")
    if found is None or node is None:
        return
    for run in found[1].split(","):
        form = re.fullmatch(r"([^()]*)(?:\(x([^()]*)\))?", run)
        if form is None:
            raise said.error(f"{found[0]} is {found[1][:80]!r}; tasks per node look like '2(x3),1'", "local_world_size")
        tasks = said.number(found[0], form[1], "local_world_size", 1)
        node -= said.number(found[0], form[2], "local_world_size", 1) if form[2] is not None else 1
        if node < 0:
            said.put("local_world_size", tasks, "=".join(found))
            return


def _paddle_endpoints(said: _Said) -> None:
    """Paddle's endpoints stand in order of rank; their hosts, in order, are the nodes."""
    found = said.text(("PADDLE_TRAINER_ENDPOINTS",))
    own = said.text(("PADDLE_CURRENT_ENDPOINT",))
    rank, world_size = said.values.get("rank"), said.values.get("world_size")
    if found is None or rank is None or world_size is None or rank >= world_size:
        return
    endpoints = found[1].split(",")
    if len(endpoints) != world_size:
        listed = f"{found[0]} lists {len(endpoints)} endpoints"
        raise said.error(f"{listed}, but {said.told['world_size']}. Correct one of the two", "world_size")
    if own is not None and endpoints[rank] != own[1]:
        listed = f"{found[0]} has {endpoints[rank]} at rank {rank}"
        raise said.error(f"{said.told['rank']} and {'='.join(own)}, but {listed}. Correct one of the three", "rank")
    hosts = list(dict.fromkeys(endpoint.rpartition(":")[0] for endpoint in endpoints))
    if said.values.get("node_count", len(hosts)) == len(hosts):  # else several "nodes" share a host
        said.put("node", hosts.index(endpoints[rank].rpartition(":")[0]), found[0])
        said.put("node_count", len(hosts), found[0])


def _rank_table(said: _Said) -> None:
    """Ascend's table: the world is its devices, a node one of its servers; RANK_ID, or DEVICE_ID on one server, is me."""
    source = said.environ.get(_TABLE)
    if source is None:
        return
    path = "given as a mapping" if isinstance(source, Mapping) else str(source)
    said.seen[_TABLE] = path
    servers = _servers(said, source, path)
    nodes = {rank: node for node, server in enumerate(servers) for rank, _ in server}
    devices = {rank: device for server in servers for rank, device in server}
    listed, count = f"{_TABLE} ({path})", sum(map(len, servers))
    ranks = sorted(rank for server in servers for rank, _ in server)
    missing = [rank for rank in range(min(count, 1 + max(ranks, default=-1))) if rank not in nodes]
    repeated = sorted({one for one, next_ in zip(ranks, ranks[1:]) if one == next_})
    if missing or repeated or not ranks or ranks[-1] >= count:
        wrong = f"misses {missing[:8]} and repeats {repeated[:8]}" if ranks else "lists no device"
        raise said.error(f"{listed} {wrong}; its {count} devices need the rank_ids 0 to {count - 1}, each once", "rank")
    if said.values.get("world_size", count) != count:
        raise said.error(f"{listed} has {count} devices, but {said.told['world_size']}. Correct one", "world_size")
    said.put("world_size", count, f"{count} devices in {listed}")
    said.put("node_count", len(servers), listed)
    own = said.text(("DEVICE_ID",))
    device_id = said.number(*own, "device id") if own else None
    if "rank" not in said.values and len(servers) == 1 and device_id in devices.values():
        said.put(
            "rank", next(rank for rank, device in devices.items() if device == device_id), f"DEVICE_ID={device_id}"
        )
    rank = said.values.get("rank", count)
    if rank < count:
        if device_id not in (None, devices[rank]):
            there = f"{listed} has device {devices[rank]} at rank {rank}"
            raise said.error(f"{said.told['rank']} and DEVICE_ID={device_id}, but {there}. Correct one", "rank")
        mates = sorted(mate for mate, _ in servers[nodes[rank]])
        said.put("node", nodes[rank], listed)
        said.put("local_rank", mates.index(rank), listed)
        said.put("local_world_size", len(mates), listed)


def _servers(said: _Said, source: Any, path: str) -> list[list[tuple[int, int]]]:
    """Per server the (rank_id, device_id) of its devices."""
    try:
        table = source if isinstance(source, Mapping) else json.loads(_text_of(source))
        if table.get("status", "completed") != "completed":
            raise said.error(f"{_TABLE} ({path}) has status {table['status']!r}; wait until it is 'completed'")
        servers = [
            [
                tuple(said.number(key, str(device[key]), key) for key in ("rank_id", "device_id"))
                for device in server["device"]
            ]
            for server in table["server_list"]
        ]
        count = said.number("server_count", str(table.get("server_count", len(servers))), "server_count")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        wanted = "it needs server_list, device, rank_id and device_id, as in rank table 1.0"
        raise said.error(f"{_TABLE} ({path}) cannot be read: {error!r:.200}; {wanted}") from None
    if count != len(servers):
        raise said.error(f"{_TABLE} ({path}) has server_count {count} but lists {len(servers)} servers", "node_count")
    return servers  # type: ignore[return-value]


def _text_of(path: str | os.PathLike[str]) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\s*-?[0-9]{1,19}\s*", text) else None
