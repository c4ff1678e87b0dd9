"""The notation: `pp=4 dp=? tp=8`, read with a caret at whatever is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from rankatlas.core.atlas import RESERVED, Atlas
from rankatlas.core.border import as_int
from rankatlas.core.mesh import Mesh
from rankatlas.core.sizes import resolve
from rankatlas.errors import InputError, NotationError, shown

_WINDOW = 70  # characters of the text an error shows
_MOST_AXES = 1000  # nobody writes more down; some questions cost the square of their number
_MOST_DIGITS = 20  # a longer number cannot fit 64 bits, and int() must not be fed a megabyte

_WORLD_NEEDED = "a size left open follows from the world size, which is not given"
_ALL_GIVEN = "in an atlas every size is given: its charts need not cover the same ranks, so no world size settles one"


def parse_mesh(text: str, world_size: int | None = None) -> Mesh:
    """The mesh that `text` describes: items `name=size`, major → minor, separated by white space.

    A size is a positive integer; at most one may be `?` (or `-1`) and is inferred from `world_size`, which
    otherwise must equal the product.  `first_rank=N` shifts the mesh.  `parse_mesh(str(mesh)) == mesh`.

    Cost: O(text).  Raises NotationError with the offending character's position (the message carries a caret),
    WorldSizeError when sizes and world do not fit, and the errors of `Mesh`.

    >>> parse_mesh("pp=4 dp=? tp=8", world_size=64)
    Mesh(pp=4, dp=2, tp=8)
    >>> parse_mesh("dp=2 tp=x")
    Traceback (most recent call last):
    rankatlas.errors.NotationError: dp=2 tp=x
            ^
    size must be a positive integer or ?, not 'x'
    """
    if not isinstance(text, str):
        raise InputError(f"mesh notation is text such as 'pp=4 dp=2 tp=8', not {type(text).__name__}")
    return parse_part(text, 0, len(text), world_size)


def parse_atlas(text: str) -> Atlas:
    """The atlas that `text` describes: `chart: mesh; chart: mesh; shared: axis axis`.

    `parse_atlas(str(atlas)) == atlas`.  Cost: O(text).  Raises NotationError with a caret, and the errors of `Atlas`.

    >>> parse_atlas("dense: pp=2 dp=4; expert: pp=2 ep=4; shared: pp")
    Atlas(dense=Mesh(pp=2, dp=4), expert=Mesh(pp=2, ep=4), shared=('pp',))
    """
    if not isinstance(text, str):
        raise InputError(f"atlas notation is text such as 'a: dp=8; b: ep=8', not {type(text).__name__}")
    charts: dict[str, Mesh] = {}
    shared: dict[str, int] = {}
    begin = 0
    whole = text.rstrip()[:-1] if text.rstrip().endswith(";") else text
    for part in whole.split(";"):
        end = begin + len(part)
        name, colon, body = part.partition(":")
        start = begin + len(name) - len(name.lstrip())
        if not colon:
            raise notation_error(text, start, "a chart is written 'name: axis=size …'")
        chart = name.strip()
        if chart in charts or (chart == RESERVED and shared):
            raise notation_error(text, start, f"{shown(chart)} stands twice")
        if chart == RESERVED:
            shared = _shared(text, end - len(body), end)
        elif not (chart.isascii() and chart.isidentifier()):
            raise notation_error(text, start, f"{shown(chart)} cannot name a chart; names are letters, digits and _")
        else:
            charts[chart] = parse_part(text, end - len(body), end, needed=_ALL_GIVEN)
        begin = end + 1
    for axis, at in shared.items():
        if not any(axis in mesh.axes for mesh in charts.values()):
            raise notation_error(text, at, f"no chart has the axis {shown(axis)}")
    return Atlas.from_charts(charts, tuple(shared))


def _shared(text: str, begin: int, end: int) -> dict[str, int]:
    """Shared axis → where it stands."""
    found: dict[str, int] = {}
    for start, stop in _words(text, begin, end):
        axis = text[start:stop]
        if "," in axis:
            raise notation_error(text, start + axis.index(","), "axes are separated by white space, not by commas")
        if axis in found:
            raise notation_error(text, start, f"{shown(axis)} stands twice")
        found[axis] = start
    if not found:
        raise notation_error(text, end, "'shared:' must be followed by axis names")
    return found


def parse_layout(text: str, world_size: int | None = None) -> Mesh | Atlas:
    """A mesh or an atlas, whichever the text is: only an atlas has a colon.  Errors as for both.

    A `world_size` must equal that of the layout; only a mesh may leave a size open.
    """
    if not isinstance(text, str) or ":" not in text:
        return parse_mesh(text, world_size)
    atlas = parse_atlas(text)
    if world_size is not None and atlas.world_size != as_int(world_size, "world size"):
        raise InputError(f"the atlas covers {atlas.world_size} ranks, the world size given is {world_size}")
    return atlas


def parse_part(text: str, begin: int, end: int, world_size: int | None = None, needed: str = _WORLD_NEEDED) -> Mesh:
    """The mesh that `text[begin:end]` describes; errors show the whole text.  As `parse_mesh`.

    `needed` is the complaint about a size left open where `world_size` is None.
    """
    sizes: dict[str, int | None] = {}
    first_rank: int | None = None
    open_at: int | None = None
    for start, stop in _words(text, begin, end):
        name, at = _name(text, start, stop)
        if name == "first_rank":
            if first_rank is not None:
                raise notation_error(text, start, "first_rank stands twice")
            first_rank = _number(text, at, stop, "first_rank must be 0 or a positive integer")
            continue
        if name in sizes:
            raise notation_error(text, start, f"axis {shown(name)} stands twice")
        if len(sizes) >= _MOST_AXES:
            raise notation_error(text, start, f"more than {_MOST_AXES} axes")
        if text[at:stop] in ("?", "-1"):
            if open_at is not None:
                raise notation_error(text, at, "only one size may be left open")
            open_at = at
            sizes[name] = None
        else:
            sizes[name] = _size(text, at, stop)
    if not sizes:
        raise notation_error(text, end, "a mesh needs at least one axis, such as dp=8")
    if world_size is not None:
        closed = resolve(sizes, world_size)
    else:
        closed = {axis: size for axis, size in sizes.items() if size is not None}
        if open_at is not None:
            raise notation_error(text, open_at, needed)
    return Mesh.from_axes(closed.items(), first_rank or 0)


def notation_error(text: str, position: int, complaint: str) -> NotationError:
    """The text, a caret under `position`, and the complaint: three lines.  Cost: O(1).

    >>> print(notation_error("dp=x", 3, "no size"))
    dp=x
       ^
    no size
    """
    return NotationError(f"{caret(text, position)}\n{complaint}", text=text, position=position)


def caret(text: str, position: int) -> str:
    """Two lines: the part of `text` around `position`, and a caret below it.  Cost: O(1).

    >>> print(caret("dp=x", 3))
    dp=x
       ^
    """
    begin = max(0, position - _WINDOW // 2)
    shown = text[begin : begin + _WINDOW]
    # One character each, so that the caret stays below its own.
    shown = "".join(char if char.isprintable() else " " for char in shown)
    lead = "..." if begin else ""
    tail = "..." if begin + _WINDOW < len(text) else ""
    return f"{lead}{shown}{tail}\n{' ' * (len(lead) + position - begin)}^"


def _words(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    start = begin
    for position in range(begin, end + 1):
        if position == end or text[position].isspace():
            if start < position:
                yield start, position
            start = position + 1


def _name(text: str, start: int, stop: int) -> tuple[str, int]:
    """The axis name of an item, and where its value begins."""
    for position in range(start, stop):
        char = text[position]
        if char == "=":
            if position == start:
                raise notation_error(text, start, "an axis name must stand before '='")
            return text[start:position], position + 1
        if char == ",":
            raise notation_error(text, position, "items are separated by white space, not by commas")
        if not (char.isascii() and (char.isalpha() or char == "_" or (char.isdigit() and position > start))):
            complaint = f"{shown(char)} cannot stand in an axis name; names are letters, digits and _, no digit first"
            raise notation_error(text, position, complaint)
    raise notation_error(text, stop, f"'=' and a size must follow {shown(text[start:stop])}, without spaces around '='")


def _size(text: str, start: int, stop: int) -> int:
    size = _number(text, start, stop, "size must be a positive integer or ?")
    if size == 0:
        raise notation_error(text, start, "size must be a positive integer or ?, not '0'")
    return size


def _number(text: str, start: int, stop: int, rule: str) -> int:
    if start == stop:
        raise notation_error(text, start, f"{rule}; none is given")
    for position in range(start, stop):
        char = text[position]
        if char == ",":
            raise notation_error(text, position, "items are separated by white space, not by commas")
        if not (char.isascii() and char.isdigit()):
            raise notation_error(text, position, f"{rule}, not {shown(text[start : min(stop, start + _WINDOW)])}")
    if stop - start > _MOST_DIGITS:
        raise notation_error(text, start, f"{rule} that 64 bits can hold")
    return int(text[start:stop])
