"""From vLLM's configuration to ours; everything that is not modelled is named and refused.

Upstream: the constructor of `v1/core/sched/scheduler.py::Scheduler`.
"""

from collections.abc import Callable
from typing import Any

import attrs
from vllm.config import VllmConfig
from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import FullAttentionSpec as VllmFullAttentionSpec
from vllm.v1.kv_cache_interface import KVCacheConfig

from kvsched_fp.adapters.vllm.hasher import VllmBlockHasher
from kvsched_fp.config import (
    RunnerType,
    SchedulerConfig,
    SchedulingPolicy,
    SpecDecodeMetricsLevel,
)
from kvsched_fp.errors import UnsupportedFeature
from kvsched_fp.kvcache.groups import GroupSpec
from kvsched_fp.kvcache.groups.full import FullAttentionSpec

_REFUSED: tuple[tuple[str, str, Callable[[VllmConfig], object]], ...] = (
    ("KV connectors", "kv_transfer_config", lambda config: config.kv_transfer_config),
    ("encoder-cache connectors", "ec_transfer_config", lambda config: config.ec_transfer_config),
    (
        "decode context parallelism",
        "parallel_config.decode_context_parallel_size",
        lambda config: config.parallel_config.decode_context_parallel_size > 1,
    ),
    (
        "prefill context parallelism",
        "parallel_config.prefill_context_parallel_size",
        lambda config: config.parallel_config.prefill_context_parallel_size > 1,
    ),
    ("encoder-decoder models", "model_config", lambda config: config.model_config.is_encoder_decoder),
    (
        "multimodal inputs",
        "model_config",
        lambda config: config.model_config.supports_multimodal_inputs,
    ),
    (
        "encoder cache managers of one's own",
        "ec_manager_config",
        lambda config: config.ec_manager_config.get_encoder_cache_manager_obj(),
    ),
    (
        "KV cache residency metrics",
        "observability_config.kv_cache_metrics",
        lambda config: config.observability_config.kv_cache_metrics,
    ),
    (
        "model FLOPs utilisation metrics",
        "observability_config.enable_mfu_metrics",
        lambda config: config.observability_config.enable_mfu_metrics,
    ),
    ("auxiliary outputs", "aux_output_config", lambda config: config.aux_output_config.enabled),
    (
        "sampling masks",
        "model_config.return_sampling_mask",
        lambda config: config.model_config.return_sampling_mask,
    ),
    (
        "pipelines on XPU, whose stages need not take turns",
        "parallel_config.pipeline_parallel_size",
        lambda config: config.parallel_config.pipeline_parallel_size > 1 and current_platform.is_xpu(),
    ),
)
"""Features that are not modelled: the name, where it is asked for, and how to see that it is."""


def to_scheduler_config(
    vllm_config: VllmConfig,
    kv_cache_config: KVCacheConfig,
    *,
    block_size: int,
    hash_block_size: int | None = None,
    include_finished_set: bool = False,
    log_stats: bool = False,
) -> SchedulerConfig:
    """Translate what vLLM hands to the constructor of its scheduler.

    Raises `UnsupportedFeature` for what is not modelled, and `InvalidConfig` for what cannot work.
    """
    for feature, asked_by, is_asked_for in _REFUSED:
        if is_asked_for(vllm_config):
            raise UnsupportedFeature(feature, asked_by)
    if hash_block_size not in (None, block_size):
        asked_by = f"hash_block_size={hash_block_size}, block_size={block_size}"
        raise UnsupportedFeature("hash blocks of another size than the cache blocks", asked_by)
    return SchedulerConfig(
        **_limits(vllm_config),
        **_kv_cache(vllm_config, kv_cache_config, block_size),
        **_model(vllm_config),
        **_drafting(vllm_config, kv_cache_config),
        include_finished_set=include_finished_set,
        log_stats=log_stats,
        log_request_events=log_stats,
    )


def as_scheduled(config: SchedulerConfig, *, is_async: bool) -> SchedulerConfig:
    """Give the configuration of a scheduler that is asynchronous, or is not, whatever it was asked to be.

    Raises `UnsupportedFeature` where the reference has half of each then.
    """
    if is_async is not config.async_scheduling and config.pipeline_parallel_size > 1:
        raise UnsupportedFeature(
            "a pipeline whose scheduler is asynchronous or not, and whose configuration says otherwise",
            f"scheduler_config.async_scheduling={config.async_scheduling}",
        )
    return attrs.evolve(config, async_scheduling=is_async)


