"""The words of a shell script, as text and as what only a shell could fill in.  Nothing is ever run or looked up.

A word is a list of pieces: ("text", t), ("variable", name, default or None), the same as "unset" where the default is
only for a name that is not set, and as "instead" where it is for one that is; ("arithmetic", …); ("unknown", what
stands there).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

Piece = tuple[str, str, "str | None"]

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9]|[@*#?$!-]")
_BRACED = re.compile(r"([A-Za-z_]\w*|[0-9@*])(\[[@*]\])?(?:(:?[-=+])(.*))?", re.DOTALL)
# What is not known, or where a value came from, stands between these in text that a script evaluates.
MARKS = re.compile("[\0\1\2]")
_PLAIN = re.compile("[^ \t\r\n;|&()<'\"$`\\\\\0\2]+")
_IN_QUOTES = re.compile('[^"\\\\$`\0\2]+')
_HEREDOC = re.compile(r"""<<-?[ \t]*(?:'([^'\n]+)'|"([^"\n]+)"|\\?([^\s'"\\;|&()<>$`]+))""")
_SENDS = re.compile(r"[<>]&")
_KINDS = {"-": "unset", "=": "unset", "+": "instead", ":+": "instead"}
_CLOSED_BY = {"(": ")", "{": "}", '"': '"'}
_BRACKETS = re.compile(r"[()]")
_BRACES = re.compile(r"[{}]")
_ENDS = "\n;|&"
_MARKED = "\0\2"


class Word:
    """One word of a script: its pieces, the line it stands on, and whether any of it was in quotes.

    `after` is what stands between the command it begins and the one before, such as "&&"; "" for other words.
    `document` is the here-document of the command it begins, as one word.
    """

    __slots__ = ("_fresh", "_pieces", "after", "document", "line", "quoted")

    def __init__(self, line: int, pieces: Iterable[Piece] = (), *, quoted: bool = False) -> None:
        self.line = line
        self._pieces = list(pieces)
        self._fresh: list[str] = []  # text that is no piece yet, in parts: joining it once keeps long words cheap
        self.quoted = quoted
        self.after = ""
        self.document: Word | None = None

    def add(self, text: str) -> None:
        """More plain text."""
        self._fresh.append(text)

    def put(self, kind: str, what: str, fallback: str | None = None) -> None:
        """A piece that a shell fills in."""
        self.pieces.append((kind, what, fallback))

    @property
    def pieces(self) -> list[Piece]:
        """What it is made of; plain text that stands together is one piece."""
        if self._fresh:
            text = "".join(self._fresh)
            self._fresh.clear()
            if self._pieces and self._pieces[-1][0] == "text":
                text = self._pieces.pop()[1] + text
            self._pieces.append(("text", text, None))
        return self._pieces

    @property
    def text(self) -> str:
        """The plain text at the start of the word."""
        pieces = self.pieces
        return pieces[0][1] if pieces and pieces[0][0] == "text" else ""


def commands(text: str) -> Iterator[list[Word]]:
    """The simple commands of a script, one list of words each; "(", "((" and ")" are words of their own.

    Cost: O(text).

    >>> [[piece for piece in word.pieces] for word in next(commands("run --tp ${TP:-2} # x"))][2]
    [('variable', 'TP', '2')]
    """
    reader = _Reader(text)
    between = ""
    while reader.place < len(text):
        words = reader.command()
        if words:
            words[0].after = between
            between = ""
            yield words
        if reader.ended != "\n" or not between:  # an operator goes on over the ends of lines
            between = (between + reader.ended).strip("\n")[-2:]


def quoted(text: str, line: int) -> Word:
    """The word that a text is between double quotes.

    >>> quoted("$A-1", 3).pieces
    [('variable', 'A', None), ('text', '-1', None)]
    """
    word = Word(line)
    _Reader('"' + text.strip("\"'").replace('"', "") + '"')._double(word)
    return word


def document(text: str, line: int, *, quoted: bool) -> Word:
    """The word that a here-document is: as it stands where its end is `quoted`, else with variables to fill in."""
    word = Word(line)
    if quoted:
        word.add(text)
    else:
        reader = _Reader(text)
        reader.place = -1
        reader._double(word, closes="")
    return word


