"""Our configuration as a real scheduler.

A whole `VllmConfig` takes milliseconds to build, a scheduler a tenth of that. So one `VllmConfig` is
built per process, and each scheduler gets a shallow copy in which the parts that its constructor
reads are replaced: a freshly validated `SchedulerConfig`, and copies of the model and the cache
configuration.
"""

import copy
import functools
import json
import logging
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import torch
from vllm.config import CacheConfig, DeviceConfig, KVEventsConfig, ModelConfig, VllmConfig
from vllm.config import SchedulerConfig as VllmSchedulerConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.diffusion_scheduler import DiffusionAsyncScheduler, DiffusionScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec as VllmFullAttentionSpec
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec
from vllm.v1.structured_output import StructuredOutputManager

from kvsched_fp.config import RunnerType, SchedulerConfig
from kvsched_fp.kvcache.groups.full import FullAttentionSpec

# Tiny pools and refused resets are what tests are after; vLLM warns of each.
logging.getLogger("vllm").setLevel(logging.ERROR)

# By default, KV events carry the last 64 bits of a hash as a number, for consumers from the time when
# hashes were numbers. Ours carry the hash; with this vLLM's do too.
os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "0"

CARRIED_OVER = frozenset(
    {
        "allow_undersized_pool",  # a check of the engine's, not of the scheduler class
        "block_hasher",  # used when a request is made
        "block_size",
        "enable_chunked_prefill",
        "enable_kv_cache_events",
        "enable_prefix_caching",
        "include_finished_set",
        "kv_cache_groups",
        "log_request_events",  # the same as `log_stats` there
        "log_stats",
        "async_scheduling",
        "data_parallel_size",
        "drop_eagle_block",
        "max_loras",
        "max_num_new_slots_for_drafting",
        "num_hash_lookahead_tokens",
        "num_prefill_lookahead_tokens",
        "num_spec_tokens",
        "num_spec_tokens_per_batch_size",
        "pipeline_parallel_size",
        "runner_type",
        "spec_decode_metrics",
        "long_prefill_token_threshold",
        "long_prefill_token_threshold_adaptive",
        "max_model_len",
        "max_num_active_seqs",
        "max_num_batched_tokens",
        "max_num_scheduled_tokens",
        "max_num_seqs",
        "needs_kv_cache_zeroing",
        "num_blocks",
        "num_lookahead_tokens",
        "policy",
        "prefill_schedule_interval",
        "quirks",  # the reference has all of them
        "requires_kv_delivery",
        "scheduler_reserve_full_isl",
        "use_v2_model_runner",
        "watermark",
    }
)
"""The fields of our configuration that `build_scheduler` knows."""

_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 64,
    "max_position_embeddings": 1 << 20,
    "torch_dtype": "float16",
}
"""A text-only decoder; the scheduler asks for nothing but what kind of model it is."""


class _ZeroingKVCacheConfig(KVCacheConfig):  # type: ignore[misc]  # untyped where vLLM is missing
    """A cache whose new blocks must be cleared.

    vLLM derives that from the kinds of the layers (state-space ones, or mixed precisions). Our groups
    are all of one kind, so the answer is given here; the scheduler and the managers read it as usual.
    """

    needs_kv_cache_zeroing = True


def build_scheduler(config: SchedulerConfig, kind: type[Any] | None = None) -> Any:
    """Build the scheduler that `config` describes: the real one, or one of class `kind`.

    Raises `ValueError` for a combination that vLLM's own configuration refuses.
    """
    unknown = {field.name for field in attrs.fields(SchedulerConfig)} ^ CARRIED_OVER
    if unknown:
        raise NotImplementedError(f"fields of the configuration without a counterpart: {sorted(unknown)}")
    vllm_config, structured_output_manager = _base_config()
    # The property behind `use_v2_model_runner` asks this variable first, so that everything in the
    # constructor that depends on the property follows.
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1" if config.use_v2_model_runner else "0"
    scheduler = (kind or reference_class(config))(
        vllm_config=_adapt_config(vllm_config, config),
        kv_cache_config=_kv_cache_config(config),
        structured_output_manager=structured_output_manager,
        block_size=config.block_size,
        hash_block_size=config.block_size,
        include_finished_set=config.include_finished_set,
        log_stats=config.log_stats,
    )
    if config.num_spec_tokens == 0:
        # A lookahead without a drafter, which no configuration of vLLM's gives.
        scheduler.num_lookahead_tokens = config.num_lookahead_tokens
    if config.requires_kv_delivery:
        scheduler.requires_kv_delivery = True  # what a connector may ask for, without one
    return scheduler


def reference_class(config: SchedulerConfig) -> Any:
    """Give the class that the engine takes for such a configuration."""
    if config.runner_type is RunnerType.DIFFUSION:
        return DiffusionAsyncScheduler if config.async_scheduling else DiffusionScheduler
    return AsyncScheduler if config.async_scheduling else Scheduler


