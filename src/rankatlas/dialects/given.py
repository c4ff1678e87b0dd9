"""What a source gives: names and values as it holds them, each with the place it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rankatlas.catalogue import said
from rankatlas.core.border import as_int
from rankatlas.dialects.literals import value_of
from rankatlas.errors import ArgumentsError, SourceError, shown

_NAME = re.compile(r"[A-Za-z_][\w.+-]*")


class Given(Mapping[str, Any]):
    """The settings of a source, name → value, nested where the source nests.

    `asked` are the names it was asked for and whether it has them, by the dotted path of the part they stand in.
    `kind` is what was read ("arguments block", "script", "file"), `dialect` whose it must be (None where the content
    has to tell), `lines` where each stands, `unresolved` name → the variables its value waits for, `notes` what is to
    be said about the reading.

    >>> given = Given({"a": {"b": 2}}, source="x.yaml")
    >>> given.at("a.b"), given.at("a.c"), given.origin("a.b")
    (2, None, 'given: a.b')
    """

    __slots__ = ("asked", "dialect", "kind", "lines", "notes", "origins", "source", "unresolved", "values_")

    def __init__(
        self,
        values: Mapping[str, Any],
        *,
        source: str,
        kind: str = "file",
        dialect: str | None = None,
        lines: Mapping[str, int] | None = None,
        unresolved: Mapping[str, tuple[str, ...]] | None = None,
        origins: Mapping[str, str] | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        self.values_ = dict(values)
        self.source = source
        self.kind = kind
        self.dialect = dialect
        self.lines = dict(lines or {})
        self.unresolved = dict(unresolved or {})
        self.origins = dict(origins or {})
        self.notes = tuple(notes)
        self.asked: dict[str, dict[str, bool]] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self.values_:  # what has it may only be looked at one after the other
            self._ask("", name, False)
        return self.values_[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)

    def at(self, path: str) -> Any:
        """The value at a dotted path, None where there is none."""
        found: Any = self.values_
        above: list[str] = []
        for name in path.split("."):
            there = isinstance(found, Mapping) and name in found
            self._ask(".".join(above), name, there)
            if not there:
                return None
            above.append(name)
            found = found[name]
        return found

    def _ask(self, part: str, name: object, there: bool) -> None:
        if isinstance(name, str):
            self.asked.setdefault(part, {})[name] = there

    def afresh(self) -> Given:
        """The same as if it had not been asked for anything."""
        return self._with(self.values_, self.origins, self.unresolved)

    def part(self, path: str) -> Mapping[str, Any]:
        """The settings at a dotted path, none where something else stands there."""
        found = self.at(path)
        return found if isinstance(found, Mapping) else {}

    def origin(self, name: str) -> str:
        """Where a value stands, in words."""
        if name in self.origins:
            return self.origins[name]
        return said("given.line", line=self.lines[name]) if name in self.lines else said("given.key", key=name)

    def size(self, path: str) -> int | None:
        """The positive integer at a path; None where nothing, None or -1 stands there.

        Raises IntegerError, SizeError.
        """
        value = self.at(path)
        if value is None or (type(value) is int and value == -1):
            return None
        from rankatlas.core.sizes import checked_size

        return checked_size(path, as_int(value, path), label=path)

    def flag(self, name: str) -> bool | None:
        """A setting that is on or off, None where it is not given.  Raises ArgumentsError for anything else.

        An option that takes no value is on even where words of unknown number follow it.
        """
        if name in self.unresolved:
            return True
        value = self.at(name)
        if value is None or isinstance(value, bool):
            return value
        if value in (0, 1) and type(value) is int:
            return bool(value)
        if isinstance(value, str) and value.strip().lower() in ("true", "false", "1", "0", "yes", "no"):
            return value.strip().lower() in ("true", "1", "yes")
        raise ArgumentsError(said("refused.flag", name=name, value=shown(value)), names=(name,))

    def with_settings(self, sets: Mapping[str, str]) -> Given:
        """The same with `--set NAME=VALUE` done: a dotted name reaches into nested settings.

        Raises SourceError (no name, or one that lies below a plain value).
        """
        values = _copy(self.values_)
        origins = dict(self.origins)
        unresolved = dict(self.unresolved)
        for path, text in sets.items():
            if not _NAME.fullmatch(path):
                raise SourceError(f"--set takes NAME=VALUE, not {shown(path)}", source=self.source)
            *above, name = path.split(".")
            inner = values
            for part in above:
                inner = inner.setdefault(part, {})
                if not isinstance(inner, dict):
                    raise SourceError(
                        f"--set {path}: {part} in {shown(self.source)} holds no settings", source=self.source
                    )
            inner[name] = value_of(text)
            origins[path] = said("given.key", key="--set")
            unresolved.pop(path, None)
        return self._with(values, origins, unresolved)

    def flat(self, sections: Iterable[str]) -> Given:
        """The settings of these sections (dotted paths, "" for the top) as one level; the first that has a name wins.

        >>> Given({"model": {"tp": 2}, "tp": None}, source="").flat(["", "model"])["tp"]
        2
        """
        launcher = self.values_.get("launcher")  # what a script's launcher says is of no section
        values: dict[str, Any] = {"launcher": launcher} if isinstance(launcher, Mapping) else {}
        origins = dict(self.origins)
        for section in sections:
            inner = self.values_ if not section else self.at(section)
            if not isinstance(inner, Mapping):
                continue
            for name, value in inner.items():
                if isinstance(value, Mapping) or values.get(name) is not None:
                    continue
                values[name] = value
                if section and f"{section}.{name}" in self.origins:
                    origins[name] = self.origins[f"{section}.{name}"]
                elif section and value is not None:
                    origins[name] = said("given.key", key=f"{section}.{name}")
        return self._with(values, origins, self.unresolved)

    def _with(
        self, values: Mapping[str, Any], origins: Mapping[str, str], unresolved: Mapping[str, tuple[str, ...]]
    ) -> Given:
        return Given(
            values,
            source=self.source,
            kind=self.kind,
            dialect=self.dialect,
            lines=self.lines,
            unresolved=unresolved,
            origins=origins,
            notes=self.notes,
        )


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as settings inside settings; a name that lies below a plain value stays as it is.

    >>> nested({"a.b": 1, "a.c": 2, "d": 3})
    {'a': {'b': 1, 'c': 2}, 'd': 3}
    """
    found: dict[str, Any] = {}
    for path, value in values.items():
        *above, name = path.split(".")
        inner = found
        for part in above[:20]:
            following = inner.setdefault(part, {})
            if not isinstance(following, dict):
                inner, name = found, path
                break
            inner = following
        inner[name] = value
    return found


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copy(value) if isinstance(value, Mapping) else value for name, value in values.items()}
