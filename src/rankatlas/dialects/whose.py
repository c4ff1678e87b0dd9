"""Whose words they are where Megatron-LM and PaddleFormers call sizes alike: names that only one of them has.

Source: megatron/training/arguments.py (0.16); trainer/training_args.py and cli/hparams of PaddleFormers 1.2.
"""

from __future__ import annotations

from rankatlas.dialects.given import Given

SHARED = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
)
MEGATRON = (
    "expert_tensor_parallel_size", "tensor_parallel_num_weight_shards", "expert_tensor_parallel_num_weight_shards",
    "use_tp_pp_dp_mapping", "use_distributed_optimizer", "micro_batch_size", "num_layers", "num_attention_heads",
    "seq_length", "encoder_seq_length", "transformer_impl", "num_layers_per_virtual_pipeline_stage",
    "num_moe_experts", "distributed_backend", "num_distributed_optimizer_instances",
    "untie_embeddings_and_output_weights",
)  # fmt: skip
# Megatron's too, but what a file of PaddleFormers may hold as well.
ALSO_MEGATRON = ("global_batch_size", "hidden_size", "max_position_embeddings")
PADDLE = (
    "use_expert_parallel", "sharding", "sharding_degree", "hybrid_parallel_topo_order", "enable_auto_parallel",
    "dp_degree", "per_device_train_batch_size", "gradient_accumulation_steps", "fine_tuning",
    "sharding_parallel_size", "sep_parallel_size",
)  # fmt: skip
# PaddleFormers' argument, and what Megatron prints.
ALSO_PADDLE = ("data_parallel_size",)


STAGES = ("PT", "SFT", "DPO", "KTO", "RM", "VL-SFT", "VL-PT", "DPO-VL")  # of PaddleFormers


def names_of(given: Given) -> list[str]:
    """The names that are given, with a value that is known or not."""
    return [*given, *given.unresolved]


def only_paddle(given: Given) -> bool:
    """Whether something stands there that Paddle's trainers have and Megatron has not.

    >>> only_paddle(Given({"stage": "PT"}, source="")), only_paddle(Given({"stage": 3}, source=""))
    (True, False)
    """
    names = names_of(given)
    return any(name in names for name in PADDLE) or given.at("stage") in STAGES


def only_megatron(given: Given) -> bool:
    """Whether something stands there that Megatron has and Paddle's trainers have not, or nothing that only they have.

    >>> only_megatron(Given({"num_layers": 2, "fine_tuning": "full"}, source=""))
    True
    >>> only_megatron(Given({"global_batch_size": 2, "fine_tuning": "full"}, source=""))
    False
    """
    names = names_of(given)
    if any(name in names for name in MEGATRON):
        return True
    return any(name in names for name in ALSO_MEGATRON) and not only_paddle(given)
