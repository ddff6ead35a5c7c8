"""Writing progress back to vLLM's `Request` objects, so that they show what the real scheduler would.

The objects belong to whoever handed them in. While they are held here their own attributes are guarded
(`held.py`), so that everything is written past the guard, into the instance dictionary.
"""

import time
from typing import Any

from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType
from vllm.v1.metrics.stats import PrefillStats as VllmPrefillStats
from vllm.v1.request import Request as VllmRequest
from vllm.v1.request import RequestStatus as VllmRequestStatus

from kvsched_fp.outputs import EngineOutput
from kvsched_fp.progress import PrefillStats, Progress
from kvsched_fp.request import FinishReason, RequestStatus

STATUSES: dict[RequestStatus, VllmRequestStatus] = {
    status: VllmRequestStatus[status.name]
    for status in RequestStatus
    if status.name in VllmRequestStatus.__members__  # the others come with features that are refused
}
"""Each of our statuses in vLLM's words."""

_STOPPED = {
    FinishReason.STOP: VllmRequestStatus.FINISHED_STOPPED,
    FinishReason.LENGTH: VllmRequestStatus.FINISHED_LENGTH_CAPPED,
    FinishReason.REPETITION: VllmRequestStatus.FINISHED_REPETITION,
}
"""The status behind each reason for which an output stops by itself [U-STOP-01]."""


def write_progress(request: VllmRequest, before: Progress, after: Progress) -> None:
    """Show the step from `before` to `after`, output tokens apart."""
    attributes = vars(request)
    attributes["status"] = STATUSES[after.status]
    attributes["num_computed_tokens"] = after.num_computed_tokens
    attributes["num_in_flight_tokens"] = after.num_in_flight_tokens
    attributes["is_prefill_chunk"] = after.is_prefill_chunk
    attributes["num_preemptions"] = after.num_preemptions
    attributes["num_stale_output_tokens"] = after.num_stale_output_tokens
    attributes["drop_stale_output"] = after.drop_stale_output
    if after.prefill_stats is not None and after.prefill_stats is not before.prefill_stats:
        _write_prefill_stats(attributes["prefill_stats"], after.prefill_stats)


def write_event(request: VllmRequest, kind: EngineCoreEventType, timestamp: float | None = None) -> None:
    """Note when something happened, in seconds of the monotonic clock; None for now."""
    moment = time.monotonic() if timestamp is None else timestamp
    vars(request)["events"].append(EngineCoreEvent(kind, moment))


def write_output_tokens(request: VllmRequest, token_ids: tuple[int, ...]) -> None:
    """Append tokens, and the hashes of the blocks that they fill."""
    VllmRequest.append_output_token_ids(request, list(token_ids))


def take_prefill_stats(request: VllmRequest, told: PrefillStats | None) -> VllmPrefillStats | None:
    """Take the request's own record of its prefill, completed, for its first output."""
    if told is None:
        return None
    stats: VllmPrefillStats = vars(request)["prefill_stats"]
    _write_prefill_stats(stats, told)
    vars(request)["prefill_stats"] = None
    return stats


def write_end(
    request: VllmRequest,
    before: Progress,
    told: EngineOutput,
    finish_reason: FinishReason,
    *,
    num_scheduled_tokens: int,
    num_sampled_tokens: int,
) -> None:
    """Show how a request ended that stopped, given where it stood and what its client is told.

    Tokens behind the one that stopped it had been counted as computed, unless they were stale.
    """
    was_stale = before.num_stale_output_tokens > 0
    attributes = vars(request)
    attributes["num_in_flight_tokens"] = before.num_in_flight_tokens - num_scheduled_tokens
    if was_stale:
        attributes["num_stale_output_tokens"] = before.num_stale_output_tokens - num_scheduled_tokens
    else:
        attributes["num_computed_tokens"] -= num_sampled_tokens - len(told.new_token_ids)
    attributes["status"] = _STOPPED[finish_reason]
    attributes["stop_reason"] = told.stop_reason


def _write_prefill_stats(stats: Any, told: PrefillStats) -> None:
    """Copy the figures; without a connector, all that is cached is cached locally."""
    stats.num_prompt_tokens = told.num_prompt_tokens
    stats.num_computed_tokens = told.num_computed_tokens
    stats.num_cached_tokens = told.num_local_cached_tokens
    stats.num_local_cached_tokens = told.num_local_cached_tokens
    stats.num_cache_creation_tokens = told.num_cache_creation_tokens
