"""Writing progress back to vLLM's `Request` objects, so that they show what the real scheduler would.

The objects belong to whoever handed them in. While they are held here their own attributes are guarded
(`held.py`), so that everything is written past the guard, into the instance dictionary.
"""

from collections import deque
from typing import Any

from vllm.v1.metrics.stats import PrefillStats as VllmPrefillStats
from vllm.v1.request import Request as VllmRequest
from vllm.v1.request import RequestStatus as VllmRequestStatus
from vllm.v1.request import StreamingUpdate

from kvsched_fp.adapters.vllm.pairings import REQUEST_EVENT, SPEC_DECODE_METRICS, STATUSES
from kvsched_fp.outputs import EngineOutput
from kvsched_fp.progress import PrefillStats, Progress, RequestEvent
from kvsched_fp.request import FinishReason, Request

_FINAL = {
    FinishReason.STOP: VllmRequestStatus.FINISHED_STOPPED,
    FinishReason.LENGTH: VllmRequestStatus.FINISHED_LENGTH_CAPPED,
    FinishReason.REPETITION: VllmRequestStatus.FINISHED_REPETITION,
    FinishReason.ERROR: VllmRequestStatus.FINISHED_ERROR,
}
"""The status behind each reason for which an output stops by itself [U-STOP-01, U-TOK-12]."""


def write_arrival(request: VllmRequest, progress: Progress) -> None:
    """Show that a new request waits."""
    attributes = vars(request)
    attributes["events"] = to_events(progress.events)
    if request.resumable:
        attributes["streaming_queue"] = deque()
    if progress.spec_decode_metrics is not None:
        attributes["spec_decode_metrics"] = SPEC_DECODE_METRICS.to_theirs(progress.spec_decode_metrics)


def write_progress(request: VllmRequest, before: Progress, after: Progress) -> None:
    """Show the step from `before` to `after`, tokens and their hashes apart."""
    attributes = vars(request)
    attributes["status"] = STATUSES[after.status]
    attributes["num_computed_tokens"] = after.num_computed_tokens
    attributes["num_in_flight_tokens"] = after.num_in_flight_tokens
    attributes["is_prefill_chunk"] = after.is_prefill_chunk
    attributes["num_preemptions"] = after.num_preemptions
    attributes["num_stale_output_tokens"] = after.num_stale_output_tokens
    attributes["drop_stale_output"] = after.drop_stale_output
    attributes["num_output_placeholders"] = after.num_output_placeholders
    attributes["next_decode_eligible_step"] = after.next_decode_eligible_step
    attributes["stop_reason"] = after.stop_reason
    if after.spec_token_ids is not before.spec_token_ids:
        attributes["spec_token_ids"] = list(after.spec_token_ids)
    if after.events is not before.events:
        attributes["events"] = to_events(after.events)
    metrics = after.spec_decode_metrics
    if metrics is not None and metrics is not before.spec_decode_metrics:
        # The object itself goes to the client in the end.
        vars(attributes["spec_decode_metrics"]).update(vars(SPEC_DECODE_METRICS.to_theirs(metrics)))
    if after.prefill_stats is not None and after.prefill_stats is not before.prefill_stats:
        _write_prefill_stats(attributes["prefill_stats"], after.prefill_stats)


def to_events(events: tuple[RequestEvent, ...]) -> list[Any]:
    """Give what happened to a request in vLLM's words."""
    return [REQUEST_EVENT.to_theirs(event) for event in events]


def write_output_tokens(request: VllmRequest, token_ids: tuple[int, ...]) -> None:
    """Append tokens, and the hashes of the blocks that they fill."""
    VllmRequest.append_output_token_ids(request, list(token_ids))


def write_hashes(request: VllmRequest, progress: Progress) -> None:
    """Show that a session was hashed anew [M-SESS-07]."""
    vars(request)["block_hashes"][:] = progress.block_hashes


def write_chunk(request: VllmRequest, chunk: StreamingUpdate, asked: Request, block_size: int) -> None:
    """Show that a session goes on with its next input [M-SESS-02]; `asked` is the session with it.

    The lists are changed in place, as the reference does: whoever sent the request holds them, too.
    """
    attributes = vars(request)
    num_kept = len(attributes["_all_token_ids"]) - 1
    del attributes["block_hashes"][num_kept // block_size :]
    attributes["_output_token_ids"].clear()
    attributes["_all_token_ids"][:] = asked.prompt_token_ids
    attributes["prompt_token_ids"][:] = asked.prompt_token_ids
    VllmRequest.update_block_hashes(request)
    attributes["num_prompt_tokens"] = asked.num_prompt_tokens
    attributes["arrival_time"] = chunk.arrival_time
    attributes["sampling_params"] = chunk.sampling_params
    attributes["max_tokens"] = chunk.max_tokens


def take_chunk(request: VllmRequest) -> StreamingUpdate | None:
    """Take the next input of a session out of its queue; None is the end."""
    chunk: StreamingUpdate | None = vars(request)["streaming_queue"].popleft()
    return chunk


def take_prefill_stats(request: VllmRequest, told: PrefillStats | None) -> VllmPrefillStats | None:
    """Take the request's own record of its prefill, completed, for its first output."""
    if told is None:
        return None
    stats: VllmPrefillStats = vars(request)["prefill_stats"]
    _write_prefill_stats(stats, told)
    vars(request)["prefill_stats"] = None
    return stats


def write_end(request: VllmRequest, last: Progress, told: EngineOutput) -> None:
    """Show how a request ended that stopped, given where it stood last and what its client is told."""
    assert told.finish_reason is not None
    attributes = vars(request)
    attributes["status"] = _FINAL[told.finish_reason]
    attributes["stop_reason"] = told.stop_reason
    attributes["events"] = []
    if told.error is not None:
        return
    if told.finish_reason is FinishReason.ERROR:
        attributes["resumable"] = False
    elif request.resumable:
        # The reference prepares a session to go on before it sees the end marker [M-SESS-04].
        take_chunk(request)
        attributes["num_computed_tokens"] = last.num_computed_tokens - last.num_output_placeholders
        attributes["num_output_placeholders"] = 0
        attributes["num_stale_output_tokens"] = last.num_in_flight_tokens
        attributes["drop_stale_output"] = True
        attributes["spec_token_ids"] = []


def _write_prefill_stats(stats: Any, told: PrefillStats) -> None:
    """Copy the figures; without a connector, all that is cached is cached locally."""
    stats.num_prompt_tokens = told.num_prompt_tokens
    stats.num_computed_tokens = told.num_computed_tokens
    stats.num_cached_tokens = told.num_local_cached_tokens
    stats.num_local_cached_tokens = told.num_local_cached_tokens
    stats.num_cache_creation_tokens = told.num_cache_creation_tokens
