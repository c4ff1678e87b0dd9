"""The names of training arguments: which concern the layout, which are slips of the pen, which are neither."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from rankatlas.errors import shown
from rankatlas.topology.training_args import RELEASES, known_keys, layout_keys

_CUTOFF = 0.85  # how alike two names are, of 1: a letter or two of a long name differ
_LONGEST = 60  # characters of a name that is compared; no argument has more
_MOST_KEYS = 1000  # names looked at; no launch configuration has more

# The trainers' real arguments that concern parallelism and not the layout: like our names, and no slips.
OTHER_ARGUMENTS = frozenset(
    [
        "auto_parallel_resume_form_hybrid_parallel",
        "auto_parallel_sync_shared_params",
        "context_parallel_config",
        "data_parallel_config",
        "data_parallel_random_init",
        "expert_parallel_config",
        "fuse_sequence_parallel_allreduce",
        "hybrid_parallel_expert_grad_scale",
        "moe_expert_fusion",
        "moe_group_experts",
        "moe_sharding_parallel_size",
        "moe_sharding_world_size",
        "offload_fp8_expert_master_weight",
        "parallel_output",
        "pipeline_parallel_config",
        "pp_config",
        "pp_delay_scale_loss",
        "pp_need_data",
        "pp_need_data_degree",
        "pp_release_grads",
        "pp_seg_method",
        "pp_sharding_comm_overlap",
        "pp_sync_moment",
        "pp_sync_param",
        "reorder_pipeline_priority",
        "replace_with_parallel_cross_entropy",
        "save_sharding_stage1_model_include_freeze_params",
        "scatter_embedding_sequence_parallel",
        "sd_sharding_comm_overlap",
        "sd_shardingv1_comm_overlap",
        "sep_parallel_config",
        "sequence_parallel",
        "sequence_parallel_config",
        "sharding_comm_group_call_opt",
        "sharding_comm_buffer_size_MB",
        "sharding_offload_opt_buffersize_GB",
        "sharding_parallel_config",
        "sharding_parallel_mesh_dimension",
        "tensor_parallel_config",
        "tensor_parallel_output",
        "use_sequence_parallel",
        "virtual_pipeline_model_parallel_size",
        "virtual_pp_degree",
    ]
)
# Names of axes, which set no argument however plausible they look, and what does.
_AXES: Mapping[str, str] = MappingProxyType(
    {
        "dp": "dp_degree",
        "pp": "pp_degree",
        "mp": "mp_degree",
        "tp": "tp_degree",
        "sep": "sep_degree",
        "cp": "cp_degree",
        "ep": "expert_parallel_degree",
        "ep_degree": "expert_parallel_degree",
        "sp": "sep_degree",
        "dp_shard": "sharding_degree",
        "fsdp": "sharding_degree",
    }
)


def near_misses(keys: Iterable[object], release: str) -> dict[str, str]:
    """Key → the argument that is probably meant, for keys that set nothing and are nearly the name of one that does.

    Names of axes (`tp`) and names without their ending (`tensor_parallel`) count as well.  Cost: O(keys).

    >>> near_misses(["shardng", "tp", "sep_paralel", "sequence_parallel", "seed"], "paddlenlp-2.8")
    {'shardng': 'sharding', 'tp': 'tp_degree', 'sep_paralel': 'sep_parallel_degree'}
    """
    known = layout_keys(release)
    strange = [key for key, _ in zip(map(str, keys), range(_MOST_KEYS)) if key not in known]
    strange = [key for key in strange if key not in OTHER_ARGUMENTS and len(key) <= _LONGEST]
    if not strange:
        return {}
    meant = _candidates(release)
    pieces = {piece for name in meant for piece in _pieces(name)}
    near = {key: _AXES.get(key) or _nearest(key, meant, pieces) for key in strange}
    return {key: name for key, name in near.items() if name is not None and name != key}


def warn_of_near_misses(args: object, release: str, stacklevel: int = 3) -> None:
    """Warn about every set key of a mapping that sets nothing and is nearly the name of one that does.

    An object is not looked at: a trainer's own arguments hold what the trainer knows.  `stacklevel` as for
    `warnings.warn`, counted from here.  Cost: O(keys).
    """
    if not isinstance(args, Mapping) or not args:
        return
    for key, near in near_misses((key for key in args if is_set(key, args[key])), release).items():
        import warnings

        warnings.warn(
            f"{key}={shown(args[key])} sets nothing and was left out; did you mean {near}?",
            UserWarning,
            stacklevel=stacklevel,
        )


def is_set(key: object, value: object) -> bool:
    """Whether a value is one that would have changed something: not None, -1, False or empty.

    A name of an axis must hold a size, because such a short word may mean anything else.

    >>> is_set("shardng", "stage2"), is_set("shardng", ""), is_set("dp", 2), is_set("dp", "a/path")
    (True, False, True, False)
    """
    if key in _AXES:
        return isinstance(value, int) and not isinstance(value, bool) and value > 1
    return not (value is None or value is False or (isinstance(value, (str, int)) and value in ("", -1)))


def _candidates(release: str) -> dict[str, str]:
    """What a key may nearly be → the argument that is meant."""
    # The other release's names too, and all without their ending: "tensor_paralel" lacks too much to be near the whole.
    meant = {name: name for other in (release, *RELEASES) for name in layout_keys(other)}
    for name in known_keys(release):
        stem = name.rpartition("_")[0]
        if stem.endswith("_parallel"):
            meant.setdefault(stem, name)
    return meant


def _nearest(key: str, meant: Mapping[str, str], pieces: set[str]) -> str | None:
    plain = key.lower().replace("-", "_")
    mine = _pieces(plain)
    if sum(piece in pieces for piece in mine) < 0.3 * len(mine):  # comparing for real costs a hundred times as much
        return None
    from difflib import get_close_matches

    near = get_close_matches(plain, meant, n=1, cutoff=_CUTOFF)
    return meant[near[0]] if near else None


def _pieces(name: str) -> list[str]:
    return [name[place : place + 3] for place in range(len(name) - 2)]
