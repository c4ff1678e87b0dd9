"""The keys of every dialect: under which name each says a number."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_MEGATRON = MappingProxyType(
    {
        "tp": "tensor-model-parallel-size",
        "pp": "pipeline-model-parallel-size",
        "cp": "context-parallel-size",
        "ep": "expert-model-parallel-size",
        "etp": "expert-tensor-parallel-size",
        "virtual_stages": "num-virtual-stages-per-pipeline-rank",
        "virtual_stage_layers": "num-layers-per-virtual-pipeline-stage",
        "microbatch_group": "microbatch-group-size-per-virtual-pipeline-stage",
        "first_stage_layers": "decoder-first-pipeline-num-layers",
        "last_stage_layers": "decoder-last-pipeline-num-layers",
        "global_batch": "global-batch-size",
        "micro_batch": "micro-batch-size",
        "sequence_length": "seq-length",
        "layers": "num-layers",
        "heads": "num-attention-heads",
        "head_size": "kv-channels",
        "kv_heads": "num-query-groups",
        "hidden": "hidden-size",
        "ffn": "ffn-hidden-size",
        "vocab": "vocab-size",
        "experts": "num-experts",
        "expert_ffn": "moe-ffn-hidden-size",
        "vocab_multiple": "make-vocab-size-divisible-by",
        "sequence_parallel": "sequence-parallel",
        "linear_bias": "disable-bias-linear",
        "stage_layers": "pipeline-model-parallel-layout",
        "embedding": "account-for-embedding-in-pipeline-split",
        "loss": "account-for-loss-in-pipeline-split",
    }
)
_NLP = MappingProxyType(
    {
        "tp": "tensor_parallel_degree",
        "pp": "pipeline_parallel_degree",
        "cp": "context_parallel_degree",
        "sep": "sep_parallel_degree",
        "ep": "expert_parallel_degree",
        "dp": "data_parallel_degree",
        "sharding": "sharding_parallel_degree",
        "virtual_stages": "virtual_pp_degree",
        "micro_batch": "per_device_train_batch_size",
        "accumulation": "gradient_accumulation_steps",
        "sequence_length": "max_seq_length",
        "layers": "num_hidden_layers",
        "etp": "expert_tensor_parallel_degree",
    }
)
_FORMERS = MappingProxyType(
    {
        **_NLP,
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "cp": "context_parallel_size",
        "sep": "sep_parallel_size",
        "ep": "expert_model_parallel_size",
        "dp": "data_parallel_size",
        "sharding": "sharding_parallel_size",
        "virtual_stages": "virtual_pipeline_model_parallel_size",
        "sequence_length": "max_seq_len",
        "etp": "expert_tensor_model_parallel_size",
    }
)
_TITAN = MappingProxyType(
    {
        "tp": "parallelism.tensor_parallel_degree",
        "pp": "parallelism.pipeline_parallel_degree",
        "cp": "parallelism.context_parallel_degree",
        "ep": "parallelism.expert_parallel_degree",
        "etp": "parallelism.expert_tensor_parallel_degree",
        "dp": "parallelism.data_parallel_shard_degree",
        "dp_shard": "parallelism.data_parallel_shard_degree",
        "fsdp": "parallelism.data_parallel_shard_degree",
        "dp_replicate": "parallelism.data_parallel_replicate_degree",
        "micro_batch": "training.local_batch_size",
        "global_batch": "training.global_batch_size",
        "stage_micro_batch": "parallelism.pipeline_parallel_microbatch_size",
        "sequence_length": "training.seq_len",
        "sequence_parallel": "parallelism.enable_sequence_parallel",
    }
)
_DEEPSPEED = MappingProxyType(
    {
        "global_batch": "train_batch_size",
        "micro_batch": "train_micro_batch_size_per_gpu",
        "accumulation": "gradient_accumulation_steps",
        "tp": "tensor_parallel.autotp_size",
        "sep": "sequence_parallel_size",
        "zero_stage": "zero_optimization.stage",
    }
)
_ACCELERATE = MappingProxyType(
    {
        "tp": "parallelism_config.parallelism_config_tp_size",
        "cp": "parallelism_config.parallelism_config_cp_size",
        "dp": "parallelism_config.parallelism_config_dp_shard_size",
        "dp_shard": "parallelism_config.parallelism_config_dp_shard_size",
        "dp_replicate": "parallelism_config.parallelism_config_dp_replicate_size",
        "sep": "parallelism_config.parallelism_config_sp_size",
        "accumulation": "gradient_accumulation_steps",
    }
)
# Megatron-Bridge names some otherwise, and has them in sections of a file.
BRIDGE = MappingProxyType(
    {
        "tp": "model.tensor_model_parallel_size",
        "pp": "model.pipeline_model_parallel_size",
        "cp": "model.context_parallel_size",
        "ep": "model.expert_model_parallel_size",
        "etp": "model.expert_tensor_parallel_size",
        "virtual_stages": "model.virtual_pipeline_model_parallel_size",
        "microbatch_group": "model.microbatch_group_size_per_vp_stage",
        "first_stage_layers": "model.num_layers_in_first_pipeline_stage",
        "last_stage_layers": "model.num_layers_in_last_pipeline_stage",
        "global_batch": "train.global_batch_size",
        "micro_batch": "train.micro_batch_size",
        "sequence_length": "model.seq_length",
        "layers": "model.num_layers",
        "heads": "model.num_attention_heads",
        "kv_heads": "model.num_query_groups",
        "experts": "model.num_moe_experts",
        "vocab_multiple": "model.make_vocab_size_divisible_by",
        "sequence_parallel": "model.sequence_parallel",
        "linear_bias": "model.add_bias_linear",
        "stage_layers": "model.pipeline_model_parallel_layout",
        "embedding": "model.account_for_embedding_in_pipeline_split",
        "loss": "model.account_for_loss_in_pipeline_split",
    }
)
_VERL = MappingProxyType(
    {
        "rollout_tp": "actor_rollout_ref.rollout.tensor_model_parallel_size",
        "tp": "actor_rollout_ref.actor.megatron.tensor_model_parallel_size",
        "pp": "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size",
        "cp": "actor_rollout_ref.actor.megatron.context_parallel_size",
        "ep": "actor_rollout_ref.actor.megatron.expert_model_parallel_size",
        "etp": "actor_rollout_ref.actor.megatron.expert_tensor_parallel_size",
        "sep": "actor_rollout_ref.actor.ulysses_sequence_parallel_size",
        "prompts": "data.train_batch_size",
        "responses": "actor_rollout_ref.rollout.n",
        "micro_batch": "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        "global_batch": "actor_rollout_ref.actor.ppo_mini_batch_size",
    }
)
_NEMO = MappingProxyType(
    {
        "tp": "policy.megatron_cfg.tensor_model_parallel_size",
        "pp": "policy.megatron_cfg.pipeline_model_parallel_size",
        "cp": "policy.megatron_cfg.context_parallel_size",
        "ep": "policy.megatron_cfg.expert_model_parallel_size",
        "etp": "policy.megatron_cfg.expert_tensor_parallel_size",
        "rollout_tp": "policy.generation.vllm_cfg.tensor_parallel_size",
        "prompts": "grpo.num_prompts_per_step",
        "responses": "grpo.num_generations_per_prompt",
        "global_batch": "policy.train_global_batch_size",
        "micro_batch": "policy.train_micro_batch_size",
    }
)
# Family of formats → name → the source's key, and how a key and its value are written.
KEYS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "megatron": _MEGATRON,
        "paddlenlp": _NLP,
        "paddleformers": _FORMERS,
        "torchtitan": _TITAN,
        "deepspeed": _DEEPSPEED,
        "accelerate": _ACCELERATE,
        "verl": _VERL,
        "nemo": _NEMO,
    }
)
