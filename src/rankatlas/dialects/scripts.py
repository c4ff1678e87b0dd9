"""A launch script or a command line, read as far as its text goes: what it would start, with which options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rankatlas.catalogue import said
from rankatlas.dialects.arithmetic import assigned, integer
from rankatlas.dialects.given import Given, nested
from rankatlas.dialects.launch_options import (
    MARK,
    OPTION,
    SHORT,
    Item,
    elastic,
    mark,
    options,
    waiting,
    world_of_launcher,
)
from rankatlas.dialects.literals import value_of
from rankatlas.dialects.shell_builtins import changed
from rankatlas.dialects.shell_words import Word, commands
from rankatlas.errors import SourceError, shown

_MOST_TEXT = 1 << 18  # characters of a script
_MOST_OPTIONS = 5000
_MOST_OPENED = 64  # blocks that begin in one command
_MOST_EXPANDED = 100_000  # characters of one value with its variables filled in
_AN_OPTION = re.compile(r"(?:^|\s)(?:--[a-z][\w.-]*(?:=|\s)|'?\+{0,2}[a-z]\w*\.[\w.]+=)")
_A_START = re.compile(
    r"^[ \t]*(?:\w+=\S*[ \t]+)*"
    r"(?:export[ \t]+\w+=|torchrun|deepspeed|accelerate launch|srun|mpirun|python[\d.]*|fleetrun)\b",
    re.MULTILINE,
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_DIRECTIVE = re.compile(r"^#(?:SBATCH|PBS)\s+(.*)$", re.MULTILINE)
_CLOSES = ("fi", "done", "esac")
_DECLARE = ("export", "declare", "local", "readonly", "typeset")
_BEFORE = (*_DECLARE, "then", "else", "do", "env", "!", "time")
_SURE = ("cd", "echo", "mkdir", "set", "true", ":", "source", ".", "ulimit", "unset")
_A_COMMAND = re.compile(r"(torchrun|deepspeed|accelerate|python[\d.]*|\.py)\s.*?(--|\w\.\w+=)", re.DOTALL)
_LAUNCHERS = re.compile(
    r"(^|/)(torchrun|deepspeed|accelerate|srun|mpirun|python[\d.]*|fleetrun)$|\.py$"
    r"|^torch\.distributed|^paddle\.distributed"
)


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
    if first.startswith("--") and OPTION.match(first):
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
        self.blocks: list[tuple[str, bool, dict[str, list[Item] | None]]] = []  # kind, whether a branch, old values
        self.branches = 0  # how many of them are branches
        self.pending = False  # whether the next block is a function's
        self.chained = False  # whether the command runs only if another succeeded or failed
        self.succeeds = False  # whether the last command cannot fail
        self.launches: list[_Launch] = []
        self.bare = False  # whether the last one was options alone
        self.slurm: dict[str, int] = {}
        self.lines: dict[str, int] = {}
        self.notes: list[str] = []

    # What the script sets

    def directive(self, rest: str, line: int) -> None:
        """`#SBATCH --nodes=4`, which says how many ranks there will be."""
        for option, value in re.findall(r"(?:--?)([\w-]+)[= ]\s*(\S+)", rest):
            name = SHORT.get(f"-{option}", option).replace("-", "_")
            if name in ("nodes", "ntasks", "ntasks_per_node", "gpus_per_node") and value.split(":")[-1].isdigit():
                self.slurm[name] = int(value.split(":")[-1][:18])
                self.lines.setdefault(name, line)

    def command(self, words: list[Word]) -> None:  # noqa: PLR0912
        """One simple command: it sets variables, opens or closes a branch, or starts something."""
        self._chain(words[0].after)
        condition = False
        for _ in range(_MOST_OPENED):
            if not words or words[0].quoted:
                break
            first = words[0].text
            texts = [word.text for word in words[:3]]
            if first in (*_CLOSES, "}"):
                self._close()
                return
            if texts[:2] == ["(", "("]:
                self._calculate(_inside(words), words[0].line)
                return
            if first == "function" or texts[1:] == ["(", ")"]:
                self.pending, words = True, words[2 if first == "function" else 3 :]
            elif first in ("{", "("):
                self._open(first, self.chained or self.pending)
                self.pending, words = False, words[1:]
            elif first in ("for", "select", "case"):
                self._open(first, True)
                if first != "case" and len(words) > 1 and words[1].text.isidentifier():
                    self._lose(words[1].text, "set by a loop", words[0].line)
                words = words[next((at + 1 for at, word in enumerate(words) if word.text == "in"), len(words)) :]
                if first != "case":
                    return
            elif first in ("if", "while", "until", "elif"):
                condition, words = True, words[1:]
                if first != "elif":
                    self._open(first, True)
            elif first in _BEFORE:
                words = words[1:]
                while first in _DECLARE and words and re.fullmatch(r"[-+][A-Za-z]+", words[0].text):
                    words = words[1:]
                self.succeeds = first in _DECLARE
            else:
                end = self._pattern(words)
                if not end:
                    break
                words = words[end:]
        ends = len(words)
        if self.blocks and self.blocks[-1][0] == "(":
            texts = [word.text for word in words]
            if texts.count(")") > texts.count("("):
                ends = len(texts) - 1 - texts[::-1].index(")")
        if ends:
            self._run(words[:ends], condition)
        if ends < len(words):
            self._close()

    def _run(self, words: list[Word], condition: bool) -> None:  # noqa: PLR0912
        """A command without the words that open a block: its assignments, and what it sets or starts."""
        rest = self._assign(words)
        if not rest:
            self.succeeds = True
            return
        first = rest[0].text
        self.succeeds = first in _SURE
        if first in ("source", ".") and len(rest) > 1:
            self.notes.append(said("unread.script", line=rest[0].line, script=shown(_raw(rest[1]))))
            return
        if first == "let":
            for word in rest[1:]:
                self._calculate(_raw(word), word.line)
        elif first == ":":
            for kind, name, fallback in (piece for word in rest[1:] for piece in word.pieces):
                if kind == "variable" and fallback is not None and name not in self.variables and not self.branches:
                    self._write(name, [Item(self._default(name, fallback, rest[0].line), rest[0].line)])
        elif first == "unset" and not self.branches and not self.chained:
            for word in rest[1:]:
                if word.text in self.variables:
                    self._write(word.text, None)
        else:
            how, names = changed(first, [_raw(word) for word in rest[1:]])
            for name in names:
                self._lose(name, how, rest[0].line)
            if not condition and (not names or first == "eval"):
                self._launch(rest)

    def _chain(self, after: str) -> None:
        """Whether the next command runs in any case, given the operator before it."""
        if after in ("&&", "||"):
            self.chained = self.chained or after == "||" or not self.succeeds
        elif after != "|":
            self.chained = False
        self.succeeds = False

    def _open(self, kind: str, branch: bool) -> None:
        self.blocks.append((kind, branch, {}))
        self.branches += branch

    def _close(self) -> None:
        """The innermost block ends; what a subshell set is forgotten."""
        if self.blocks:
            kind, branch, before = self.blocks.pop()
            self.branches -= branch
            for name, items in before.items() if kind == "(" else ():
                self._write(name, items)

    def _pattern(self, words: list[Word]) -> int:
        """How many words the pattern of a case takes, 0 where none stands here."""
        if not self.blocks or self.blocks[-1][0] != "case":
            return 0
        for place, word in enumerate(words):
            if word.text == ")":
                return place + 1
            if word.text == "(" and place:
                return 0
        return 0

    def _write(self, name: str, items: list[Item] | None) -> None:
        if self.blocks:
            self.blocks[-1][2].setdefault(name, self.variables.get(name))
        if items is None:
            self.variables.pop(name, None)
        else:
            self.variables[name] = items

    def _lose(self, name: str, how: str, line: int) -> None:
        """The value of a variable is not known from here on."""
        if name not in self.sets:
            self._write(name, [Item(mark("\0", f"{name}, {how} on line {line}"), line)])

    def _calculate(self, text: str, line: int) -> None:
        """`((TP *= 2))` and `let`."""
        for name, expression in assigned(text):
            try:
                if self.branches or self.chained:
                    raise SourceError("in a branch", source="")
                value = str(integer(expression, self._number))
            except (SourceError, _UnknownError):
                self._lose(name, "set in a branch" if self.branches or self.chained else "calculated", line)
            else:
                if name not in self.sets:
                    self._write(name, [Item(value, line)])

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
        unsure = self.branches or self.chained
        if unsure and not adds and name in self.variables and self._same(name, values):
            return
        held = self.variables.get(name, []) if adds or (unsure and _goes_on(name, values)) else []
        if unsure:
            line = values[0].line if values else 0
            self._write(name, [*held, Item(mark("\0", f"{name}, set in a branch on line {line}"), line)])
            return
        expanded = [self._expand(word) for word in values]
        self._write(name, [*held, *(item for items in expanded for item in items)][:_MOST_OPTIONS])

    def _same(self, name: str, values: list[Word]) -> bool:
        return self.variables[name] == [item for word in values for item in self._expand(word)]

    # What a word holds

    def _expand(self, word: Word) -> list[Item]:
        """The items a word becomes; a lone variable that holds several stays several."""
        if len(word.pieces) == 1 and word.pieces[0][0] == "variable":
            name = word.pieces[0][1]
            if name in self.variables and name not in self.sets:
                items = self.variables[name]
                found = [item for one in items for item in ([one] if word.quoted else _split(one))]
                return [item for item in found if item.text or item.waits]
            if name in self.sets and self.sets[name].startswith("-"):  # options, whatever quotes stand around them
                return _split(Item(self._value("variable", name, None, word.line), word.line))
        text = ""
        for kind, what, fallback in word.pieces:
            try:
                text += self._value(kind, what, fallback, word.line)
            except _UnknownError as unknown:
                text += "".join(mark("\0", name) for name in unknown.names)
            if len(text) > _MOST_EXPANDED:
                text = mark("\0", "too long a value")
                break
        item = Item(text, word.line)
        return _split(item) if not word.quoted and _has_variable(word) else [item]

    def _value(self, kind: str, what: str, fallback: str | None, line: int) -> str:
        """The text of one piece.  Raises _UnknownError."""
        if kind == "text":
            return MARK.sub("", what)
        if kind == "arithmetic":
            try:
                return str(integer(what, self._number))
            except SourceError:
                raise _UnknownError((f"$(({what[:40]}))",)) from None
        if kind != "variable":
            raise _UnknownError((what if len(what) < 40 else f"{what[:40]}…",))
        if what in self.sets:
            self.used.add(what)
            return mark("\2", what) + self.sets[what]
        if what in self.variables:
            items = self.variables[what]
            if sum(len(item.held) for item in items) > _MOST_EXPANDED:
                raise _UnknownError((f"{what}, too long a value",))
            return " ".join(item.held for item in items)
        if fallback is not None and "$" not in fallback and "`" not in fallback:
            return self._default(what, fallback, line)
        raise _UnknownError((what,))

    @staticmethod
    def _default(name: str, fallback: str, line: int) -> str:
        if "$" in fallback or "`" in fallback:
            return mark("\0", name)
        return mark("\2", f"{name} {line}") + fallback.strip("\"'")

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
        self._quoted(items)
        if not any(map(_LAUNCHERS.search, texts)) and not (texts and OPTION.match(texts[0])):
            return
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
        if not launch.lines:
            return
        bare = bool(OPTION.match(texts[0]))
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

    def _quoted(self, items: list[Item]) -> None:
        """A note on `bash -c "torchrun …"`, whose words are one word here."""
        for place, item in enumerate(items):
            before = items[place - 1].text if place else ""
            if (re.fullmatch(r"-[a-z]*c", before) or before == "eval") and _A_COMMAND.search(item.text):
                self.notes.append(said("noted.quoted", line=item.line, command=shown(item.text[:80])))

    def given(self, source: str) -> Given:
        """Everything about the last launch."""
        if not self.launches:
            return Given({}, source=source, kind="script", notes=self.notes)
        values, lines, unresolved, origins, loose = self.launches[-1]
        notes = list(self.notes)
        if len(self.launches) > 1:
            notes.append(said("noted.commands", count=len(self.launches), line=min(lines.values())))
        inside = {name for names in unresolved.values() for name in names}
        for wait, line in loose.items():
            if wait not in inside:
                notes.append(said("noted.options", wait=waiting(wait), line=line, name=wait.split(",")[0]))
        rest = {name: text for name, text in self.sets.items() if name not in self.used}
        own = {name: value_of(text) for name, text in rest.items()}
        unresolved = {name: waits for name, waits in unresolved.items() if name not in own}
        nodes = elastic({**values, **own})
        if nodes is not None:
            unresolved["nnodes"] = (
                f"the number of nodes: {nodes} is elastic and may be any from its least to its most",
            )
        world = world_of_launcher({**values, **own}, unresolved, self.slurm)
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


def _goes_on(name: str, values: list[Word]) -> bool:
    """Whether a value is `"$NAME …"`, the old one and more words."""
    if len(values) != 1:
        return any(("variable", name, None) in word.pieces for word in values)
    pieces = values[0].pieces
    place = next((at for at, piece in enumerate(pieces) if piece[:2] == ("variable", name)), None)
    if place is None:
        return False
    beside = pieces[:place][-1:] + pieces[place + 1 : place + 2]
    return any(kind == "text" and re.search(r"^\s|\s$", text) for kind, text, _ in beside)


def _inside(words: list[Word]) -> str:
    """What stands between `((` and `))`."""
    texts = [_raw(word) for word in words]
    end = len(texts) - 2 if texts[-2:] == [")", ")"] else len(texts)
    return " ".join(texts[2:end])


def _has_variable(word: Word) -> bool:
    return any(piece[0] != "text" for piece in word.pieces)


def _split(item: Item) -> list[Item]:
    """The words a text becomes when a shell fills it in outside quotes."""
    parts = [item._replace(held=part.strip("\"'")) for part in item.held.split()]
    return [part for part in parts if part.text or part.waits]


def _raw(word: Word) -> str:
    return "".join(f"${piece[1]}" if piece[0] == "variable" else piece[1] for piece in word.pieces)
