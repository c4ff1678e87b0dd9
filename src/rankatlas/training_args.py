"""What the training arguments of PaddleNLP and PaddleFormers mean for the five axes, by their trainers' rules."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rankatlas.core.integers import as_int
from rankatlas.core.sizes import checked_size, resolve
from rankatlas.errors import ArgumentsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

AXES = ("dp", "pp", "sharding", "mp", "sep")

# The meaning the auto-parallel scripts give the two names, which is the one `Topology(order=…)` takes.
ORDERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "pp_first": ("pp", "dp", "sharding", "mp", "sep"),
        "sharding_first": ("dp", "sharding", "pp", "mp", "sep"),
    }
)
# The trainers' own meaning: the same two names, other orders.
TRAINER_ORDERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "pp_first": ("dp", "pp", "sharding", "sep", "mp"),
        "sharding_first": ("dp", "sharding", "pp", "sep", "mp"),
    }
)
DEFAULT_ORDER: Mapping[str, str] = MappingProxyType(
    {"paddlenlp-2.8": "pp_first", "paddleformers-1.2": "sharding_first"}
)

# Axis → the keys that may set it, the release's own name first; "cp" is the context degree, no axis of its own.
_SHORT: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "dp": ("dp_degree",),
        "pp": ("pp_degree",),
        "sharding": ("sharding_degree",),
        "mp": ("mp_degree", "tp_degree"),
        "sep": ("sep_degree",),
        "cp": ("cp_degree",),
    }
)
_LONG: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "paddlenlp-2.8": {
            "dp": "data_parallel_degree",
            "pp": "pipeline_parallel_degree",
            "sharding": "sharding_parallel_degree",
            "mp": "tensor_parallel_degree",
            "sep": "sep_parallel_degree",
            "cp": "context_parallel_degree",
        },
        "paddleformers-1.2": {
            "dp": "data_parallel_size",
            "pp": "pipeline_model_parallel_size",
            "sharding": "sharding_parallel_size",
            "mp": "tensor_model_parallel_size",
            "sep": "sep_parallel_size",
            "cp": "context_parallel_size",
        },
    }
)
_EXPERT_KEYS = (
    "expert_parallel_degree",
    "expert_model_parallel_size",
    "expert_tensor_parallel_degree",
    "expert_tensor_model_parallel_size",
)


def read_arguments(
    args: object, world_size: int, *, release: str = "paddlenlp-2.8", auto_parallel: bool = False, gpt3: bool = False
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The degree of every axis and their order, outer → inner, as the trainer of `release` settles them.

    `args` is a mapping or an object with the training arguments.  Cost: O(1).
    Raises ArgumentsError, WorldSizeError, SizeError, IntegerError.

    >>> read_arguments({"mp_degree": 2, "pp_degree": 2}, 8)
    ({'dp': 2, 'pp': 2, 'sharding': 1, 'sep': 1, 'mp': 2}, ('dp', 'pp', 'sharding', 'sep', 'mp'))
    """
    if release not in _LONG:
        raise ArgumentsError(f"release must be one of {', '.join(_LONG)}; got {release!r}", names=("release",))
    world_size = checked_size("world_size", world_size)
    _refuse_other_release(args, release)
    degrees, origins = _given(args, release)
    choice = _order_name(args, release, auto_parallel)
    context = degrees.pop("cp", None) or 1
    if auto_parallel:
        if context > 1:
            degrees["sep"] = context
            origins["sep"] = origins["cp"]
        order = ORDERS[choice]
    else:
        _refuse_context_and_experts(args, context, origins)
        order = TRAINER_ORDERS[choice]
        if _get(args, "use_expert_parallel") is True:
            order = _expert_order(args, release, order)
    settled = _settle(degrees, origins, world_size, sharding=_sharding_on(args))
    if auto_parallel:
        # The scripts give Topology no sharding axis: it lies inside dp there.
        data = max(settled["dp"], settled["sharding"]) if gpt3 else settled["dp"] * settled["sharding"]
        settled.update(dp=data, sharding=1)
    return settled, order


def _get(args: object, name: str) -> Any:
    return args.get(name) if isinstance(args, Mapping) else getattr(args, name, None)


def _given(args: object, release: str) -> tuple[dict[str, int], dict[str, str]]:
    """Axis → degree for every key that is set, and axis → the key that set it."""
    degrees: dict[str, int] = {}
    origins: dict[str, str] = {}
    for axis, short in _SHORT.items():
        for key in (_LONG[release][axis], *short):
            value = _get(args, key)
            if value is None:
                continue
            degree = as_int(value, key)
            if degree == -1:
                continue
            checked_size(key, degree)
            if degrees.setdefault(axis, degree) != degree:
                raise ArgumentsError(
                    f"{origins[axis]}={degrees[axis]} and {key}={degree} set the same axis; keep one of them",
                    names=(origins[axis], key),
                )
            origins.setdefault(axis, key)
    return degrees, origins


def _settle(degrees: dict[str, int], origins: dict[str, str], world_size: int, *, sharding: bool) -> dict[str, int]:
    """All five degrees: sharding takes the rest of the world where it is on and not set, else dp does."""
    sizes: dict[str, int | None] = {axis: degrees.get(axis, 1) for axis in AXES}
    if sharding and "sharding" not in degrees:
        sizes["sharding"] = None
    elif "dp" not in degrees:
        sizes["dp"] = None
    return resolve(sizes, world_size, origins=origins)


def _sharding_on(args: object) -> bool:
    """`sharding` is text ("", "stage1 offload"), a list of options, or in PaddleFormers a bool."""
    option = _get(args, "sharding")
    return bool(option.split()) if isinstance(option, str) else bool(option)


def _order_name(args: object, release: str, auto_parallel: bool) -> str:
    default = "pp_first" if auto_parallel else DEFAULT_ORDER[release]
    name = _get(args, "hybrid_parallel_topo_order")
    if name is None:
        return default
    if not isinstance(name, str) or name not in ORDERS:
        raise ArgumentsError(
            f"hybrid_parallel_topo_order must be {' or '.join(ORDERS)} (default {default}); got {name!r}",
            names=("hybrid_parallel_topo_order",),
        )
    return name


def _expert_order(args: object, release: str, order: tuple[str, ...]) -> tuple[str, ...]:
    """PaddleNLP moves dp inside the experts' way; PaddleFormers does so only when asked to reorder."""
    if release == "paddlenlp-2.8":
        return (*order[1:-1], "dp", "mp")
    if _get(args, "reorder_pipeline_priority") is True:
        return ("sharding", "pp", "sep", "dp", "mp")
    return order


def _refuse_other_release(args: object, release: str) -> None:
    for other, keys in _LONG.items():
        if other == release:
            continue
        found = tuple(key for key in keys.values() if _get(args, key) is not None)
        if found:
            raise ArgumentsError(
                f"{', '.join(found)} belong to {other}, whose default order differs: pass release={other!r}",
                names=found,
            )


def _refuse_context_and_experts(args: object, context: int, origins: Mapping[str, str]) -> None:
    if context > 1:
        raise ArgumentsError(
            f"{origins['cp']}={context}: this trainer lays the context axis inside sharding, which the five axes of a"
            " Topology cannot show; describe the job as a Mesh with a cp axis instead",
            names=(origins["cp"],),
        )
    for key in _EXPERT_KEYS:
        degree = _get(args, key)
        if degree is not None and as_int(degree, key) > 1:
            raise ArgumentsError(
                f"{key}={degree}: experts lie over the same ranks a second time, which one Topology cannot show;"
                " describe the job as an Atlas of a dense and an expert mesh instead",
                names=(key,),
            )
