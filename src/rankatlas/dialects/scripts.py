"""A launch script or a command line, read as far as its text goes: what it would start, with which options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise

from rankatlas.catalogue import said
from rankatlas.dialects.arithmetic import assigned, integer
from rankatlas.dialects.given import Given
from rankatlas.dialects.launch_options import OPTION, SHORT, Item, mark
from rankatlas.dialects.shell_blocks import CLOSES, Blocks
from rankatlas.dialects.shell_builtins import SETTING, STARTS_NOTHING, changed
from rankatlas.dialects.shell_commands import (
    ASSIGNMENT,
    SHELL,
    assignments,
    end_of_array,
    inside,
    only_grows,
    reads_variables,
)
from rankatlas.dialects.shell_functions import Functions, parameters
from rankatlas.dialects.shell_launches import LAUNCHERS, Launches, may_start
from rankatlas.dialects.shell_values import UnknownError, Value, Variables, default, goes_on, raw
from rankatlas.dialects.shell_words import MARKS, Word, commands
from rankatlas.errors import SourceError, shown

_MOST_TEXT = 1 << 18  # characters of a script, and of all that it evaluates
_MOST_OPENED = 64  # blocks that begin in one command
_MOST_ITEMS = 5000  # of one array
_MOST_EVALS = 4  # inside one another
_FED = ("sbatch", "ssh")  # like a shell, they run what they read
_FLAG = re.compile(r"-[a-z]*c")
_FLAGS = re.compile(r"[-+][A-Za-z]+|--[a-z]+|[a-z]*pipefail|errexit|nounset|xtrace")  # of a shell, before its -c
# What Slurm sets from the directives of a script.
_SLURM = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "ntasks_per_node": ("SLURM_NTASKS_PER_NODE",),
    "gpus_per_node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
}
_AN_OPTION = re.compile(r"(?:^|\s)(?:--[a-z][\w.-]*(?:=|\s)|'?\+{0,2}[a-z]\w*\.[\w.]+=)")
_A_START = re.compile(
    r"^[ \t]*(?:\w+=\S*[ \t]+)*"
    r"(?:export[ \t]+\w+=|torchrun|deepspeed|accelerate launch|srun|mpirun|python[\d.]*|fleetrun)\b",
    re.MULTILINE,
)
_DIRECTIVE = re.compile(r"^#(?:SBATCH|PBS)\s+(.*)$", re.MULTILINE)
_DECLARE = ("export", "declare", "local", "readonly", "typeset")
_BEFORE = (*_DECLARE, "then", "else", "do", "env", "!", "time")
_SURE = ("cd", "echo", "mkdir", "set", "true", ":", "source", ".", "ulimit", "unset")
_A_COMMAND = re.compile(r"(torchrun|deepspeed|accelerate|python[\d.]*|\.py)\s.*?(--|\w\.\w+=)", re.DOTALL)


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
    """The options of the command that starts a training (the last of several), and what its launcher says of ranks.

    Variables have the values the script gives them outside branches, or those of `sets`, which win; the text of an
    `eval` is read like the script around it.  Nothing is executed: what `$(…)`, a branch or the environment would fill
    in stays unresolved.  Cost: O(text), and the text that its variables make.

    Raises SourceError (too long, or variables that make too much text).

    >>> read_script("TP=2\\npython pretrain.py --tp $TP --pp $PP", "run.sh", {"PP": "4"}).values_
    {'tp': 2, 'pp': 4}
    >>> read_script("CMD='python pretrain.py --tp 2'\\neval $CMD", "run.sh", {}).values_
    {'tp': 2}
    """
    if len(text) > _MOST_TEXT:
        raise SourceError(f"{shown(source)} is larger than 256 KiB, too large for a script", source=source)
    text = MARKS.sub("", text)
    script = _Script(Variables({name: MARKS.sub("", value) for name, value in sets.items()}, source))
    place, line = 0, 1
    for match in _DIRECTIVE.finditer(text):
        line += text.count("\n", place, match.start())
        place = match.start()
        script.directive(match.group(1), line)
    for words in commands(text):
        script.command(words)
    return script.given(source)


class _Script:
    """What is known after the commands read so far."""

    def __init__(self, variables: Variables) -> None:
        self.variables = variables
        self.blocks = Blocks()
        self.launches = Launches()
        self.functions = Functions()
        self.declares = False  # whether the command at hand is an `export` or the like
        self.ended = ""  # "exit" or "return" where nothing more runs, of the script or of the function
        self.piped = 0  # how many launches there were before the pipeline at hand
        self.succeeds = False  # whether the last command cannot fail
        self.slurm: dict[str, int] = {}
        self.notes: list[str] = []
        self.split: str | None = None  # the note on a command that a new line ends too early
        self.outer: list[Item] = []  # what stands before the text that is read
        self.evals = 0  # how many stand inside one another
        self.evaluated = 0  # characters

    def given(self, source: str) -> Given:
        """Everything about the last launch."""
        if not self.launches.count:
            self.ended = ""
            for name in self.functions.uncalled():
                self.blocks.open("{")
                self._call(name, None)
                self._close()
        notes = [*([self.split] if self.split else []), *self.notes]
        return self.launches.given(source, notes, self.variables.sets, self.variables.used, self.slurm)

    def directive(self, rest: str, line: int) -> None:
        """`#SBATCH --nodes=4`, which says how many ranks there will be."""
        rest = re.sub(r"(^|\s)-([nN])(?=\d)", r"\1-\2 ", rest)  # -N4
        for option, value in re.findall(r"--?([\w-]+)(?:=|\s+)(?!-)(\S+)", rest):
            name = SHORT.get(f"-{option}", option).replace("-", "_")
            if name == "gres" and value.startswith("gpu"):
                name = "gpus_per_node"
            if name in _SLURM and value.split(":")[-1].isdigit():
                self.slurm[name] = int(value.split(":")[-1][:18])
                for variable in _SLURM[name]:
                    held = mark("\2", f"#SBATCH {variable} {line}") + str(self.slurm[name])
                    self.variables.write(variable, Value([Item(held, line)]))

    def command(self, words: list[Word]) -> None:
        """One simple command: it sets variables, opens or closes a branch, or starts something."""
        if self.ended:
            return
        whole = words
        defining = self.functions.defining
        if words[0].after != "|":
            self.piped = self.launches.count
        self.blocks.follow(words[0].after, self.succeeds)
        self.succeeds = self.declares = False
        words, condition = self._opened(words)
        while words:
            ends = self.blocks.ends(words)
            if ends:
                self._run(words[:ends], condition)
            if ends < len(words):
                self._close()
            words = words[ends + 1 :]
        if defining:
            self.functions.take(whole, len(self.blocks))

    def _opened(self, words: list[Word]) -> tuple[list[Word], bool]:  # noqa: PLR0912
        """What stands behind the words that open and close blocks, and whether it is a condition."""
        condition = False
        for _ in range(_MOST_OPENED):
            if not words or words[0].quoted:
                break
            first = words[0].text
            texts = [word.text for word in words[:3]]
            if first in CLOSES:
                self._close()
                return [word for word in words[1:] if word.text in ("(", ")")], False
            if first == "((":
                self._calculate(inside(words), words[0].line)
                return [], False
            if first == "function" or texts[1:] == ["(", ")"]:
                words = words[first == "function" :]
                name, words = words[0].text if words else "", words[1:]
                words = words[2:] if [word.text for word in words[:2]] == ["(", ")"] else words
                self.blocks.pending = name
            elif first in ("{", "("):
                name = self.blocks.pending
                self.blocks.open_group(first)
                words = words[1:]
                if name and first == "{":
                    self.functions.define(name, len(self.blocks), words)
            elif first in ("for", "select", "case"):
                self.blocks.open(first)
                if first != "case" and len(words) > 1 and words[1].text.isidentifier():
                    self._lose(words[1].text, "set by a loop", words[0].line)
                words = words[next((at + 1 for at, word in enumerate(words) if word.text == "in"), len(words)) :]
                if first != "case":
                    return [], False
            elif first in ("if", "while", "until", "elif"):
                condition, words = True, words[1:]
                if first != "elif":
                    self.blocks.open(first)
            elif first in _BEFORE:
                words = words[1:]
                while first in _DECLARE and words and re.fullmatch(r"[-+][A-Za-z]+", words[0].text):
                    words = words[1:]
                self.declares = self.succeeds = first in _DECLARE
                for word in words if first == "local" else ():
                    self.functions.local(word.text.partition("=")[0].rstrip("+"), self.variables)
            else:
                end = self.blocks.pattern(words)
                if not end:
                    break
                words = words[end:]
        return words, condition

    def _close(self) -> None:
        """The innermost block ends; what a subshell set is forgotten."""
        for name, value in self.blocks.close().items():
            self.variables.write(name, value)

    def _run(self, words: list[Word], condition: bool) -> None:
        """A command without the words that open a block: its assignments, and what it sets or starts."""
        before = assignments(words)
        rest = words[before:]
        if not rest or self.declares:
            self._assign(words[:before])
            self.succeeds = True
            return
        first = rest[0].text
        self.succeeds = first in _SURE
        if self._own(first, rest):
            return
        held = {}
        if reads_variables(rest) or first in self.functions:  # what it sets lasts as long as it
            names = [ASSIGNMENT.match(word.text) for word in words[:before]]
            held = {match[1]: self.variables.get(match[1]) for match in names if match}
            self._assign(words[:before])
        if first != "eval" or not self._evaluate(rest, condition):
            self._start(rest, condition)
        for name, value in held.items():
            self._write(name, value)

    def _own(self, name: str, words: list[Word]) -> bool:
        """Do what a command of the shell's own does to what is known; False where it is none of these."""
        if name in ("source", ".") and len(words) > 1:
            self.notes.append(said("unread.script", line=words[0].line, script=shown(raw(words[1]))))
        elif name == "let":
            for word in words[1:]:
                self._calculate(raw(word), word.line)
        elif name == ":":
            self._defaults(words)
        elif name in ("exit", "return"):
            self._end(name)
        elif name in ("set", "shift"):
            self._shift(name, words[1:])
        elif name == "unset" and not self.blocks.unsure:
            for word in words[1:]:
                if word.text in self.variables:
                    self._write(word.text, None)
        else:
            return name in STARTS_NOTHING
        return True

    def _end(self, how: str) -> None:
        """`exit` and `return`, which end everything where they run for sure, and outside a subshell."""
        if not self.blocks.unsure and not self.blocks.in_shells and (how == "exit" or self.functions.running):
            self.ended = how

    def _start(self, words: list[Word], condition: bool) -> None:
        """A command that is no word of the shell's own: a function, text for a shell, a launch."""
        first = words[0].text
        if len(words[0].pieces) == 1 and self._call(first, self._filled(words[1:])):
            return
        how, names = changed(first, [raw(word) for word in words[1:]]) if first in SETTING else ("", [])
        for name in names:
            self._lose(name, how, words[0].line)
        if (condition and not LAUNCHERS.search(first)) or (names and first != "eval") or self._shell(words):
            return
        if may_start(words) and not self.functions.defining and self.launches.count == self.piped:
            items = [*self.outer, *self._filled(words)]
            self._quoted(items)
            self.launches.add(items)
            if first == "exec" and len(words) > 1 and words[1].text[:1] not in ("", ">", "<", "&"):
                self._end("exit")

    def _call(self, name: str, items: list[Item] | None) -> bool:
        """Read the body of a function again, called with these; False where there is no such function."""
        body = self.functions.body(name)
        if body is None:
            return False
        self.functions.enter(self.variables, items)
        with self._elsewhere():
            for place, words in enumerate(body):
                if not place:
                    words[0].after = ""
                self.command(words)
        if self.ended == "return":
            self.ended = ""
        self.functions.leave(self.variables)
        return True

    @contextmanager
    def _elsewhere(self) -> Iterator[None]:
        """Around commands that do not stand where the reading is, but run there."""
        depth, chained = len(self.blocks), self.blocks.enter()
        yield
        while len(self.blocks) > depth:
            self._close()
        self.blocks.leave(chained)

    def _shift(self, name: str, words: list[Word]) -> None:
        """`set -- …` and `shift`, which say what `$1` and its neighbours are."""
        held = self.variables.get("@")
        if name == "set":
            place = next((at for at, word in enumerate(words) if word.text == "--"), None)
            if place is not None:
                parameters(self.variables, None if self.blocks.unsure else self._filled(words[place + 1 :]))
        elif held is not None:
            count = words[0].text if words else "1"
            known = count.isdigit() and len(count) < 5 and not self.blocks.unsure
            parameters(self.variables, held.items[int(count) :] if known else None)

    def _defaults(self, words: list[Word]) -> None:
        """`: ${NAME:=value}` sets NAME unless it is set."""
        if self.blocks.unsure:
            return
        for kind, name, fallback in (piece for word in words[1:] for piece in word.pieces):
            if kind in ("variable", "unset") and fallback is not None and self.variables.empty(name):
                self._write(name, Value([Item(default(name, fallback, words[0].line), words[0].line)]))

    def _evaluate(self, words: list[Word], condition: bool) -> bool:
        """Read the text of an `eval` as commands; False where it is nested too deep or too long for that."""
        return not condition and self._read(" ".join(map(self.variables.fill, words[1:])), words[0].line)

    def _read(self, text: str, line: int, *, quoted: bool = False) -> bool:
        """Read the commands of a text, all of which stand on one line; False where that is too much.

        In `quoted` text a shell runs every line as a command of its own, also one that was meant to go on.
        """
        self.evaluated += len(text)
        if self.evals == _MOST_EVALS or self.evaluated > _MOST_TEXT:
            return False
        self.evals += 1
        with self._elsewhere():
            for place, inner in enumerate(commands(text)):
                for word in inner:
                    word.line = line
                if quoted and place and inner[0].text.startswith("--") and OPTION.match(inner[0].text):
                    self.split = self.split or said("noted.newline", line=line, option=shown(inner[0].text))
                    continue
                self.command(inner)
        self.evals -= 1
        return True

    def _shell(self, words: list[Word]) -> bool:
        """Read `srun … bash -c TEXT`, whose launches have the words before it as well, or a here-document for a shell.

        False without such a text.
        """
        for place, shell in enumerate(words):
            if not SHELL.search(shell.text):
                continue
            at = next((at for at in range(place + 1, len(words)) if not _FLAGS.fullmatch(words[at].text)), len(words))
            if at < len(words) and _FLAG.fullmatch(words[at - 1].text):
                text = words[at]
                before, self.outer = self.outer, [*self.outer, *self._filled(words[:place])]
                read = self._read(f"({self.variables.fill(text)}\n)", text.line, quoted=True)
                self.outer = before
                return read
        document = words[0].document
        if document is not None and any(SHELL.search(word.text) or word.text in _FED for word in words):
            return self._read(f"({self.variables.fill(document)}\n)", document.line)
        return False

    def _filled(self, words: list[Word]) -> list[Item]:
        return [item for word in words for item in self.variables.expand(word)]

    def _quoted(self, items: list[Item]) -> None:
        """A note on `torchrun …` in quotes behind something that is not known to run it."""
        for before, item in pairwise(items):
            if (_FLAG.fullmatch(before.text) or before.text == "eval") and _A_COMMAND.search(item.text):
                self.notes.append(said("noted.quoted", line=item.line, command=shown(item.text[:80])))

    # What the script sets

    def _write(self, name: str, value: Value | None) -> None:
        self.blocks.remember(name, self.variables.get(name))
        self.variables.write(name, value)

    def _lose(self, name: str, how: str, line: int) -> None:
        """The value of a variable is not known from here on."""
        if name not in self.variables.sets:
            self._write(name, Value([Item(mark("\0", f"{name}, {how} on line {line}"), line)]))

    def _calculate(self, text: str, line: int) -> None:
        """`((TP *= 2))` and `let`."""
        for name, expression in assigned(text):
            try:
                if self.blocks.unsure:
                    raise SourceError("in a branch", source="")
                value = str(integer(expression, self.variables.number))
            except (SourceError, UnknownError):
                self._lose(name, "set in a branch" if self.blocks.unsure else "calculated", line)
            else:
                if name not in self.variables.sets:
                    self._write(name, Value([Item(value, line)]))

    def _assign(self, words: list[Word]) -> None:
        """Take these words, which are assignments."""
        place = 0
        while place < len(words):
            word = words[place]
            match = ASSIGNMENT.match(word.text)
            if match is None:  # a name alone, as in `export A=1 NAME`
                place += 1
                continue
            name, adds = match.groups()
            rest = word.text[match.end() :]
            pieces = [("text", rest, None), *word.pieces[1:]] if rest or len(word.pieces) == 1 else word.pieces[1:]
            value = Word(word.line, pieces, quoted=word.quoted)
            place += 1
            values, listed = [value], False
            if place < len(words) and words[place].text == "(" and len(value.pieces) == 1 and not value.text:
                end = end_of_array(words, place)
                values, listed, place = words[place + 1 : end], True, end + 1
            self._set(name, values, bool(adds), listed)

    def _set(self, name: str, values: list[Word], adds: bool, listed: bool) -> None:
        """`NAME=…` and `NAME+=…`; `listed` where the values stand in brackets."""
        if name in self.variables.sets:
            return
        held = self.variables.get(name)
        continues = held is not None and goes_on(name, values)
        if self.blocks.unsure:
            if not adds and not continues and held is not None and self._same(held, values):
                return
            line = values[0].line if values else 0
            lost = Item(mark("\0", f"{name}, set in a branch on line {line}"), line)
            grown = held.grown([lost], glued=False) if held is not None and (adds or continues) else Value([lost])
            self._write(name, grown)
        elif held is not None and not listed and not adds and only_grows(name, values[0]):
            more = Word(values[0].line, values[0].pieces[1:], quoted=True)
            self._write(name, held.grown(self.variables.expand(more), glued=True))
        else:
            items = [item for word in values for item in self.variables.expand(word)]
            if len(items) > _MOST_ITEMS:
                self.notes.append(
                    said("unread.items", line=values[0].line, name=name, count=len(items), most=_MOST_ITEMS)
                )
            value = items[:_MOST_ITEMS]
            grown = held.grown(value, glued=not listed and held.single) if held is not None and adds else Value(value)
            self._write(name, grown)

    def _same(self, held: Value, values: list[Word]) -> bool:
        return held.items == [item for word in values for item in self.variables.expand(word)]
