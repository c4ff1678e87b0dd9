"""Keys that are nearly one a reader looked for and did not find: slips of the pen, which no reader keeps to itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rankatlas.catalogue import Said, said
from rankatlas.dialects.given import Given
from rankatlas.errors import shown

_MOST_KEYS = 2000
_MOST_NOTES = 20
_LONGEST = 80  # characters of a key that is compared
_SHORTEST, _LONG = 6, 12  # characters from which one, and two, may be wrong
# Real names, of frameworks, launchers and programs, that are as near to one that is read.
_REAL = frozenset(("decoder_seq_length",))


def with_slips(given: Given, notes: Iterable[str], refused: str | None = None) -> list[str]:
    """The notes, and one on every key that is nearly a name `given` was asked for in vain.

    Such a note stands in the place of one that only says a key is not understood.  `refused` is the framework that
    stops at an option it does not know.  Cost: O(keys × names asked for).

    >>> given = Given({"sequence_paralel_size": 4}, source="")
    >>> given.at("sequence_parallel_size")
    >>> with_slips(given, [])
    ['sequence_paralel_size=4 is not understood and was left out; did you mean sequence_parallel_size?']
    """
    notes = list(notes)
    told = {note.numbers["name"]: note for note in notes if isinstance(note, Said) and "name" in note.numbers}
    found: dict[str, tuple[object, str]] = {}
    replaced: list[Said] = []
    for part, names in given.asked.items():
        inner = given.part(part) if part else given.values_
        for key, meant in near(inner, names).items():
            path = f"{part}.{key}" if part else key
            before = told.get(path, told.get(key))
            if (before is None or before.code == "unread.setting") and len(found) < _MOST_NOTES:
                found[path] = inner[key], f"{part}.{meant}" if part else meant
                replaced += [before] if before is not None else []
    kept = [note for note in notes if not any(note is one for one in replaced)]
    return kept + [slip(name, value, meant, refused) for name, (value, meant) in found.items()]


def slip(name: str, value: object, meant: str, refused: str | None = None) -> str:
    """The note on one such key."""
    if refused is not None:
        return said("unread.refused", name=name, value=shown(value), meant=meant, framework=refused)
    return said("unread.near", name=name, value=shown(value), meant=meant)


def near(held: Mapping[str, object], names: Iterable[str]) -> dict[str, str]:
    """Key → the name that is probably meant, for keys set to something that are one or two letters away from it.

    Keys that are `names` themselves are none.

    >>> near({"zero_optimisation": {}, "tp_size": 2, "num_layers": 8}, ["zero_optimization", "ep_size", "num_layers"])
    {'zero_optimisation': 'zero_optimization'}
    """
    names = tuple(names)
    wanted = [name for name in names if len(name) >= _SHORTEST and name not in held]
    found: dict[str, str] = {}
    if not wanted:
        return found
    for key, _ in zip(held, range(_MOST_KEYS)):
        if len(key) > _LONGEST or key in _REAL or key in names or held[key] in (None, False, "", -1):
            continue
        plain = key.lower().replace("-", "_")
        meant = next((name for name in wanted if plain == name or _alike(plain, name)), None)
        if meant is not None:
            found[key] = meant
    return found


def _alike(key: str, name: str) -> bool:
    """Whether a letter of a name, or two of a long one, make the difference; its first word, where short, must be."""
    most = 2 if len(name) >= _LONG else 1
    if abs(len(key) - len(name)) > most:
        return False
    head = name.partition("_")[0]
    if len(head) <= 3 and key.partition("_")[0] != head:  # tp_size and ep_size are two things
        return False
    third = len(name) // 3 or 1
    pieces = (name[:third], name[third : 2 * third], name[2 * third :])
    return any(piece in key for piece in pieces) and _within(key, name, most)


def _within(one: str, other: str, most: int) -> bool:
    """Whether at most so many letters are wrong, missing, too many or swapped.

    >>> _within("parallel", "paralel", 1), _within("size", "sieze", 1), _within("siez", "size", 1)
    (True, True, True)
    """
    place = next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    one, other = one[place:], other[place:]
    if not one or not other:
        return len(one) + len(other) <= most
    if not most:
        return False
    swapped = one[:2] == other[1::-1] and len(one) > 1 and len(other) > 1
    return (
        _within(one[1:], other[1:], most - 1)
        or _within(one[1:], other, most - 1)
        or _within(one, other[1:], most - 1)
        or (swapped and _within(one[2:], other[2:], most - 1))
    )
