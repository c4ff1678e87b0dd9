"""What the training arguments of PaddleNLP and PaddleFormers mean for the five axes, by their trainers' rules."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from types import MappingProxyType

from rankatlas.catalogue import said
from rankatlas.core.border import as_int
from rankatlas.core.sizes import checked_size, resolve
from rankatlas.errors import ArgumentsError, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple

    class Settled(NamedTuple):
        """What a trainer settles: axis → degree, the axes outer → inner, and axis → where its degree came from."""

        degrees: dict[str, int]
        order: tuple[str, ...]
        origins: dict[str, str]

else:
    Settled = namedtuple("Settled", ["degrees", "order", "origins"])

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
# The auto-parallel trainer's meaning, when it builds the groups that communicate: sep before mp, unlike the scripts.
AUTO_TRAINER_ORDERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "pp_first": ("pp", "dp", "sharding", "sep", "mp"),
        "sharding_first": ("dp", "sharding", "pp", "sep", "mp"),
    }
)
DEFAULT_ORDER: Mapping[str, str] = MappingProxyType(
    {"paddlenlp-2.8": "pp_first", "paddleformers-1.2": "sharding_first"}
)
RELEASES = tuple(DEFAULT_ORDER)

_STAGES = ("stage1", "stage2", "stage3")
# What `sharding` is where the arguments do not say.
DEFAULT_SHARDING: Mapping[str, str] = MappingProxyType({"paddlenlp-2.8": "", "paddleformers-1.2": "stage1"})

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
# What says something about the layout and is no degree.
_WORDS = ("sharding", "hybrid_parallel_topo_order", "use_expert_parallel", "enable_auto_parallel")
_WORDS_OF: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"paddlenlp-2.8": _WORDS, "paddleformers-1.2": (*_WORDS, "reorder_pipeline_priority")}
)
# Why a context degree is no layout of these trainers.  PaddleFormers leaves the axis out of the order that it gives to
# fleet, which so makes no context groups and no class that could tell a place along them.
_NO_CONTEXT: Mapping[str, str] = MappingProxyType(
    {
        "paddlenlp-2.8": "PaddleNLP 2.8 has no context axis, and later releases give the degree to fleet as its sep"
        " axis; set sep_parallel_degree={} instead",
        "paddleformers-1.2": "without experts PaddleFormers 1.2 on Paddle 3.3 makes no context groups, and the trainer"
        " stops when it asks for its data: \"context_parallel_size > 1 requires 'get_context_parallel_world_size' in"
        ' hcg", or that sharding is not divisible by it\nset sep_parallel_size={} instead, or'
        " expert_model_parallel_size and use_expert_parallel",
    }
)


def read_arguments(
    args: object, world_size: int, *, release: str = "paddlenlp-2.8", auto_parallel: bool = False, gpt3: bool = False
) -> Settled:
    """The degree of every axis, their order outer → inner, and each one's origin, as the trainer settles them.

    `args` is a mapping or an object with the training arguments.  Cost: O(1).
    Raises ArgumentsError, WorldSizeError, SizeError, IntegerError.

    >>> settled = read_arguments({"mp_degree": 2, "pp_degree": 2}, 8)
    >>> settled.degrees, settled.order, settled.origins["dp"]
    ({'dp': 2, 'pp': 2, 'sharding': 1, 'mp': 2, 'sep': 1}, ('dp', 'pp', 'sharding', 'sep', 'mp'), 'inferred')
    """
    settled = _settled(args, world_size, release, auto_parallel)
    if not auto_parallel:
        return settled
    # The scripts give Topology no sharding axis: it lies inside dp there.
    dp, sharding = settled.degrees["dp"], settled.degrees["sharding"]
    degrees = {**settled.degrees, "dp": max(dp, sharding) if gpt3 else dp * sharding, "sharding": 1}
    return Settled(degrees, settled.order, settled.origins)


def read_auto_parallel(args: object, world_size: int, *, release: str = "paddlenlp-2.8") -> Settled:
    """The degrees and order from which the auto-parallel trainer builds its groups, data and sharding degree apart.

    There is no sharding axis in them: dp holds data degree × sharding degree ranks.  Unlike the scripts' order, which
    `read_arguments(auto_parallel=True)` gives, this one has sep before mp.  Cost and errors as `read_arguments`.

    >>> settled = read_auto_parallel({"sharding": "stage1", "mp_degree": 2}, 8)
    >>> settled.degrees["dp"], settled.degrees["sharding"], settled.order
    (1, 4, ('pp', 'dp', 'sharding', 'sep', 'mp'))
    """
    settled = _settled(args, world_size, release, auto_parallel=True)
    order = AUTO_TRAINER_ORDERS[_order_name(args, release, auto_parallel=True)]
    return Settled(settled.degrees, order, settled.origins)


def implied_world_size(args: object, *, release: str = "paddlenlp-2.8") -> int | None:
    """The number of ranks that arguments imply, None where an axis is left to take what a world leaves.

    Cost: O(1).  Raises as `read_arguments`.

    >>> implied_world_size({"dp_degree": 2, "mp_degree": 4}), implied_world_size({"mp_degree": 4})
    (8, None)
    """
    _check(args, release)
    degrees, _ = _given(args, release)
    if _open_axis(args, release, degrees) is not None:
        return None
    context = degrees.pop("cp", 1)
    if flag(args, "enable_auto_parallel") and context > 1:
        degrees["sep"] = context
    product = 1
    for degree in degrees.values():
        product *= degree
    return product


def flag(args: object, name: str) -> bool:
    """A setting that is on or off: a bool, 0 or 1, or text "true" or "false" in any case; not given is off.

    Raises ArgumentsError for anything else.

    >>> flag({"use_expert_parallel": "True"}, "use_expert_parallel")
    True
    """
    value = _get(args, name)
    if value is None:
        return False
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if type(value).__name__ in ("bool", "bool_", "int") and value in (0, 1):  # numpy has bools of its own
        return bool(value)
    raise ArgumentsError(said("refused.flag", name=name, value=shown(value)), names=(name,))


def _check(args: object, release: str) -> None:
    """Raise ArgumentsError unless `args` can hold arguments of `release`, and of no other one."""
    if not isinstance(release, str) or release not in _LONG:
        raise ArgumentsError(f"release must be one of {', '.join(_LONG)}; got {shown(release)}", names=("release",))
    holds = isinstance(args, Mapping) or hasattr(args, "__dict__") or hasattr(args, "__slots__")
    if not holds or callable(args) or isinstance(args, (str, bytes, int, float, list, tuple, set, frozenset)):
        raise ArgumentsError(
            f"training arguments are a mapping or an object that has them, not {shown(args)}", names=()
        )
    _refuse_other_release(args, release)


def _settled(args: object, world_size: int, release: str, auto_parallel: bool) -> Settled:
    """The degrees with data and sharding apart, in the order that `read_arguments` promises."""
    _check(args, release)
    world_size = checked_size("world_size", world_size, label="world_size")
    degrees, origins = _given(args, release)
    choice = _order_name(args, release, auto_parallel)
    context = degrees.pop("cp", None) or 1
    if auto_parallel:
        if context > 1:
            degrees["sep"] = context
            origins["sep"] = origins["cp"]
        order = ORDERS[choice]
    else:
        _refuse_context_and_experts(args, context, origins, release)
        order = TRAINER_ORDERS[choice]
        if flag(args, "use_expert_parallel"):
            order = _expert_order(args, release, order)
    unset = _open_axis(args, release, degrees)
    if unset == "sharding" and degrees.get("dp", 1) > 1:
        raise ArgumentsError(
            said("refused.data_beside_sharding", name=origins["dp"], size=degrees["dp"]),
            names=(origins["dp"], "sharding"),
        )
    sizes = {axis: None if axis == unset else degrees.get(axis, 1) for axis in AXES}
    settled = resolve(sizes, world_size, origins=origins)
    for axis in AXES:
        origins.setdefault(axis, "inferred" if axis == unset else "not set")
    return Settled(settled, order, {axis: origins[axis] for axis in AXES})


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
                    said("refused.twice", name=origins[axis], size=degrees[axis], other=key, other_size=degree),
                    names=(origins[axis], key),
                )
            origins.setdefault(axis, key)
    return degrees, origins


def _open_axis(args: object, release: str, degrees: Mapping[str, int]) -> str | None:
    """The axis that takes what the others leave: sharding where it is on and not set, else dp unless set."""
    if _sharding_on(args, release) and "sharding" not in degrees:
        return "sharding"
    return None if "dp" in degrees else "dp"


def _sharding_on(args: object, release: str) -> bool:
    """Whether sharding is on: text ("", "stage1 offload"), a list of options, or a bool says so."""
    given = _get(args, "sharding")
    if given is None:
        given = DEFAULT_SHARDING[release]
    if isinstance(given, bool):
        return given
    listed = given.split() if isinstance(given, str) else given if isinstance(given, (list, tuple)) else [given]
    options = [getattr(option, "value", option) for option in listed]
    stages = [option for option in options if option in _STAGES]
    unknown = [option for option in options if option not in (*_STAGES, "offload")]
    if unknown or len(stages) > 1 or (options and not stages):
        raise ArgumentsError(
            said("refused.sharding", stages=_STAGES, given=shown(given)),
            names=("sharding",),
        )
    return bool(stages)


def _order_name(args: object, release: str, auto_parallel: bool) -> str:
    default = "pp_first" if auto_parallel else DEFAULT_ORDER[release]
    name = _get(args, "hybrid_parallel_topo_order")
    if name is None:
        return default
    if not isinstance(name, str) or name not in ORDERS:
        raise ArgumentsError(
            said("refused.topo_order", names=tuple(ORDERS), default=default, given=shown(name)),
            names=("hybrid_parallel_topo_order",),
        )
    return name


def _expert_order(args: object, release: str, order: tuple[str, ...]) -> tuple[str, ...]:
    """PaddleNLP moves dp inside the experts' way; PaddleFormers does so only when asked to reorder."""
    if release == "paddlenlp-2.8":
        return (*order[1:-1], "dp", "mp")
    if flag(args, "reorder_pipeline_priority"):
        return ("sharding", "pp", "sep", "dp", "mp")
    return order


