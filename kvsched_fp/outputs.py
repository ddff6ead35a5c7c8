"""What goes out: to the model runner (`SchedulerOutput`) and to the clients (`Emitted`).

Upstream: `v1/core/sched/output.py`, `v1/engine/__init__.py::EngineCoreOutput`,
`v1/metrics/stats.py::SchedulerStats`.
"""

from typing import TypeAlias

import attrs

from kvsched_fp.ids import BlockId, RequestId, StepId
from kvsched_fp.kvcache.kv_events import KVCacheEvent
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.progress import PrefillStats, RequestEvent, RequestSpecDecodeMetrics
from kvsched_fp.records import quick_constructor
from kvsched_fp.request import FinishReason, LoRA

BlockIds: TypeAlias = tuple[tuple[BlockId, ...], ...]
"""Block ids, one tuple per KV cache group."""


@attrs.frozen
class NewRequestData:
    """A request that the model runner does not know (or, in V2, has forgotten)."""

    request_id: RequestId
    """Who."""
    prompt_token_ids: tuple[int, ...]
    """The prompt."""
    block_ids: BlockIds
    """All its blocks."""
    num_computed_tokens: int
    """Tokens that need no computing, before this step."""
    prefill_token_ids: tuple[int, ...] | None
    """All known tokens (V2), or None (V1)."""
    lora: LoRA | None = None
    """Its adapter."""
    pooling: bool = False
    """Whether it wants a pooled output."""


@attrs.frozen(weakref_slot=False)
class CachedRequestData:
    """Requests that the model runner knows: only what changed. Columns of equal length."""

    request_ids: tuple[RequestId, ...] = ()
    """The rows: the running requests in scheduling order, then (V1) the resumed ones."""
    resumed_request_ids: tuple[RequestId, ...] = ()
    """The rows whose `new_block_ids` replace what the runner has (V1 only)."""
    all_token_ids: OrderedMap[RequestId, tuple[int, ...]] = OrderedMap()
    """All known tokens of the rows that were not in the step before (V1 only)."""
    new_block_ids: tuple[BlockIds | None, ...] = ()
    """Blocks added in this step, or None for none."""
    num_computed_tokens: tuple[int, ...] = ()
    """Tokens computed or in flight, before this step."""
    num_output_tokens: tuple[int, ...] = ()
    """Tokens sampled so far, placeholders included."""
    new_token_ids: tuple[tuple[int, ...], ...] = ()
    """Known tokens of the step, drafts apart, for a first stage that does not see what the last one samples
    (pipeline parallelism without asynchronous scheduling)."""


make_cached_request_data = quick_constructor(CachedRequestData)
"""Construct a `CachedRequestData`; one is made in every step."""


@attrs.frozen(weakref_slot=False)
class SchedulerOutput:
    """One step: which request computes how many tokens in which blocks."""

    step_id: StepId
    """The number of the step; the result names it."""
    scheduled_new_requests: tuple[NewRequestData, ...]
    """Requests sent whole."""
    scheduled_cached_requests: CachedRequestData
    """Requests sent as a difference."""
    num_scheduled_tokens: OrderedMap[RequestId, int]
    """The batch: tokens per request, in scheduling order."""
    total_num_scheduled_tokens: int
    """Their sum."""
    preempted_request_ids: tuple[RequestId, ...]
    """Preempted since the step before, or made to give their blocks back [M-REL-06], in that order."""
    finished_request_ids: tuple[RequestId, ...]
    """Finished since the step before, in that order."""
    new_block_ids_to_zero: tuple[BlockId, ...] | None
    """New blocks to clear before use; None where there are none or no clearing is needed."""
    scheduled_spec_token_ids: OrderedMap[RequestId, tuple[int, ...]] = OrderedMap()
    """The drafts that are verified, for the rows that have any; -1 where only the worker knows."""
    num_spec_tokens_to_schedule: int = 0
    """Drafts to propose per request after this step."""
    skip_drafts: bool = False
    """Whether nobody can use the drafts that would be proposed after this step."""
    has_structured_output_requests: bool = False
    """Whether any row samples under a grammar."""
    pending_structured_output_tokens: bool = False
    """Whether such a row needs a token that has not come back (asynchronous scheduling)."""
    num_invalid_spec_tokens: OrderedMap[RequestId, int] | None = None
    """Drafts that were replaced in flight and that the grammar does not allow; None before that."""


make_scheduler_output = quick_constructor(SchedulerOutput)
"""Construct a `SchedulerOutput`; one is made in every step."""


