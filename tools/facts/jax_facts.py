"""What JAX's Mesh answers, on CPU devices that are only pretended.

    python jax_facts.py OUT

A fact's `kind` is "layout", "make_mesh" (jax.make_mesh, which may order devices itself) or "special". In a layout,
`ids` are the device ids of the whole mesh and `groups` the rows of ids along each axis, sorted by their first id.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

DEVICES = 24
# read by XLA when jax first looks for devices, so before the import
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from facts_io import answer, deliver, plain  # noqa: E402
from jax.sharding import AbstractMesh, Mesh  # noqa: E402

NAMES = ["pp", "dp", "fsdp", "ep", "tp", "cp"]


def ids(mesh: Any) -> Any:
    return np.vectorize(lambda device: device.id, otypes=[int])(mesh.devices)


def mesh_of(sizes: Sequence[int], axes: Any, order: str = "C") -> Any:
    devices = np.array(jax.devices()[: math.prod(sizes)])
    return Mesh(devices.reshape(sizes, order=order), axes)


def described(mesh: Any) -> dict[str, Any]:
    table = ids(mesh)
    groups = {
        name: sorted(np.moveaxis(table, at, -1).reshape(-1, table.shape[at]).tolist())
        for at, name in enumerate(mesh.axis_names)
    }
    return {"ids": plain(table), "shape": dict(mesh.shape), "size": mesh.size, "groups": groups}


def brief(mesh: Any) -> dict[str, Any]:
    """Only what JAX itself says, where our own look at the groups would not make sense."""
    return {"axis_names": mesh.axis_names, "shape": dict(mesh.shape), "size": mesh.size, "devices": mesh.devices.shape}


def layout_facts(dice: random.Random, count: int) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = []
    while len(facts) < count:
        world = (8, 16, 24)[len(facts) % 3]
        axes = dice.sample(NAMES, k=dice.choice((1, 2, 3, 4)))
        sizes = [dice.choice((1, 2, 3, 4, 6, 8)) for _ in axes]
        if math.prod(sizes) != world:
            continue
        facts.append({"kind": "layout", "axes": axes, "sizes": sizes} | described(mesh_of(sizes, tuple(axes))))
    return facts


def make_mesh_facts() -> list[dict[str, Any]]:
    cases = [((2, 4), ("dp", "tp")), ((2, 3, 4), ("pp", "dp", "tp")), ((24,), ("dp",)), ((2, 2), ("dp", "tp"))]
    return [
        {"kind": "make_mesh", "axes": axes, "sizes": sizes}
        | answer(lambda *given: described(jax.make_mesh(*given)), sizes, axes)
        for sizes, axes in cases
    ]


def special_facts() -> list[dict[str, Any]]:
    cases: list[tuple[str, Callable[[], Any]]] = [
        ("a name twice: Mesh((2, 2), ('dp', 'dp'))", lambda: brief(mesh_of((2, 2), ("dp", "dp")))),
        ("a name twice: AbstractMesh((2, 2), ('dp', 'dp'))", lambda: str(AbstractMesh((2, 2), ("dp", "dp")))),
        ("fewer names than axes: Mesh((2, 2), ('dp',))", lambda: described(mesh_of((2, 2), ("dp",)))),
        ("more names than axes: Mesh((2, 2), ('a', 'b', 'c'))", lambda: described(mesh_of((2, 2), ("a", "b", "c")))),
        ("a name that is a str: Mesh((4,), 'dp')", lambda: described(mesh_of((4,), "dp"))),
        ("a name that is None: Mesh((4,), (None,))", lambda: described(mesh_of((4,), (None,)))),
        ("a name that is an int: Mesh((4,), (0,))", lambda: described(mesh_of((4,), (0,)))),
        ("a list of names: Mesh((2, 2), ['dp', 'tp'])", lambda: described(mesh_of((2, 2), ["dp", "tp"]))),
        ("size 0: Mesh((0, 2), ('dp', 'tp'))", lambda: brief(mesh_of((0, 2), ("dp", "tp")))),
        ("size 0: AbstractMesh((0, 2), ('dp', 'tp'))", lambda: AbstractMesh((0, 2), ("dp", "tp")).size),
        ("size -1: AbstractMesh((-1, 2), ('dp', 'tp'))", lambda: AbstractMesh((-1, 2), ("dp", "tp")).size),
        ("column-major: Mesh((2, 4), ('dp', 'tp'), order='F')", lambda: described(mesh_of((2, 4), ("dp", "tp"), "F"))),
        ("no axes: Mesh((), ())", lambda: described(mesh_of((), ()))),
        ("an unknown name: Mesh((2, 2), ('dp', 'tp')).shape['ep']", lambda: mesh_of((2, 2), ("dp", "tp")).shape["ep"]),
        (
            "a size for fewer devices than there are: make_mesh((5,), ('dp',))",
            lambda: ids(jax.make_mesh((5,), ("dp",))),
        ),
        (
            "a size for more devices than there are: make_mesh((25,), ('dp',))",
            lambda: ids(jax.make_mesh((25,), ("dp",))),
        ),
        ("repr: AbstractMesh((2, 4), ('dp', 'tp'))", lambda: repr(AbstractMesh((2, 4), ("dp", "tp")))),
        ("repr: Mesh((2, 4), ('dp', 'tp'))", lambda: repr(mesh_of((2, 4), ("dp", "tp")))),
    ]
    return [{"kind": "special", "call": call} | answer(function) for call, function in cases]


def main() -> None:
    facts = layout_facts(random.Random(1), 24) + make_mesh_facts() + special_facts()
    deliver(facts, numpy=np.__version__, devices=len(jax.devices()))


if __name__ == "__main__":
    main()
