"""Worlds that come with the model checker, each made for features that meet in it.

Blocks have two tokens, pools three to five blocks, requests two to eight tokens: the smallest numbers by
which the features get into each other's way.
"""

from typing import Any

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.events import PauseState
from kvsched_fp.explore.world import RequestKind, World
from kvsched_fp.kvcache.groups.full import FullAttentionSpec

BASE = SchedulerConfig(
    max_model_len=6,
    max_num_seqs=2,
    max_num_batched_tokens=4,
    num_blocks=4,
    block_size=2,
)
"""Three usable blocks, as many as one request may need; two rows; steps of four tokens."""

_PAUSES = (PauseState.PAUSED_NEW, PauseState.PAUSED_ALL)


def _with(**changes: Any) -> SchedulerConfig:
    return attrs.evolve(BASE, **changes)


_WORLDS = (
    World(
        name="tiny",
        about="two requests with one prompt and one that begins like them; a pool for one and a half",
        config=BASE,
        kinds=(
            RequestKind(name="a", num_prompt_tokens=3, num_shared_tokens=2, max_tokens=3, count=2),
            RequestKind(name="b", num_prompt_tokens=4, num_shared_tokens=2, max_tokens=2),
        ),
        aborts=True,
        stops=True,
        goals=(
            "batch",
            "chunk",
            "preemption",
            "resumed",
            "full-pool",
            "prefix-hit",
            "shared-block",
            "eviction",
            "abort-in-flight",
        ),
    ),
    World(
        name="small",
        about="tiny with one more of each, pauses and resets: everything that a plain engine does",
        config=_with(max_num_seqs=3, num_blocks=5, max_num_batched_tokens=5),
        kinds=(
            RequestKind(name="a", num_prompt_tokens=3, num_shared_tokens=2, max_tokens=3, count=2),
            RequestKind(name="b", num_prompt_tokens=4, num_shared_tokens=2, max_tokens=2, count=2),
        ),
        aborts=True,
        stops=True,
        pauses=_PAUSES,
        resets=(False, True),
        goals=(
            "batch",
            "chunk",
            "preemption",
            "resumed",
            "full-pool",
            "prefix-hit",
            "shared-block",
            "eviction",
            "abort-in-flight",
            "dropped-output",
            "paused",
            "reset-done",
            "reset-refused",
        ),
    ),
    World(
        name="priority",
        about="an urgent request among others of equal rank, without the reserve for whole prompts",
        config=_with(policy="priority", scheduler_reserve_full_isl=False, max_num_batched_tokens=3),
        kinds=(
            RequestKind(name="a", num_prompt_tokens=3, max_tokens=3, priority=1, count=2),
            RequestKind(name="u", num_prompt_tokens=3, max_tokens=2, priority=0),
        ),
        aborts=True,
        goals=("batch", "preemption", "resumed", "urgent-first", "abort-in-flight", "full-pool"),
    ),
    World(
        name="async",
        about="two steps in flight: preemption and ends while results are on their way",
        config=_with(async_scheduling=True),
        kinds=(RequestKind(name="a", num_prompt_tokens=2, max_tokens=4, count=3),),
        max_in_flight=2,
        aborts=True,
        stops=True,
        goals=("batch", "two-in-flight", "preemption", "resumed", "stale-output", "abort-in-flight"),
    ),
    World(
        name="async-reset",
        about="two steps in flight, and resets that drop what they bring",
        config=_with(async_scheduling=True),
        kinds=(RequestKind(name="a", num_prompt_tokens=3, max_tokens=3, count=2),),
        max_in_flight=2,
        aborts=True,
        resets=(False, True),
        goals=("two-in-flight", "dropped-output", "runs-with-dropped", "reset-done", "reset-refused"),
    ),
    World(
        name="drafts",
        about="drafts that are verified in the next step, in a pool that is short",
        config=_with(
            num_spec_tokens=2,
            num_lookahead_tokens=2,
            num_blocks=5,
            max_model_len=7,
            max_num_batched_tokens=6,
        ),
        kinds=(RequestKind(name="a", num_prompt_tokens=2, max_tokens=5, count=3),),
        aborts=True,
        goals=("batch", "preemption", "resumed", "drafts-accepted", "drafts-rejected", "abort-in-flight"),
    ),
    World(
        name="async-drafts",
        about="drafts that only the worker knows, or that come for a step in flight, with two of those",
        config=_with(
            num_spec_tokens=1,
            num_lookahead_tokens=1,
            async_scheduling=True,
            num_blocks=5,
            max_model_len=7,
        ),
        kinds=(RequestKind(name="a", num_prompt_tokens=2, max_tokens=5, count=2),),
        max_in_flight=2,
        aborts=True,
        stops=True,
        goals=("two-in-flight", "preemption", "resumed", "drafts-accepted", "drafts-rejected"),
    ),
    World(
        name="eagle",
        about="a drafter with a cache of its own: hits give up a block, prompts end where it can read on",
        config=_with(
            num_spec_tokens=1,
            num_lookahead_tokens=1,
            drop_eagle_block=True,
            num_prefill_lookahead_tokens=1,
            num_blocks=6,
            max_model_len=8,
        ),
        kinds=(RequestKind(name="a", num_prompt_tokens=5, num_shared_tokens=4, max_tokens=3, count=3),),
        resets=(False,),
        aborts=True,
        goals=("prefix-hit", "chunk", "preemption", "drafts-accepted", "drafts-rejected", "reset-done"),
    ),
    World(
        name="pause",
        about="pauses of both kinds, with preemption and a reset in them",
        config=BASE,
        kinds=(RequestKind(name="a", num_prompt_tokens=3, num_shared_tokens=2, max_tokens=3, count=2),),
        pauses=_PAUSES,
        resets=(True,),
        aborts=True,
        goals=("paused", "preemption", "resumed", "dropped-output", "abort-in-flight", "reset-done"),
    ),
    World(
        name="grammar",
        about="requests that wait for a grammar that comes late or not at all, and may break it",
        config=BASE,
        kinds=(
            RequestKind(
                name="g",
                num_prompt_tokens=4,
                num_shared_tokens=2,
                max_tokens=3,
                needs_grammar=True,
                count=2,
            ),
            RequestKind(name="a", num_prompt_tokens=3, num_shared_tokens=2, max_tokens=2),
        ),
        aborts=True,
        stops=True,
        goals=("grammar-error", "grammar-overtaken", "preemption", "abort-in-flight"),
    ),
    World(
        name="async-grammar",
        about="grammars, drafts and two steps in flight at once",
        config=_with(num_spec_tokens=1, num_lookahead_tokens=1, async_scheduling=True),
        kinds=(RequestKind(name="g", num_prompt_tokens=2, max_tokens=3, needs_grammar=True, count=2),),
        max_in_flight=2,
        stops=True,
        aborts=True,
        goals=("grammar-error", "two-in-flight", "drafts-accepted", "drafts-rejected"),
    ),
    World(
        name="lora",
        about="one adapter at a time, three rows",
        config=_with(max_loras=1, max_num_seqs=3, num_blocks=6),
        kinds=(
            RequestKind(name="x", num_prompt_tokens=2, max_tokens=3, lora_id=1),
            RequestKind(name="y", num_prompt_tokens=2, max_tokens=2, lora_id=2),
            RequestKind(name="a", num_prompt_tokens=2, max_tokens=2),
        ),
        aborts=True,
        goals=("batch", "adapter-kept-out", "abort-in-flight"),
    ),
    World(
        name="cadence",
        about="prompts that are held back while others decode, by the interval or by the engine",
        config=_with(
            prefill_schedule_interval=3,
            enable_prefix_caching=False,
            max_model_len=8,
            max_num_seqs=3,
            num_blocks=6,
        ),
        kinds=(
            RequestKind(name="a", num_prompt_tokens=2, max_tokens=6),
            RequestKind(name="b", num_prompt_tokens=3, max_tokens=1, count=3),
        ),
        throttles=True,
        aborts=True,
        goals=("batch", "chunk", "held-prompt", "abort-in-flight"),
    ),
    World(
        name="session",
        about="input in chunks; a session that waits keeps its row and its blocks from the others",
        config=BASE,
        kinds=(
            RequestKind(name="s", num_prompt_tokens=2, max_tokens=2, num_inputs=1),
            RequestKind(name="a", num_prompt_tokens=3, max_tokens=3),
        ),
        aborts=True,
        resets=(True,),
        goals=("next-input", "preemption", "abort-in-flight"),
    ),
    World(
        name="v1",
        about="the other shape of output: resumed requests are sent as a difference",
        config=_with(use_v2_model_runner=False, include_finished_set=True, enable_kv_cache_events=True),
        kinds=(RequestKind(name="a", num_prompt_tokens=3, num_shared_tokens=2, max_tokens=3, count=3),),
        resets=(True,),
        aborts=True,
        goals=("preemption", "resumed", "prefix-hit", "eviction", "reset-done", "abort-in-flight"),
    ),
    World(
        name="limits",
        about="two groups of layers, a watermark, a long-prefill threshold, fewer active than rows",
        config=_with(
            kv_cache_groups=(FullAttentionSpec(block_size=2), FullAttentionSpec(block_size=2)),
            num_blocks=8,
            watermark=0.15,
            long_prefill_token_threshold=2,
            max_num_seqs=3,
            max_num_active_seqs=2,
        ),
        kinds=(
            RequestKind(name="a", num_prompt_tokens=5, num_shared_tokens=4, max_tokens=2, count=2),
            RequestKind(name="b", num_prompt_tokens=2, max_tokens=3),
        ),
        aborts=True,
        goals=("batch", "chunk", "preemption", "resumed", "prefix-hit", "shared-block", "eviction"),
    ),
    World(
        name="hash-ahead",
        about="hashes that cover the token behind their block, drafts, and two steps in flight",
        config=_with(
            async_scheduling=True,
            num_spec_tokens=1,
            num_lookahead_tokens=1,
            num_prefill_lookahead_tokens=1,
            num_hash_lookahead_tokens=1,
            num_blocks=5,
            max_model_len=7,
        ),
        kinds=(RequestKind(name="a", num_prompt_tokens=3, num_shared_tokens=3, max_tokens=4, count=2),),
        max_in_flight=2,
        aborts=True,
        resets=(True,),
        goals=("two-in-flight", "prefix-hit", "preemption", "drafts-accepted", "runs-with-dropped"),
    ),
    World(
        name="pipeline",
        about="two stages, so two steps in flight, each of other requests",
        config=_with(pipeline_parallel_size=2),
        kinds=(RequestKind(name="a", num_prompt_tokens=3, max_tokens=3, count=3),),
        max_in_flight=2,
        aborts=True,
        stops=True,
        goals=("batch", "preemption", "resumed", "stale-output", "abort-in-flight"),
    ),
)

PRESETS: dict[str, World] = {world.name: world for world in _WORLDS}
"""All of them, by name."""
