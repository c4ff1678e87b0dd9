"""A launch script or a command line, read as far as its text goes: what it would start, with which options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rankatlas.dialects.arithmetic import integer
from rankatlas.dialects.given import Given, nested
from rankatlas.dialects.literals import value_of
from rankatlas.dialects.shell_words import Word, commands
from rankatlas.errors import SourceError, shown

_MOST_TEXT = 1 << 18  # characters of a script
_MOST_OPTIONS = 5000
_MOST_EXPANDED = 100_000  # characters of one value with its variables filled in
_AN_OPTION = re.compile(r"(?:^|\s)(?:--[a-z][\w.-]*(?:=|\s)|'?\+{0,2}[a-z]\w*\.[\w.]+=)")
_A_START = re.compile(
    r"^[ \t]*(?:\w+=\S*[ \t]+)*"
    r"(?:export[ \t]+\w+=|torchrun|deepspeed|accelerate launch|srun|mpirun|python[\d.]*|fleetrun)\b",
    re.MULTILINE,
)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_DIRECTIVE = re.compile(r"^#(?:SBATCH|PBS)\s+(.*)$", re.MULTILINE)
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:[./][A-Za-z_]\w*)+)=")
_OPENS = ("if", "for", "while", "until", "case", "select")
_CLOSES = ("fi", "done", "esac")
_BEFORE = ("export", "declare", "local", "readonly", "typeset", "-x", "-a", "-r", "then", "else", "do", "env")
_LAUNCHERS = re.compile(
    r"(^|/)(torchrun|deepspeed|accelerate|srun|mpirun|python[\d.]*|fleetrun)$|\.py$"
    r"|^torch\.distributed|^paddle\.distributed"
)
_MARK = re.compile("\0[^\0]*\0|\2[^\2]*\2")
_BLANK = "\1"
_SHORT = {"-n": "ntasks", "-N": "nodes", "-np": "ntasks"}


class Item(NamedTuple):
    """A word with its variables filled in.  Marks in `held` say what is not known and where a default was taken.

    They stay in the text because a shell splits it into words later, and each word must keep its own.
    """

    held: str
    line: int = 0

    @property
    def text(self) -> str:
        """The word without marks."""
        return _MARK.sub("", self.held)

    @property
    def waits(self) -> tuple[str, ...]:
        """The names of what is not known in it."""
        return tuple(name.replace(_BLANK, " ") for name in re.findall("\0([^\0]*)\0", self.held))

    @property
    def origin(self) -> str | None:
        """Where a value came from that the script itself does not give."""
        found = re.search("\2([^\2]*)\2", self.held)
        return found.group(1).replace(_BLANK, " ") if found else None


def _mark(kind: str, told: str) -> str:
    return kind + told.replace(" ", _BLANK)[:200] + kind


class _Launch(NamedTuple):
    """The options of one command, and `loose`: what else its words wait for, with the line."""

    values: dict[str, Any]
    lines: dict[str, int]
    unresolved: dict[str, tuple[str, ...]]
    origins: dict[str, str]
    loose: dict[str, int]


class _UnknownError(Exception):
    """A value that waits for variables; `names` are theirs."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.names = names