@attrs.frozen
class Reason:
    """Why a request got what it got in one step."""

    request_id: RequestId
    """Who."""
    num_tokens: int
    """Tokens that it may compute in the step; 0 for none."""
    rule_id: str
    """The rule that decided, as numbered in `specs/`."""
    text: str
    """What happened, with the numbers."""


@attrs.frozen(weakref_slot=False)
class EngineOutput:
    """What one client learns about one request."""

    request_id: RequestId
    """Who."""
    new_token_ids: tuple[int, ...]
    """The tokens of this step, cut after the one that stopped it."""
    finish_reason: FinishReason | None
    """Why it ended, or None."""
    stop_reason: int | str | None
    """The stop token that ended it, "repetition_detected", or None."""
    prefill_stats: PrefillStats | None
    """With the first output of a request only."""
    spec_decode_metrics: RequestSpecDecodeMetrics | None = None
    """With the last output of a request, if asked for in the config."""
    events: tuple[RequestEvent, ...] = ()
    """What happened to it since its last output, if `log_request_events`."""
    error: str | None = None
    """What was wrong with the request, if that ended it."""
    pooled: bool = False
    """Whether the pooled output of the request comes with it."""


make_engine_output = quick_constructor(EngineOutput)
"""Construct an `EngineOutput`; the hot path's way."""


@attrs.frozen
class PrefixCacheStats:
    """Look-ups in the prefix cache since the last report, counted at admission; in tokens.

    Upstream: `v1/metrics/stats.py::PrefixCacheStats`.
    """

    reset: bool = False
    """Whether the cache was reset."""
    requests: int = 0
    """Admissions of requests that were never preempted."""
    queries: int = 0
    """Their known tokens."""
    hits: int = 0
    """Of those, the tokens found."""
    preempted_requests: int = 0
    """Admissions of requests that had been preempted."""
    preempted_queries: int = 0
    """Their known tokens."""
    preempted_hits: int = 0
    """Of those, the tokens found."""

    def record(self, num_tokens: int, num_hits: int, *, preempted: bool) -> "PrefixCacheStats":
        """Count one admission."""
        if preempted:
            return attrs.evolve(
                self,
                preempted_requests=self.preempted_requests + 1,
                preempted_queries=self.preempted_queries + num_tokens,
                preempted_hits=self.preempted_hits + num_hits,
            )
        return attrs.evolve(
            self,
            requests=self.requests + 1,
            queries=self.queries + num_tokens,
            hits=self.hits + num_hits,
        )


@attrs.frozen
class SpecDecodingStats:
    """Drafts that one update verified. Upstream: `v1/spec_decode/metrics.py::SpecDecodingStats`."""

    num_spec_tokens: int
    """The most drafts per request."""
    num_drafts: int
    """Rows with drafts."""
    num_draft_tokens: int
    """Drafts, those that the grammar does not allow not counted."""
    num_accepted_tokens: int
    """Of those, the ones accepted."""
    num_accepted_tokens_per_pos: tuple[int, ...]
    """By position in the row, from the first draft on."""
    num_draft_tokens_per_pos: tuple[int, ...]
    """By position in the row."""


@attrs.frozen
class SchedulerStats:
    """The scheduler's own figures after an update."""

    num_running_requests: int
    """Requests that run."""
    num_waiting_requests: int
    """Requests that wait and are not deferred."""
    num_skipped_waiting_requests: int
    """Requests that wait and are deferred."""
    kv_cache_usage: float
    """Share of the usable blocks in use, from 0.0 to 1.0."""
    prefix_cache_stats: PrefixCacheStats
    """Look-ups since the last report."""
    spec_decoding_stats: SpecDecodingStats | None = None
    """What this update learnt about drafts; None where no draft was verified."""


@attrs.frozen
class ClientOutputs:
    """What one front end gets from one update."""

    outputs: tuple[EngineOutput, ...] = ()
    """In the order of the batch."""
    finished_request_ids: tuple[RequestId, ...] | None = None
    """Ids finished since the last report, if asked for in the config; None where there are none."""
    scheduler_stats: SchedulerStats | None = None
    """With the first client of an update only."""


@attrs.frozen
class Emitted:
    """What one update told the world."""

    clients: OrderedMap[int, ClientOutputs] = OrderedMap()
    """Per front end, in the order of their first output."""
    kv_events: tuple[KVCacheEvent, ...] = ()
    """What happened to the prefix index since the last update."""
