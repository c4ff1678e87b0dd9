"""rankatlas: where every rank of a hybrid-parallel training job stands, derived once and proven.

>>> import rankatlas
>>> mesh = rankatlas.Mesh(pp=4, dp=2, tp=8)
>>> mesh.coordinate(37)["tp"], mesh.group("dp", rank=37).ranks
(5, [37, 45])

Every public name loads its module when it is first used, so that importing the package costs next to nothing.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rankatlas.core.atlas import Atlas as Atlas
    from rankatlas.core.claims import check_groups as check_groups
    from rankatlas.core.coordinate import Coordinate as Coordinate
    from rankatlas.core.group import Group as Group
    from rankatlas.core.group import Groups as Groups
    from rankatlas.core.mesh import Mesh as Mesh
    from rankatlas.core.notation import parse_atlas as parse_atlas
    from rankatlas.core.notation import parse_layout as parse_layout
    from rankatlas.core.notation import parse_mesh as parse_mesh
    from rankatlas.core.ranks import Ranks as Ranks
    from rankatlas.seeding.process import get_rng_state_tracker as get_rng_state_tracker
    from rankatlas.seeding.process import set_seed as set_seed
    from rankatlas.topology.group_info import GroupInfo as GroupInfo
    from rankatlas.topology.topology import Topology as Topology

__version__ = "0.1.0"

__all__ = [
    "Atlas",
    "Coordinate",
    "Group",
    "GroupInfo",
    "Groups",
    "Mesh",
    "Ranks",
    "Topology",
    "check_groups",
    "get_rng_state_tracker",
    "parse_atlas",
    "parse_layout",
    "parse_mesh",
    "set_seed",
]


# Modules of the package that may be reached as attributes, loaded when they are.
_MODULES = ("audit", "core", "creation", "dialects", "errors", "live", "records", "seeding", "tensors", "topology")


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"rankatlas.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'rankatlas' has no attribute {name!r}")
    homes = {
        "rankatlas.topology": ("Topology", "GroupInfo"),
        "rankatlas.seeding": ("get_rng_state_tracker", "set_seed"),
    }
    home = next((path for path, names in homes.items() if name in names), "rankatlas.core")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