def is_script(text: str) -> bool:
    """Whether text is a shell script or a command line rather than settings.

    >>> is_script("torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2")
    True
    >>> is_script("tp: 2")
    False
    """
    head = text[:_MOST_TEXT]
    if re.match(r"#![^\n]*\b(ba|z|k|da)?sh\b", head) or re.search(r"^#SBATCH[ \t]", head, re.MULTILINE):
        return True
    lines = (line.strip() for line in head.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    if first.startswith("--") and _OPTION.match(first):
        return True
    return bool(_AN_OPTION.search(head)) and bool(_A_START.search(head))


def read_script(text: str, source: str, sets: Mapping[str, str]) -> Given:
    """The options of the last command that starts a training, and what its launcher says of ranks.

    Variables have the values the script gives them outside branches, or those of `sets`, which win.  Nothing is
    executed: what `$(…)`, a branch or the environment would fill in stays unresolved.  Cost: O(text).

    Raises SourceError (too long).

    >>> read_script("TP=2\\npython pretrain.py --tp $TP --pp $PP", "run.sh", {"PP": "4"}).values_
    {'tp': 2, 'pp': 4}
    """
    if len(text) > _MOST_TEXT:
        raise SourceError(f"{shown(source)} is larger than 256 KiB, too large for a script", source=source)
    script = _Script(sets)
    for match in _DIRECTIVE.finditer(text):
        script.directive(match.group(1), text.count("\n", 0, match.start()) + 1)
    for words in commands(text):
        script.command(words)
    return script.given(source)


class _Script:
    """What is known after the commands read so far."""

    def __init__(self, sets: Mapping[str, str]) -> None:
        self.sets = sets
        self.used: set[str] = set()
        self.variables: dict[str, list[Item]] = {}
        self.depth = 0
        self.launches: list[_Launch] = []
        self.bare = False  # whether the last one was options alone
        self.slurm: dict[str, int] = {}
        self.lines: dict[str, int] = {}
        self.notes: list[str] = []

    # What the script sets

    def directive(self, rest: str, line: int) -> None:
        """`#SBATCH --nodes=4`, which says how many ranks there will be."""
        for option, value in re.findall(r"(?:--?)([\w-]+)[= ]\s*(\S+)", rest):
            name = _SHORT.get(f"-{option}", option).replace("-", "_")
            if name in ("nodes", "ntasks", "ntasks_per_node", "gpus_per_node") and value.split(":")[-1].isdigit():
                self.slurm[name] = int(value.split(":")[-1][:18])
                self.lines.setdefault(name, line)

    def command(self, words: list[Word]) -> None:
        """One simple command: it sets variables, opens or closes a branch, or starts something."""
        first = words[0].text
        if first in _CLOSES or first == "}":
            self.depth = max(0, self.depth - 1)
            words = words[1:]
        elif first in _OPENS or first == "function":
            self.depth += 1
            return
        elif first == "elif":
            return
        elif first in ("source", ".") and len(words) > 1:
            self.notes.append(f"line {words[0].line} runs another script, which is not read: {shown(_raw(words[1]))}")
            return
        if len(words) > 2 and [word.text for word in words[1:3]] == ["(", ")"]:
            self.depth += 1  # a function
            return
        while words and words[0].text in _BEFORE and not words[0].quoted:
            words = words[1:]
        rest = self._assign(words)
        if rest:
            self._launch(rest)

    def _assign(self, words: list[Word]) -> list[Word]:
        """Take the assignments a command begins with; what follows them."""
        place = 0
        while place < len(words):
            word = words[place]
            match = _ASSIGNMENT.match(word.text)
            if not match or word.pieces[0][0] != "text":
                break
            name, adds = match.groups()
            value = Word(word.line)
            value.pieces = [("text", word.text[match.end() :], None), *word.pieces[1:]]
            value.quoted = word.quoted
            place += 1
            values = [value]
            if place < len(words) and words[place].text == "(" and len(value.pieces) == 1 and not value.text:
                end = next((at for at in range(place, len(words)) if words[at].text == ")"), len(words))
                values, place = words[place + 1 : end], end + 1
            self._set(name, values, bool(adds))
        return words[place:]

    def _set(self, name: str, values: list[Word], adds: bool) -> None:
        if name in self.sets:
            return
        if self.depth and not adds and name in self.variables and self._same(name, values):
            return
        held = self.variables.get(name, []) if adds else []
        if self.depth:
            line = values[0].line if values else 0
            self.variables[name] = [*held, Item(_mark("\0", f"{name}, set in a branch on line {line}"), line)]
            return
        expanded = [self._expand(word) for word in values]
        self.variables[name] = [*held, *(item for items in expanded for item in items)][:_MOST_OPTIONS]

    def _same(self, name: str, values: list[Word]) -> bool:
        return self.variables[name] == [item for word in values for item in self._expand(word)]

    # What a word holds

    def _expand(self, word: Word) -> list[Item]:
        """The items a word becomes; a lone variable that holds several stays several."""
        if len(word.pieces) == 1 and word.pieces[0][0] == "variable":
            name = word.pieces[0][1]
            if name in self.variables and name not in self.sets:
                items = self.variables[name]
                return [item for one in items for item in ([one] if word.quoted else _split(one))]
        text = ""
        for kind, what, fallback in word.pieces:
            try:
                text += self._value(kind, what, fallback, word.line)
            except _UnknownError as unknown:
                text += "".join(_mark("\0", name) for name in unknown.names)
            if len(text) > _MOST_EXPANDED:
                text = _mark("\0", "too long a value")
                break
        item = Item(text, word.line)
        return _split(item) if not word.quoted and _has_variable(word) else [item]

    def _value(self, kind: str, what: str, fallback: str | None, line: int) -> str:
        """The text of one piece.  Raises _UnknownError."""
        if kind == "text":
            return _MARK.sub("", what)
        if kind == "arithmetic":
            try:
                return str(integer(what, self._number))
            except SourceError:
                raise _UnknownError((f"$(({what[:40]}))",)) from None
        if kind != "variable":
            raise _UnknownError((what if len(what) < 40 else f"{what[:40]}…",))
        if what in self.sets:
            self.used.add(what)
            return _mark("\2", f"given: --set {what}") + self.sets[what]
        if what in self.variables:
            items = self.variables[what]
            if sum(len(item.held) for item in items) > _MOST_EXPANDED:
                raise _UnknownError((f"{what}, too long a value",))
            return " ".join(item.held for item in items)
        if fallback is not None and "$" not in fallback and "`" not in fallback:
            return _mark("\2", f"default of ${{{what}}}, line {line}") + fallback.strip("\"'")
        raise _UnknownError((what,))

    def _number(self, name: str) -> int:
        item = Item(self._value("variable", name, None, 0))
        if item.waits:
            raise _UnknownError(item.waits)
        if not re.fullmatch(r"\d{1,18}", item.text.strip()):
            raise _UnknownError((name,))
        return int(item.text)

    # What the script starts

    def _launch(self, words: list[Word]) -> None:
        items = [item for word in words for item in self._expand(word)][:_MOST_OPTIONS]
        texts = [item.text for item in items if item.text]
        if not any(map(_LAUNCHERS.search, texts)) and not (texts and _OPTION.match(texts[0])):
            return
        launch = _Launch({}, {}, {}, {}, {wait: item.line for item in items if not item.text for wait in item.waits})
        for name, option, held in _options(items):
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
        if not launch.lines:
            return
        bare = bool(_OPTION.match(texts[0]))
        if bare and self.bare:  # a list of options, one on each line
            last = self.launches[-1]
            last.values.update(launch.values)
            last.lines.update(launch.lines)
            last.unresolved.update(launch.unresolved)
            last.origins.update(launch.origins)
            last.loose.update(launch.loose)
        else:
            self.launches.append(launch)
        self.bare = bare

    def given(self, source: str) -> Given:
        """Everything about the last launch."""
        if not self.launches:
            return Given({}, source=source, kind="script", notes=self.notes)
        values, lines, unresolved, origins, loose = self.launches[-1]
        notes = list(self.notes)
        if len(self.launches) > 1:
            notes.append(
                f"{len(self.launches)} commands have options; the last one, on line {min(lines.values())}, is read"
            )
        inside = {name for names in unresolved.values() for name in names}
        for wait, line in loose.items():
            if wait not in inside:
                notes.append(
                    f"what {wait} adds to the options on line {line} is not known; --set {wait.split(',')[0]}=… says it"
                )
        world = _world(values, unresolved, self.slurm)
        if world is not None:
            values.setdefault("launcher.world_size", world[0])
            origins["launcher.world_size"] = world[1]
        rest = {name: text for name, text in self.sets.items() if name not in self.used}
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


def _has_variable(word: Word) -> bool:
    return any(piece[0] != "text" for piece in word.pieces)


def _split(item: Item) -> list[Item]:
    """The words a text becomes when a shell fills it in outside quotes."""
    return [item._replace(held=part.strip("\"'")) for part in item.held.split()]


def _raw(word: Word) -> str:
    return "".join(f"${piece[1]}" if piece[0] == "variable" else piece[1] for piece in word.pieces)


def _options(items: list[Item]) -> list[tuple[str, Item, list[Item]]]:
    """Name, the item it stands in and those of its values; `--name=value` is split, dashes become underscores."""
    found: list[tuple[str, Item, list[Item]]] = []
    for item in items:
        text = item.text
        override = _OVERRIDE.match(text)
        if _OPTION.match(text):
            name, equals, _ = text.partition("=")
            plain = _SHORT.get(name) or name.lstrip("-").replace("-", "_")
            found.append((plain, item, [item._replace(held=item.held.partition("=")[2])] if equals else []))
        elif override:  # Hydra's own form
            name = text.partition("=")[0].lstrip("+").replace("/", ".")
            found.append((name, item, [item._replace(held=item.held.partition("=")[2])]))
            found.append(("", item, []))
        elif text.endswith(".py"):
            found.append(("", item, []))  # what a launcher starts is no value of its last option
        elif found:
            found[-1][2].append(item)
    return [option for option in found if option[0]]


def _world(
    values: Mapping[str, Any], unresolved: Mapping[str, tuple[str, ...]], slurm: Mapping[str, int]
) -> tuple[int, str] | None:
    """How many ranks the launcher starts and which of its options say so, None where they do not."""
    whole = {**slurm, **values}

    def number(*names: str) -> int | None:
        for name in names:
            if isinstance(whole.get(name), int) and not isinstance(whole.get(name), bool) and whole[name] > 0:
                return int(whole[name])
        return None

    nodes = number("nnodes", "num_nodes", "nodes")
    each = number("nproc_per_node", "num_gpus", "ntasks_per_node")
    listed = next((whole[name] for name in ("gpus", "devices", "xpus", "npus") if name in whole), None)
    if each is None and listed is not None:
        each = len(str(listed).split(","))
    if number("num_processes"):
        return number("num_processes") or 1, "--num-processes"
    if each is not None and not any(name in unresolved for name in ("nnodes", "num_nodes")):
        return each * (nodes or 1), f"{nodes or 1} nodes × {each} processes of the launcher"
    if number("ntasks"):
        return number("ntasks") or 1, "tasks of the launcher"
    return None