def _limits(vllm_config: VllmConfig) -> dict[str, Any]:
    """Translate what a step may take, and how requests share it."""
    theirs = vllm_config.scheduler_config
    return {
        "max_model_len": vllm_config.model_config.max_model_len,
        "max_num_seqs": theirs.max_num_seqs,
        "max_num_active_seqs": theirs.max_num_active_seqs,
        "max_num_batched_tokens": theirs.max_num_batched_tokens,
        "max_num_scheduled_tokens": theirs.max_num_scheduled_tokens,
        "policy": SchedulingPolicy(theirs.policy),
        "enable_chunked_prefill": theirs.enable_chunked_prefill,
        "long_prefill_token_threshold": theirs.long_prefill_token_threshold,
        "long_prefill_token_threshold_adaptive": theirs.long_prefill_token_threshold_adaptive,
        "scheduler_reserve_full_isl": theirs.scheduler_reserve_full_isl,
        "watermark": theirs.watermark,
        "prefill_schedule_interval": theirs.prefill_schedule_interval,
    }


def _kv_cache(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig, block_size: int) -> dict[str, Any]:
    """Translate the KV cache."""
    cache = vllm_config.cache_config
    events = vllm_config.kv_events_config
    return {
        "num_blocks": kv_cache_config.num_blocks,
        "block_size": block_size,
        "kv_cache_groups": _to_groups(kv_cache_config, block_size),
        "enable_prefix_caching": bool(cache.enable_prefix_caching),
        "needs_kv_cache_zeroing": kv_cache_config.needs_kv_cache_zeroing,
        "block_hasher": VllmBlockHasher(cache.prefix_caching_hash_algo),
        "enable_kv_cache_events": events is not None and bool(events.enable_kv_cache_events),
        "allow_undersized_pool": True,  # the engine checks that, not the scheduler class
    }


def _model(vllm_config: VllmConfig) -> dict[str, Any]:
    """Translate what runs, and on how much."""
    lora = vllm_config.lora_config
    parallel = vllm_config.parallel_config
    return {
        "runner_type": _to_runner_type(vllm_config),
        "use_v2_model_runner": vllm_config.use_v2_model_runner,
        "max_loras": None if lora is None else lora.max_loras,
        "async_scheduling": bool(vllm_config.scheduler_config.async_scheduling),
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "data_parallel_size": parallel.data_parallel_size,
    }


def _to_runner_type(vllm_config: VllmConfig) -> RunnerType:
    if vllm_config.is_mm_encoder_only:
        return RunnerType.ENCODER_ONLY
    if vllm_config.model_config.runner_type == "pooling":
        return RunnerType.POOLING
    return RunnerType.DIFFUSION if vllm_config.model_config.is_diffusion else RunnerType.GENERATE


def _drafting(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> dict[str, Any]:
    """Translate speculative decoding."""
    drafter = vllm_config.speculative_config
    level = vllm_config.observability_config.per_request_spec_decode_metrics
    translated = {
        "num_spec_tokens": vllm_config.num_speculative_tokens,
        "num_lookahead_tokens": vllm_config.num_lookahead_tokens,
        "num_prefill_lookahead_tokens": vllm_config.num_prefill_lookahead_tokens,
        "num_hash_lookahead_tokens": vllm_config.num_hash_lookahead_tokens,
        "spec_decode_metrics": SpecDecodeMetricsLevel(level),
    }
    if drafter is None:
        return translated
    # Hashes that look ahead prove the block, so that it need not be dropped.
    drops = drafter.use_eagle_block_drop() and not translated["num_hash_lookahead_tokens"]
    are_dropped = {group.is_eagle_group for group in kv_cache_config.kv_cache_groups}
    if drops and len(are_dropped) > 1:
        raise UnsupportedFeature("EAGLE blocks of some groups alone", "kv_cache_config.kv_cache_groups")
    return translated | {
        "num_spec_tokens_per_batch_size": drafter.num_speculative_tokens_per_batch_size or None,
        "max_num_new_slots_for_drafting": drafter.max_num_new_slots_for_drafting,
        "drop_eagle_block": drops,
    }


def _to_groups(kv_cache_config: KVCacheConfig, block_size: int) -> tuple[GroupSpec, ...]:
    """Translate the groups of layers."""
    if not kv_cache_config.kv_cache_groups:
        raise UnsupportedFeature("models without a KV cache", "kv_cache_config")
    for index, group in enumerate(kv_cache_config.kv_cache_groups):
        spec = group.kv_cache_spec
        where = f"kv_cache_config.kv_cache_groups[{index}]"
        if type(spec) is not VllmFullAttentionSpec:
            raise UnsupportedFeature(f"KV cache groups of kind {type(spec).__name__}", where)
        if spec.prefix_replay_tokens > 0:
            raise UnsupportedFeature("replay of a window after a prefix hit", where)
        if spec.block_size != block_size:
            asked_by = f"{where}.block_size={spec.block_size}, block_size={block_size}"
            raise UnsupportedFeature("groups of another block size than the scheduler's", asked_by)
    return (FullAttentionSpec(block_size=block_size),) * len(kv_cache_config.kv_cache_groups)
