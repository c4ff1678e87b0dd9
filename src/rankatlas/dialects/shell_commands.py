"""What a simple command is made of: the assignments it begins with, arrays, a shell among its words."""

from __future__ import annotations

import re

from rankatlas.dialects.shell_values import raw
from rankatlas.dialects.shell_words import Word

SHELL = re.compile(r"(^|/)(ba|z|k|da)?sh$")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")


def assignments(words: list[Word]) -> int:
    """How many words at the beginning of a command are assignments."""
    place = 0
    while place < len(words) and words[place].pieces[:1] and words[place].pieces[0][0] == "text":
        match = ASSIGNMENT.match(words[place].text)
        if match is None:
            break
        alone = len(words[place].pieces) == 1 and match.end() == len(words[place].text)
        place += 1
        if alone and place < len(words) and words[place].text == "(":
            place = min(end_of_array(words, place) + 1, len(words))
    return place


def end_of_array(words: list[Word], place: int) -> int:
    """Where the bracket stands that closes the one at `place`."""
    return next((at for at in range(place, len(words)) if words[at].text == ")"), len(words))


def reads_variables(words: list[Word]) -> bool:
    """Whether a command is a shell or an `eval`, which sees what is set before it on its line."""
    return words[0].text == "eval" or any(SHELL.search(word.text) for word in words)


def only_grows(name: str, value: Word) -> bool:
    """Whether a value is `"$NAME…"`: what the variable holds, and more behind it."""
    return len(value.pieces) > 1 and value.pieces[0] == ("variable", name, None)


def inside(words: list[Word]) -> str:
    """What stands between `((` and `))`."""
    texts = [raw(word) for word in words]
    end = len(texts) - 2 if texts[-2:] == [")", ")"] else len(texts)
    return " ".join(texts[1:end])
