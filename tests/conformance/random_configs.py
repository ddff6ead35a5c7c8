"""Random configurations: small worlds in which the rare things are common.

Pools hold one or two requests, budgets a few tokens, so that preemption, eviction and chunking happen
in most histories. Presets make likely what would otherwise need luck.
"""

from random import Random
from typing import Literal

import attrs

from kvsched_fp import SchedulerConfig, SchedulingPolicy
from kvsched_fp.kvcache.groups.full import FullAttentionSpec
from kvsched_fp.kvcache.hashing import BlockHasher

OutputShape = Literal["v1", "v2", "both"]


def draw_config(rng: Random, block_hasher: BlockHasher, shape: OutputShape = "both") -> SchedulerConfig:
    """Draw a configuration that vLLM accepts, too."""
    block_size = rng.choice((1, 2, 2, 3, 4, 4, 8))
    max_model_len = rng.randint(6, 40)
    num_groups = rng.choice((1, 1, 1, 1, 1, 2, 2, 3))
    chunked = rng.random() < 0.75
    max_num_seqs = rng.choice((1, 2, 3, 4, 6, 8))
    batched, scheduled = _draw_budgets(rng, chunked, max_model_len, max_num_seqs)
    config = SchedulerConfig(
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_active_seqs=rng.randint(1, max_num_seqs) if rng.random() < 0.3 else None,
        max_num_batched_tokens=batched,
        max_num_scheduled_tokens=scheduled,
        use_v2_model_runner=shape == "v2" or (shape == "both" and rng.random() < 0.5),
        policy=rng.choice((SchedulingPolicy.FCFS, SchedulingPolicy.PRIORITY)),
        enable_chunked_prefill=chunked,
        # vLLM refuses a threshold above `max_model_len`.
        long_prefill_token_threshold=rng.randint(1, min(8, max_model_len)) if rng.random() < 0.5 else 0,
        long_prefill_token_threshold_adaptive=rng.random() < 0.4,
        scheduler_reserve_full_isl=rng.random() < 0.6,
        watermark=rng.choice((0.0, 0.0, 0.0, 0.05, 0.1, 0.25, 0.4)),
        prefill_schedule_interval=rng.choice((1, 1, 1, 2, 3, 4)),
        num_blocks=_draw_num_blocks(rng, num_groups * -(-max_model_len // block_size)),
        block_size=block_size,
        kv_cache_groups=(FullAttentionSpec(block_size=block_size),) * num_groups,
        enable_prefix_caching=rng.random() < 0.8,
        num_lookahead_tokens=rng.choice((0, 0, 0, 1, 2, 3)),
        needs_kv_cache_zeroing=rng.random() < 0.3,
        block_hasher=block_hasher,
        enable_kv_cache_events=rng.random() < 0.4,
        allow_undersized_pool=True,
        include_finished_set=rng.random() < 0.3,
        log_stats=rng.random() < 0.8,
    )
    presets = {_as_drawn: 35, _under_pressure: 25, _crowded: 25, _with_whole_prompts: 10, _large: 5}
    preset = rng.choices(list(presets), list(presets.values()))[0]
    return preset(rng, config)


def _draw_budgets(
    rng: Random, chunked: bool, max_model_len: int, max_num_seqs: int
) -> tuple[int, int | None]:
    """Draw the input budget, at least `max_num_seqs`, and the token budget, now and then above it."""
    # Without chunked prefill, a whole prompt must fit into the first; into the second it may not (D-04).
    least = 1 if chunked else max_model_len
    least_batched = max(least, max_num_seqs)
    batched = rng.randint(least_batched, least_batched + rng.choice((2, 6, 20, 60)))
    least_scheduled = 1 if chunked else max_model_len - 3
    return batched, rng.randint(least_scheduled, batched + 2) if rng.random() < 0.25 else None


def _draw_num_blocks(rng: Random, num_needed: int) -> int:
    """Draw a pool size: now and then too small for one long request, usually for one or two."""
    if rng.random() < 0.2:
        return rng.randint(2, num_needed + 1)
    return num_needed + 1 + rng.randint(0, rng.choice((1, 3, num_needed, 2 * num_needed, 5 * num_needed)))


def _as_drawn(_: Random, config: SchedulerConfig) -> SchedulerConfig:
    return config


def _under_pressure(rng: Random, config: SchedulerConfig) -> SchedulerConfig:
    """Admit whatever starts, into a pool for one, with a budget of hardly one token each.

    Many requests run, are preempted in the middle of their prompts, and compete for what is left.
    """
    num_needed = sum(group.num_blocks_for(config.max_model_len) for group in config.kv_cache_groups)
    max_num_seqs = rng.randint(3, 8)
    return attrs.evolve(
        config,
        max_num_seqs=max_num_seqs,
        max_num_active_seqs=None,
        max_num_batched_tokens=max_num_seqs + rng.choice((0, 0, 1, 3, 8)),
        max_num_scheduled_tokens=rng.randint(2, max_num_seqs) if rng.random() < 0.3 else None,
        enable_chunked_prefill=True,
        scheduler_reserve_full_isl=False,
        watermark=0.0,
        num_blocks=num_needed + 1 + rng.randint(0, 3),
    )


def _crowded(rng: Random, config: SchedulerConfig) -> SchedulerConfig:
    """Have a pool that is full after a few tokens each, and hardly any budget, served by priority.

    Victims are then often among those that were given tokens in the same step, and what they give back
    is missed by the ones behind.
    """
    max_num_seqs = rng.randint(4, 6)
    return attrs.evolve(
        config,
        policy=SchedulingPolicy.PRIORITY,
        max_model_len=20,
        max_num_seqs=max_num_seqs,
        max_num_active_seqs=None,
        max_num_batched_tokens=max_num_seqs + rng.choice((0, 0, 1, 2)),
        max_num_scheduled_tokens=rng.choice((None, None, max_num_seqs, max_num_seqs - 1)),
        enable_chunked_prefill=True,
        scheduler_reserve_full_isl=False,
        watermark=0.0,
        long_prefill_token_threshold=0,
        prefill_schedule_interval=1,
        block_size=1,
        kv_cache_groups=(FullAttentionSpec(block_size=1),),
        num_blocks=rng.randint(20, 30),
    )


def _with_whole_prompts(rng: Random, config: SchedulerConfig) -> SchedulerConfig:
    """Let prompts that may not be cut compete for the budget, not for blocks."""
    num_needed = sum(group.num_blocks_for(config.max_model_len) for group in config.kv_cache_groups)
    return attrs.evolve(
        config,
        max_num_seqs=max(config.max_num_seqs, 4),
        max_num_active_seqs=None,
        max_num_batched_tokens=max(config.max_model_len, config.max_num_seqs, 4) + rng.choice((0, 1, 3)),
        max_num_scheduled_tokens=None,
        enable_chunked_prefill=False,
        long_prefill_token_threshold=rng.choice((0, 0, config.long_prefill_token_threshold)),
        num_blocks=6 * num_needed,
    )


def _large(rng: Random, config: SchedulerConfig) -> SchedulerConfig:
    """Have many blocks, and long tables of them: what is held in pieces must work across pieces."""
    block_size = rng.choice((1, 1, 1, 16))
    max_model_len = rng.randint(400, 700)
    kv_cache_groups = (FullAttentionSpec(block_size=block_size),) * len(config.kv_cache_groups)
    num_needed = sum(group.num_blocks_for(max_model_len) for group in kv_cache_groups)
    return attrs.evolve(
        config,
        max_model_len=max_model_len,
        max_num_batched_tokens=max_model_len + rng.randint(0, max_model_len),
        max_num_scheduled_tokens=None,
        long_prefill_token_threshold=rng.choice((0, 100)),
        block_size=block_size,
        kv_cache_groups=kv_cache_groups,
        num_blocks=num_needed + 1 + rng.randint(0, 300),
    )