class _Drafter:
    """Stands in for the configuration of a drafter: what the scheduler asks of it."""

    disable_eagle_block_drop = False

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        schedule = config.num_spec_tokens_per_batch_size
        self.num_speculative_tokens_per_batch_size = None if schedule is None else [*map(list, schedule)]
        self.max_num_new_slots_for_drafting = config.max_num_new_slots_for_drafting

    def use_eagle(self) -> bool:
        """Tell whether hidden states are used."""
        return self._config.num_prefill_lookahead_tokens > 0

    def use_eagle_block_drop(self) -> bool:
        """Tell whether hits give up their last block."""
        return self._config.drop_eagle_block

    def needs_eagle_block_drop(self) -> bool:
        """Tell whether they would have to."""
        return self._config.drop_eagle_block


class _PlannedConfig(VllmConfig):  # type: ignore[misc]  # untyped where vLLM is missing
    """A configuration whose derived figures are given, not derived from a drafter's kind."""

    planned: SchedulerConfig

    num_speculative_tokens = property(lambda self: self.planned.num_spec_tokens)
    # Without a drafter there is none; `build_scheduler` sets what is wished all the same.
    num_lookahead_tokens = property(
        lambda self: self.planned.num_lookahead_tokens if self.planned.num_spec_tokens else 0
    )
    num_prefill_lookahead_tokens = property(lambda self: self.planned.num_prefill_lookahead_tokens)
    num_hash_lookahead_tokens = property(lambda self: self.planned.num_hash_lookahead_tokens)
    is_mm_encoder_only = property(lambda self: self.planned.runner_type is RunnerType.ENCODER_ONLY)


@functools.cache
def _base_config() -> tuple[VllmConfig, StructuredOutputManager]:
    """Build the one `VllmConfig` of this process, and a manager for grammars that nobody uses."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(_MODEL))
        model = ModelConfig(
            model=folder,
            tokenizer=folder,
            skip_tokenizer_init=True,
            dtype="float16",
            seed=0,
            max_model_len=1 << 20,
        )
        vllm_config = VllmConfig(
            model_config=model,
            cache_config=CacheConfig(block_size=16, cache_dtype="auto", enable_prefix_caching=True),
            device_config=DeviceConfig(device="cpu"),
            scheduler_config=VllmSchedulerConfig(
                max_model_len=1 << 20, is_encoder_decoder=False, async_scheduling=False
            ),
        )
    return vllm_config, StructuredOutputManager(vllm_config)


def _adapt_config(base: VllmConfig, config: SchedulerConfig) -> VllmConfig:
    """Copy `base` with the parts that the scheduler reads set to `config`."""
    vllm_config = copy.copy(base)
    vllm_config.__class__ = _PlannedConfig
    vllm_config.planned = config
    if config.num_spec_tokens and config.runner_type is not RunnerType.DIFFUSION:
        vllm_config.speculative_config = _Drafter(config)
    vllm_config.lora_config = (
        None if config.max_loras is None else SimpleNamespace(max_loras=config.max_loras)
    )
    vllm_config.parallel_config = copy.copy(base.parallel_config)
    vllm_config.parallel_config.pipeline_parallel_size = config.pipeline_parallel_size
    vllm_config.parallel_config.data_parallel_size = config.data_parallel_size
    vllm_config.observability_config = copy.copy(base.observability_config)
    vllm_config.observability_config.per_request_spec_decode_metrics = config.spec_decode_metrics.value
    vllm_config.model_config = copy.copy(base.model_config)
    vllm_config.model_config.max_model_len = config.max_model_len
    vllm_config.model_config.__dict__["is_diffusion"] = config.runner_type is RunnerType.DIFFUSION
    if config.runner_type is RunnerType.POOLING:
        vllm_config.model_config.runner_type = "pooling"
    vllm_config.cache_config = copy.copy(base.cache_config)
    vllm_config.cache_config.block_size = config.block_size
    vllm_config.cache_config.num_gpu_blocks = config.num_blocks
    vllm_config.cache_config.enable_prefix_caching = config.enable_prefix_caching
    vllm_config.kv_events_config = KVEventsConfig(
        enable_kv_cache_events=config.enable_kv_cache_events, publisher="null"
    )
    vllm_config.scheduler_config = VllmSchedulerConfig(
        max_model_len=config.max_model_len,
        is_encoder_decoder=False,
        async_scheduling=config.async_scheduling,
        max_num_seqs=config.max_num_seqs,
        max_num_active_seqs=config.max_num_active_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_num_scheduled_tokens=config.max_num_scheduled_tokens,
        policy=config.policy.value,
        enable_chunked_prefill=config.enable_chunked_prefill,
        long_prefill_token_threshold=config.long_prefill_token_threshold,
        long_prefill_token_threshold_adaptive=config.long_prefill_token_threshold_adaptive,
        scheduler_reserve_full_isl=config.scheduler_reserve_full_isl,
        watermark=config.watermark,
        prefill_schedule_interval=config.prefill_schedule_interval,
    )
    return vllm_config


def _kv_cache_config(config: SchedulerConfig) -> KVCacheConfig:
    kind = _ZeroingKVCacheConfig if config.needs_kv_cache_zeroing else KVCacheConfig
    groups = []
    for index, group in enumerate(config.kv_cache_groups):
        assert isinstance(group, FullAttentionSpec), f"no counterpart for {group}"
        spec = VllmFullAttentionSpec(
            block_size=group.block_size, num_kv_heads=1, head_size=1, dtype=torch.float32
        )
        groups.append(KVCacheGroupSpec([f"layer.{index}"], spec))
    return kind(num_blocks=config.num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)
