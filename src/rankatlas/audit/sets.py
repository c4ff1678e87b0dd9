"""Which groups a plan needs so that audits can compare over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rankatlas.audit.compare import along
from rankatlas.errors import InputError, shown
from rankatlas.tensors import TensorLayout


def sets_for(layouts: TensorLayout | Mapping[str, TensorLayout] | Iterable[TensorLayout]) -> list[tuple[str, ...]]:
    """The sets of axes along which tensors of these layouts are copied, or cut: those a plan for their audit has.

    Give them to CreationPlan beside the sets of the training itself; one that is there twice is made once.  For batches
    give the layout `TensorLayout(mesh, replicated=model axes, sharded=data axes)`.  Cost: O(layouts × axes).

    Raises InputError for something that is no layout.

    >>> from rankatlas import Mesh
    >>> mesh = Mesh(pp=2, dp=2, tp=2)
    >>> sets_for({"weight": TensorLayout(mesh, "dp", ("pp", "tp")), "norm": TensorLayout(mesh, ("dp", "tp"), "pp")})
    [('dp',), ('pp', 'tp'), ('dp', 'tp'), ('pp',)]
    """
    if isinstance(layouts, TensorLayout):
        layouts = [layouts]
    found: dict[tuple[str, ...], None] = {}
    for layout in layouts.values() if isinstance(layouts, Mapping) else layouts:
        if not isinstance(layout, TensorLayout):
            raise InputError(f"sets_for takes TensorLayouts, or name → TensorLayout, not {shown(layout)}")
        for axes in (layout.replicated, layout.sharded):
            found[along(layout, axes)] = None
    return [axes for axes in found if axes]