def _refuse_other_release(args: object, release: str) -> None:
    for other, keys in _LONG.items():
        if other == release:
            continue
        found = tuple(key for key in keys.values() if _get(args, key) is not None)
        if found:
            raise ArgumentsError(
                f"{', '.join(found)} belong to {other}, whose default order differs: pass release={shown(other)}"
                f" (on the command line --from {other})",
                names=found,
            )


def _refuse_context_and_experts(args: object, context: int, origins: Mapping[str, str], release: str) -> None:
    if context > 1:
        key = origins["cp"]
        raise ArgumentsError(f"{key}={context}: {_NO_CONTEXT[release].format(context)}", names=(key,))
    for key in _EXPERT_KEYS:
        degree = _get(args, key)
        if degree is not None and as_int(degree, key) > 1:
            raise ArgumentsError(
                f"{key}={degree}: experts lie over the same ranks a second time, which one Topology cannot show;"
                " describe the job as an Atlas of a dense and an expert mesh instead",
                names=(key,),
            )


def known_keys(release: str) -> tuple[str, ...]:
    """Every key of `release`, long and short, that says something about the layout.

    >>> "mp_degree" in known_keys("paddlenlp-2.8"), "mp_size" in known_keys("paddlenlp-2.8")
    (True, False)
    """
    short = [key for keys in _SHORT.values() for key in keys]
    return (*_LONG[release].values(), *short, *_EXPERT_KEYS)


def layout_keys(release: str) -> tuple[str, ...]:
    """Every key of `release` that concerns the layout: `known_keys`, and what says order, sharding and experts.

    >>> "sharding" in layout_keys("paddlenlp-2.8"), "seed" in layout_keys("paddlenlp-2.8")
    (True, False)
    """
    return (*known_keys(release), *_WORDS_OF[release])
