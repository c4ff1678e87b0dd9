"""What the commands of a script start: the options of one of them, and what its launcher says of ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rankatlas.catalogue import said
from rankatlas.dialects.given import Given, nested
from rankatlas.dialects.launch_options import OPTION, Item, elastic, options, waiting, world_of_launcher
from rankatlas.dialects.literals import value_of
from rankatlas.dialects.registry import size_names
from rankatlas.dialects.shell_values import has_variable
from rankatlas.dialects.shell_words import Word

_MOST_OPTIONS = 5000
LAUNCHERS = re.compile(
    r"(^|/)(torchrun|deepspeed|accelerate|srun|mpirun|python[\d.]*|fleetrun)$|\.py$"
    r"|^torch\.distributed|^paddle\.distributed"
)


def may_start(words: list[Word]) -> bool:
    """Whether a command may be a launch, before its words are filled in: most commands of a script cannot be one."""
    if has_variable(words[0]) or OPTION.match(words[0].text):
        return True
    return any(has_variable(word) or LAUNCHERS.search(word.text) for word in words)


class _Launch(NamedTuple):
    """The options of one command, and `loose`: what else its words wait for, with the line."""

    values: dict[str, Any]
    lines: dict[str, int]
    unresolved: dict[str, tuple[str, ...]]
    origins: dict[str, str]
    loose: dict[str, int]


class Launches:
    """The last command whose options set a size of a layout, else the last with options; and how many there were.

    A script that trains often converts or evaluates afterwards.
    """

    __slots__ = ("_bare", "_count", "_last", "_tasks", "notes")

    def __init__(self) -> None:
        self._last: _Launch | None = None
        self._count = 0
        self._bare = False  # whether it was options alone
        self._tasks = False  # whether srun starts anything
        self.notes: list[str] = []

    @property
    def count(self) -> int:
        """How many commands with options there were."""
        return self._count

    def add(self, items: list[Item]) -> None:
        """The words of a command; nothing where no launcher is among them, or no option."""
        texts = [item.text for item in items if item.text]
        self._tasks = self._tasks or any(text.rpartition("/")[2] == "srun" for text in texts)
        bare = bool(texts) and bool(OPTION.match(texts[0]))
        if not bare and not any(map(LAUNCHERS.search, texts)):
            return
        if len(items) > _MOST_OPTIONS:
            self.notes.append(said("unread.words", line=items[0].line, count=len(items), most=_MOST_OPTIONS))
            items = items[:_MOST_OPTIONS]
        launch = _launch(items)
        if not launch.lines:
            return
        if self._last is not None and not self._bare and OPTION.match(items[0].text):
            self.notes.append(said("noted.cut", line=items[0].line))
            return
        if self._last is not None and bare and self._bare:  # a list of options, one on each line
            for name in launch.lines:
                self._last.values.pop(name, None)
                self._last.unresolved.pop(name, None)
            self._last.values.update(launch.values)
            self._last.lines.update(launch.lines)
            self._last.unresolved.update(launch.unresolved)
            self._last.origins.update(launch.origins)
            self._last.loose.update(launch.loose)
        elif self._last is not None and _sizes(self._last) and not _sizes(launch):
            self._count += 1
            bare = False
        else:
            self._last = launch
            self._count += 1
        self._bare = bare

    def given(
        self, source: str, notes: list[str], sets: Mapping[str, str], used: set[str], slurm: Mapping[str, int]
    ) -> Given:
        """Everything about the last launch; of `sets` those that no variable took are settings."""
        notes = [*notes, *dict.fromkeys(self.notes)]
        if self._last is None:
            return Given({}, source=source, kind="script", notes=notes)
        values, lines, unresolved, origins, loose = self._last
        if self._count > 1:
            notes.append(said("noted.commands", count=self._count, line=min(lines.values())))
        inside = {name for names in unresolved.values() for name in names}
        for wait, line in loose.items():
            if wait not in inside:
                notes.append(said("noted.options", wait=waiting(wait), line=line, name=wait.split(",")[0]))
        rest = {name: text for name, text in sets.items() if name not in used}
        own = {name: value_of(text) for name, text in rest.items()}
        unresolved = {name: waits for name, waits in unresolved.items() if name not in own}
        nodes = elastic({**values, **own})
        if nodes is not None:
            unresolved["nnodes"] = (
                f"the number of nodes: {nodes} is elastic and may be any from its least to its most",
            )
        world = world_of_launcher({**values, **own}, unresolved, slurm)
        notes += _placed({**values, **own}, slurm, self._tasks)
        if world is not None:
            values.setdefault("launcher.world_size", world[0])
            origins["launcher.world_size"] = world[1]
        given = Given(
            nested(values),
            source=source,
            kind="script",
            lines=lines,
            unresolved=unresolved,
            origins=origins,
            notes=notes,
        )
        return given.with_settings(rest) if rest else given


def _sizes(launch: _Launch) -> bool:
    """Whether an option is one that sets a size in some dialect."""
    return any(name in launch.lines for name in size_names())


def _placed(values: Mapping[str, Any], slurm: Mapping[str, int], tasks: bool) -> list[str]:
    """Where Slurm and the launcher inside it say different numbers of nodes, or both start all processes of a node."""
    nodes, each = values.get("nnodes"), values.get("nproc_per_node")
    found = []
    if type(nodes) is int and slurm.get("nodes", nodes) != nodes:
        found.append(said("placed.nodes", slurm=slurm["nodes"], nodes=nodes))
    wanted = values.get("ntasks_per_node", slurm.get("ntasks_per_node"))
    if tasks and type(each) is int and type(wanted) is int and min(wanted, each) > 1:
        found.append(said("placed.tasks", tasks=wanted, each=each))
    return found


def _launch(items: list[Item]) -> _Launch:
    launch = _Launch({}, {}, {}, {}, {wait: item.line for item in items if not item.text for wait in item.waits})
    for name, option, held in options(items):
        waits = tuple(dict.fromkeys(wait for item in held for wait in item.waits))
        launch.values.pop(name, None)
        launch.unresolved.pop(name, None)
        if waits:
            launch.unresolved[name] = waits
        else:
            found = [value_of(item.text) for item in held]
            launch.values[name] = True if not found else found[0] if len(found) == 1 else found
        launch.lines[name] = option.line
        origin = next((item.origin for item in held if item.origin), None)
        if origin:
            launch.origins[name] = origin
    return launch