def _tests(words: list[Word]) -> bool:
    """Whether these words begin a `[[ … ]]` that is still open, in which && and || end nothing."""
    return any(word.text == "[[" for word in words[:4]) and all(word.text != "]]" for word in words[-4:])


class _Reader:
    """A place in the text, moved on by every method."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.line = 1
        self.ended = ""  # the character that ended the last command
        self.paired = True  # whether quotes inside brackets were closed so far
        # Here-documents whose text begins on the next line: the words they stand among, the end, whether in quotes.
        self.waiting: list[tuple[list[Word], str, bool]] = []

    def command(self) -> list[Word]:  # noqa: PLR0912, PLR0915
        words: list[Word] = []
        word: Word | None = None
        inside = False  # an array such as NAME=( …
        text = self.text
        while self.place < len(text):
            char = text[self.place]
            if char == "\\" and self.place + 1 < len(text):
                following = text[self.place + 1]
                self.place += 2
                if following == "\n":
                    self.line += 1
                    continue
                word = word or self._word(words)
                word.add(following)
            elif char in " \t\r":
                self.place += 1
                word = None
            elif char == "#" and word is None:
                self._skip_to("\n")
            elif char == "&" and (
                text[self.place - 1 : self.place] in ("<", ">") or text[self.place + 1 : self.place + 2] == ">"
            ):
                word = word or self._word(words)  # 2>&1 and &> send output elsewhere
                word.add(char)
                self.place += 1
            elif char in "|&" and _tests(words):
                word = word or self._word(words)
                word.add(char)
                self.place += 1
            elif char in _ENDS:
                self.place += 1
                self.ended = char
                if char == "\n":
                    self.line += 1
                    self._skip_documents()
                    if inside:  # an array goes on over lines
                        word = None
                        continue
                return words
            elif char == "(" and word is not None and text[self.place - 1] in "<>":  # <(…) stands for a file
                end = self._closing(self.place)
                word.add(text[self.place : end])
                self._move(end)
            elif char in "()":
                double = not inside and word is None and text.startswith("((", self.place)
                self.place += 1 + double
                single = Word(self.line)
                single.add("((" if double else char)
                inside = char == "(" and (inside or bool(words and words[-1].text.endswith("=")))
                words.append(single)
                word = None
            elif text.startswith("<<<", self.place):  # text for a command to read
                word = word or self._word(words)
                word.add("<<<")
                self.place += 3
            elif text.startswith("<<", self.place) and not (words and words[0].text == "(("):
                match = _HEREDOC.match(text, self.place)
                if match:
                    quoted = not match[3] or "\\" in match[0]
                    self.waiting.append((words, match[1] or match[2] or match[3], quoted))
                self.place = match.end() if match else self.place + 2
                word = None
            else:
                word = word or self._word(words)
                self._piece(word)
        return words

    def _word(self, words: list[Word]) -> Word:
        words.append(Word(self.line))
        return words[-1]

    def _piece(self, word: Word) -> None:
        """What begins at this place: a quote, something a shell fills in, or plain characters."""
        char = self.text[self.place]
        if char == "'":
            end = self._find("'", self.place + 1)
            word.add(self.text[self.place + 1 : end])
            word.quoted = True
            self._move(end + 1)
        elif char == '"':
            self._double(word)
        elif char == "$":
            self._dollar(word, bare=True)
        elif char == "`":
            end = self._find("`", self.place + 1)
            word.put("unknown", self.text[self.place : end + 1])
            self._move(end + 1)
        elif char in _MARKED:
            self._mark(word)
        else:
            match = _PLAIN.match(self.text, self.place + 1)
            end = match.end() if match else self.place + 1
            word.add(self.text[self.place : end])
            self.place = end

    def _mark(self, word: Word) -> None:
        """A mark stays whole, whatever characters stand in it."""
        end = self._find(self.text[self.place], self.place + 1) + 1
        word.add(self.text[self.place : end])
        self.place = min(end, len(self.text))

    def _double(self, word: Word, *, closes: str = '"') -> None:
        """What stands between double quotes, or as if it did up to the end of the text."""
        word.quoted = True
        self.place += 1
        while self.place < len(self.text) and self.text[self.place] != closes:
            char = self.text[self.place]
            if char == "\\" and self.place + 1 < len(self.text):
                following = self.text[self.place + 1]
                word.add("" if following == "\n" else following if following in '"\\$`' else "\\" + following)
                self._move(self.place + 2)
            elif char == "$":
                self._dollar(word)
            elif char == "`":
                self._piece(word)
            elif char in _MARKED:
                self._mark(word)
            else:
                match = _IN_QUOTES.match(self.text, self.place)
                end = match.end() if match else self.place + 1
                word.add(self.text[self.place : end])
                self._move(end)
        if not word.pieces:  # "" is a word too
            word.add("")
        self.place += 1

    def _dollar(self, word: Word, *, bare: bool = False) -> None:
        """What begins with a dollar sign, `bare` where it stands outside quotes."""
        text, start = self.text, self.place
        if text.startswith("$((", start):
            end = self._closing(start + 1)
            word.put("arithmetic", text[start + 3 : max(start + 3, end - 2)])
            self._move(end)
        elif text.startswith("$(", start):
            end = self._closing(start + 1)
            word.put("unknown", text[start:end])
            self._move(end)
        elif text.startswith("${", start):
            end = self._closing(start + 1)
            match = _BRACED.fullmatch(text, start + 2, end - 1)
            if match:
                word.put(_KINDS.get(match.group(3), "variable"), match.group(1), match.group(4))
            else:
                word.put("unknown", text[start:end])
            self._move(end)
        else:
            match = _NAME.match(text, start + 1)
            if match:
                word.put("variable", match.group())
                self.place = match.end()
            elif bare and text[start + 1 : start + 2] in ("'", '"'):  # $'…' is quoted text
                self.place += 1
            else:
                word.add("$")
                self.place += 1

    def _closing(self, start: int) -> int:
        """Behind the bracket that closes the one at `start`, or the end of the text; those in quotes do not count."""
        text = self.text
        if self.paired:
            open_ = [_CLOSED_BY[text[start]]]
            place = start + 1
            while place < len(text):
                char = text[place]
                place += 1
                if char == "\\":
                    place += 1
                elif char == open_[-1]:
                    open_.pop()
                    if not open_:
                        return place
                elif char == "'" and open_[-1] == ")":
                    place = self._find("'", place) + 1
                elif char == '"' or (char == "(" and open_[-1] == ")"):
                    open_.append(_CLOSED_BY[char])
                elif char == "$" and text[place : place + 1] in ("(", "{"):
                    open_.append(_CLOSED_BY[text[place]])
                    place += 1
            self.paired = False  # an apostrophe in a comment, and no quote can be relied on
        depth = 0
        for match in (_BRACES if text[start] == "{" else _BRACKETS).finditer(text, start):
            depth += 1 if match.group() == text[start] else -1
            if depth == 0:
                return match.end()
        return len(text)

    def _find(self, wanted: str, start: int) -> int:
        found = self.text.find(wanted, start)
        return found if found >= 0 else len(self.text)

    def _move(self, place: int) -> None:
        place = min(place, len(self.text))
        self.line += self.text.count("\n", self.place, place)
        self.place = place

    def _skip_to(self, wanted: str) -> None:
        self._move(self._find(wanted, self.place))

    def _skip_documents(self) -> None:
        """Take the here-documents that the line before began out of the text; the command keeps its last one."""
        for words, end, quoted in self.waiting:
            start = self.place
            self._move(self._end_of_document(end))
            if words:
                text = self.text[start : self.place].rpartition("\n")[0]
                words[0].document = document(text, words[0].line, quoted=quoted)
        self.waiting.clear()

    def _end_of_document(self, end: str) -> int:
        """Behind the line that is `end` alone, or the end of the text."""
        start = self.place
        while start < len(self.text):
            stop = self._find("\n", start)
            if self.text[start:stop].lstrip("\t") == end:
                return stop
            start = stop + 1
        return len(self.text)
