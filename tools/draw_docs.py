"""The pictures of the docs, drawn from rankatlas itself.

    python tools/draw_docs.py

writes docs/img/*.svg; the same release draws the same bytes.  Every picture brings its own card, light or dark as the
reader's system asks, so that it can be read on any page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from rankatlas import Atlas, Mesh

CELL, GAP = 34, 4  # a rank, and what separates two of them
STEP = CELL + GAP
PAD = 18
LINE = 18
# Light enough for dark figures, and told apart without red against green.
COLOURS = ("#9ecbf2", "#f7c67f", "#a8dcc0", "#f0b3d2", "#d9cf8a", "#c3b8ee", "#f3a99a", "#9adbe0")
STYLE = """
.card{fill:#fbfbfd;stroke:#cfd4dc}
.t{font:13px system-ui,sans-serif;fill:#2b3038}
.b{font-weight:600}
.s{font-size:12px;fill:#5b6270}
.n{font:12px ui-monospace,monospace;fill:#1d2129;text-anchor:middle}
.m{text-anchor:middle}
.e{fill:#e4e7ec}
.l{stroke:#5b6270;fill:none;stroke-width:1.5}
.f{stroke:#cfd4dc;fill:none}
@media (prefers-color-scheme:dark){
.card{fill:#20242d;stroke:#3c4350}
.t{fill:#e3e6ec}
.s{fill:#a9b1bf}
.e{fill:#aab0bb}
.l{stroke:#a9b1bf}
.f{stroke:#4a5262}
}
"""


class Picture:
    """An SVG that grows as things are put into it; `right` and `bottom` say how far it reaches."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []
        self.right = self.bottom = 0.0

    def text(self, x: float, y: float, words: str, kind: str = "t") -> None:
        """Words whose baseline begins (or, of a middle kind, has its middle) at x, y."""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>')
        width = len(words) * (7.6 if "b" in kind.split() else 6.6)
        self._reach(x + (width / 2 if "m" in kind.split() else width), y + 4)

    def cell(self, x: float, y: float, words: object, colour: str | None) -> None:
        """One rank; without a colour it is there, but not meant."""
        paint = 'class="e"' if colour is None else f'fill="{colour}"'
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{CELL}" height="{CELL}" rx="5" {paint}/>')
        self.parts.append(f'<text x="{x + CELL / 2:g}" y="{y + CELL / 2 + 4:g}" class="n">{escape(str(words))}</text>')
        self._reach(x + CELL, y + CELL)

    def path(self, way: str, kind: str = "l") -> None:
        """A line; it must stay inside what is drawn otherwise."""
        self.parts.append(f'<path d="{way}" class="{kind}"/>')

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """A box around something."""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" class="f"/>')
        self._reach(x + width, y + height)

    def svg(self) -> str:
        """The whole file."""
        width, height = round(self.right + PAD), round(self.bottom + PAD)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
            f' height="{height}" role="img"><title>{escape(self.title)}</title><style>{STYLE}</style>\n'
            f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10" class="card"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )

    def _reach(self, x: float, y: float) -> None:
        self.right, self.bottom = max(self.right, x), max(self.bottom, y)


def colour_of(mesh: Mesh, axes: Sequence[str], rank: int) -> str:
    return COLOURS[mesh.group(*axes, rank=rank).index % len(COLOURS)]


def strip(picture: Picture, x: float, y: float, mesh: Mesh, chosen: Iterable[int], colour: str) -> None:
    """All ranks in a row, those of one group in colour."""
    group = list(chosen)
    for rank in range(mesh.world_size):
        picture.cell(x + rank * STEP, y, rank, colour if rank in group else None)


def grid(picture: Picture, x: float, y: float, mesh: Mesh, axes: Sequence[str]) -> tuple[float, float]:
    """A mesh of three axes as blocks (first axis) of rows (second) of cells (third); answers its width and height."""
    outer, middle, inner = mesh.axes
    blocks, rows, columns = mesh.sizes
    width = columns * STEP - GAP
    for block in range(blocks):
        left = x + block * (width + 34)
        picture.text(left + width / 2, y + 12, f"{outer}={block}", "t s m")
        picture.frame(left - 8, y + 18, width + 16, rows * STEP - GAP + 16)
        for row in range(rows):
            top = y + 26 + row * STEP
            for column in range(columns):
                rank = mesh.rank(**{outer: block, middle: row, inner: column})
                picture.cell(left + column * STEP, top, rank, colour_of(mesh, axes, rank))
    return blocks * (width + 34) - 34, 42 + rows * STEP - GAP


def mixed_radix() -> Picture:
    """A rank is the value of its coordinate, read as digits whose weights are the strides."""
    mesh, rank = Mesh(pp=2, dp=2, tp=4), 10
    picture = Picture("A rank and its coordinate: places times strides")
    picture.text(PAD, PAD + 12, f"{mesh}: outer to inner, sizes {mesh.sizes}, strides {mesh.strides}", "t b")
    top = PAD + 30
    for at in range(mesh.world_size):
        picture.cell(PAD + at * STEP, top, at, COLOURS[0] if at == rank else None)
    y = top + CELL + 8
    for axis in reversed(mesh.axes):
        span = mesh.stride(axis)
        for block in range(mesh.world_size // span):
            place = block % mesh.size(axis)
            left = PAD + block * span * STEP
            inside = rank // span == block
            picture.path(f"M{left + 2:g} {y:g}v5h{span * STEP - GAP - 4:g}v-5", "l" if inside else "f")
            middle = left + (span * STEP - GAP) / 2
            picture.text(middle, y + 19, str(place), "t b m" if inside else "t s m")
        picture.text(PAD + mesh.world_size * STEP + 8, y + 18, f"place along {axis}, stride {span}", "t s")
        y += 32
    places = mesh.coordinate(rank)
    terms = " + ".join(f"{places[axis]}·{mesh.stride(axis)}" for axis in mesh.axes)
    picture.text(PAD, y + 16, f"rank {rank}: {places} and {terms} = {rank}", "t b")
    return picture


def groups() -> Picture:
    """The same ranks three times, coloured by group."""
    mesh = Mesh(pp=2, dp=2, tp=4)
    picture = Picture("The groups of one mesh along each axis")
    y = float(PAD)
    for axis in reversed(mesh.axes):
        found = mesh.groups(axis)
        picture.text(PAD, y + 12, f"{axis} groups: {len(found)} of size {found.size}", "t b")
        width, height = grid(picture, PAD + 8, y + 24, mesh, (axis,))
        first = ", ".join(str(list(group)) for group in found[:2])
        picture.text(PAD + width + 40, y + 68, f"{first}, …", "t s")
        picture.text(PAD + width + 40, y + 68 + LINE, f"stride {mesh.stride(axis)}", "t s")
        y += height + 42
    return picture


def progression() -> Picture:
    """A group along one axis: where it starts, its stride, its size."""
    mesh = Mesh(pp=2, dp=2, tp=4)
    picture = Picture("A group along one axis is an arithmetic progression")
    y = float(PAD)
    for axis, rank, colour in (("tp", 13, COLOURS[0]), ("dp", 3, COLOURS[1]), ("pp", 6, COLOURS[2])):
        group = mesh.group(axis, rank=rank)
        ranks = list(group)
        stride = mesh.stride(axis)
        told = f"{axis} group {group.index}: start {ranks[0]}, stride {stride}, size {group.size} → {ranks}"
        picture.text(PAD, y + 12, told, "t b")
        strip(picture, PAD, y + 22, mesh, ranks, colour)
        for left in ranks[:-1]:
            begin = PAD + left * STEP + CELL / 2
            end = begin + stride * STEP
            low = y + 22 + CELL
            picture.path(
                f"M{begin:g} {low + 3:g}C{begin + 8:g} {low + 20:g} {end - 8:g} {low + 20:g} {end:g} {low + 3:g}"
            )
        y += 22 + CELL + 32
    picture.bottom = max(picture.bottom, y - 12)
    return picture


def coalescing() -> Picture:
    """Two axes: one progression where they join, a sum of two where they do not."""
    mesh = Mesh(pp=2, dp=2, tp=4)
    picture = Picture("Groups over two axes: sums of progressions, which coalesce where one continues the other")
    y = float(PAD)
    for axes, colour in ((("dp", "tp"), COLOURS[0]), (("pp", "dp"), COLOURS[1]), (("pp", "tp"), COLOURS[2])):
        group = mesh.groups(*axes)[0]
        parts = " + ".join(f"{{0 … {mesh.size(axis) - 1}}}·{mesh.stride(axis)}" for axis in axes)
        joined = group.ranks.as_range()
        if joined is None:
            told = f"{'+'.join(axes)} group 0: {parts} does not coalesce; the last axis runs fastest"
        else:
            told = f"{'+'.join(axes)} group 0: {parts} coalesces into {len(joined)} ranks, stride {joined.step}"
        picture.text(PAD, y + 12, told, "t b")
        strip(picture, PAD, y + 22, mesh, group, colour)
        y += 22 + CELL + 22
    return picture


def orders() -> Picture:
    """The same sizes in two orders: the same shape, other neighbours."""
    first = Mesh(dp=2, pp=2, tp=4)
    second = first.reorder("pp", "dp", "tp")
    picture = Picture("The same sizes in two orders give different dp groups")
    x = float(PAD)
    for mesh in (first, second):
        picture.text(x, PAD + 12, str(mesh), "t b")
        dp = mesh.groups("dp")
        picture.text(x, PAD + 12 + LINE, f"dp group 0 is {list(dp[0])}", "t s")
        width, _ = grid(picture, x + 8, PAD + 44, mesh, ("dp",))
        x += width + 60
    return picture


def charts() -> Picture:
    """A dense and an expert chart over the same ranks."""
    atlas = Atlas(dense=Mesh(pp=2, dp=4, tp=2), expert=Mesh(pp=2, edp=2, ep=4), shared=("pp",))
    picture = Picture("Two charts of one job over the same sixteen ranks")
    picture.text(PAD, PAD + 12, str(atlas), "t b")
    y = PAD + 34.0
    rows = (("dense", "tp"), ("dense", "dp"), ("expert", "ep"), ("expert", "edp"), ("dense", "pp"), ("expert", "pp"))
    for chart, axis in rows:
        mesh = atlas[chart]
        picture.text(PAD, y + CELL / 2 + 4, f"{chart}.{axis}", "t b")
        for rank in range(mesh.world_size):
            picture.cell(PAD + 96 + rank * STEP, y, rank, colour_of(mesh, (axis,), rank))
        note = "shared: the same groups in both" if axis == "pp" else ""
        if note:
            picture.text(PAD + 96 + mesh.world_size * STEP + 8, y + CELL / 2 + 4, note, "t s")
        y += STEP + (14 if (chart, axis) in (("dense", "dp"), ("expert", "edp")) else 0)
    return picture


def pictures() -> dict[str, str]:
    """File name → SVG."""
    drawn = {
        "mixed-radix.svg": mixed_radix(),
        "groups.svg": groups(),
        "progression.svg": progression(),
        "coalescing.svg": coalescing(),
        "orders.svg": orders(),
        "charts.svg": charts(),
    }
    return {name: picture.svg() for name, picture in drawn.items()}


def main() -> None:
    folder = Path(__file__).resolve().parent.parent / "docs" / "img"
    folder.mkdir(parents=True, exist_ok=True)
    for name, svg in pictures().items():
        (folder / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
