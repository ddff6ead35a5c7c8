"""From vLLM's outputs and requests to our values, to be compared field by field and to be recorded.

Ids that the reference keeps as a set come out sorted; `sorted_sets` does the same to ours.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from vllm.distributed.kv_events import AllBlocksCleared as VllmAllBlocksCleared
from vllm.distributed.kv_events import BlockStored as VllmBlockStored
from vllm.v1.core.sched.output import SchedulerOutput as VllmSchedulerOutput
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.metrics.stats import PrefillStats as VllmPrefillStats
from vllm.v1.request import Request as VllmRequest

from kvsched_fp.adapters.vllm.pairings import (
    BLOCK_REMOVED,
    BLOCK_STORED,
    REQUEST_EVENT,
    SCHEDULER_STATS,
    SPEC_DECODE_METRICS,
    STATUSES,
    STEP,
    read_request_error,
)
from kvsched_fp.events import Event, ResetPrefixCache, Schedule, Update
from kvsched_fp.ids import BlockHash, StepId
from kvsched_fp.kvcache.kv_events import AllBlocksCleared, KVCacheEvent
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import ClientOutputs, Emitted, EngineOutput, SchedulerOutput
from kvsched_fp.progress import PrefillStats, Progress, RequestEvent, RequestSpecDecodeMetrics
from kvsched_fp.request import FinishReason, Request
from kvsched_fp.trace.codec import Told


def read_told(
    event: Event, answer: Any, kv_events: Iterable[Any], current_step: int, *, runs_on: bool = True
) -> Told:
    """Read what the real scheduler answered to `event`, and the KV events that it published on it.

    `runs_on` says whether its clock runs on while it works, as in an engine (`read_events`).
    """
    if isinstance(event, Schedule):
        return read_output(answer, StepId(current_step))
    if isinstance(event, Update):
        return read_emitted(answer, kv_events, event.time if runs_on else None)
    return bool(answer) if isinstance(event, ResetPrefixCache) else None


def read_output(output: VllmSchedulerOutput, step_id: StepId) -> SchedulerOutput:
    """Read a step of the real scheduler."""
    return STEP.to_ours(output, step_id=step_id)


def read_emitted(
    clients: Mapping[int, EngineCoreOutputs], kv_events: Iterable[Any], time: float | None
) -> Emitted:
    """Read what an update of the real scheduler told; `time` is as for `read_events`."""
    return Emitted(
        clients=OrderedMap({client: _read_client(told, time) for client, told in clients.items()}),
        kv_events=tuple(map(_read_kv_event, kv_events)),
    )


def _read_client(told: EngineCoreOutputs, time: float | None) -> ClientOutputs:
    return ClientOutputs(
        outputs=tuple([read_engine_output(output, time) for output in told.outputs]),
        finished_request_ids=(
            None if told.finished_requests is None else tuple(sorted(told.finished_requests))
        ),
        scheduler_stats=(
            None if told.scheduler_stats is None else SCHEDULER_STATS.to_ours(told.scheduler_stats)
        ),
    )


def read_engine_output(told: EngineCoreOutput, time: float | None) -> EngineOutput:
    """Read what a client was told about a request; `time` is as for `read_events`."""
    reason, metrics = told.finish_reason, told.spec_decode_metrics
    return EngineOutput(
        request_id=told.request_id,
        new_token_ids=tuple(told.new_token_ids),
        finish_reason=None if reason is None else FinishReason[reason.name],
        stop_reason=told.stop_reason,
        prefill_stats=read_prefill_stats(told.prefill_stats),
        spec_decode_metrics=None if metrics is None else SPEC_DECODE_METRICS.to_ours(metrics),
        events=read_events(told.events or (), time),
        error=read_request_error(told.error),
        pooled=told.pooling_output is not None,
    )


def read_events(events: Iterable[Any], time: float | None = None) -> tuple[RequestEvent, ...]:
    """Read what happened to a request.

    The reference reads the clock once for every session that an update lets go on; here an update has one
    `time`, the first of them. Where that clock runs on, `time` is when the update began. None, and 0.0 of
    an update that read no clock, leave the events as they are.
    """
    read: tuple[RequestEvent, ...] = tuple(map(REQUEST_EVENT.to_ours, events))
    if not time:
        return read
    return tuple([attrs.evolve(event, time=min(event.time, time)) for event in read])


def read_prefill_stats(stats: VllmPrefillStats | None) -> PrefillStats | None:
    """Read how a prompt was filled."""
    if stats is None:
        return None
    return PrefillStats(
        num_prompt_tokens=stats.num_prompt_tokens,
        num_computed_tokens=stats.num_computed_tokens,
        num_local_cached_tokens=stats.num_local_cached_tokens,
        num_cache_creation_tokens=stats.num_cache_creation_tokens,
    )


def _read_kv_event(event: Any) -> KVCacheEvent:
    if isinstance(event, VllmAllBlocksCleared):
        return AllBlocksCleared()
    if isinstance(event, VllmBlockStored):
        return BLOCK_STORED.to_ours(event)
    return BLOCK_REMOVED.to_ours(event)


@attrs.frozen
class RequestView:
    """What can be seen of a request's progress on both sides."""

    status: str
    num_computed_tokens: int
    num_in_flight_tokens: int
    is_prefill_chunk: bool
    output_token_ids: tuple[int, ...]
    block_hashes: tuple[BlockHash, ...]
    num_preemptions: int
    num_stale_output_tokens: int
    drop_stale_output: bool
    prefill_stats: PrefillStats | None
    priority: int
    spec_token_ids: tuple[int, ...]
    num_output_placeholders: int
    next_decode_eligible_step: int
    spec_decode_metrics: RequestSpecDecodeMetrics | None
    events: tuple[RequestEvent, ...]
    stop_reason: int | str | None
    num_chunks: int
    num_prompt_tokens: int
    max_tokens: int
    arrival_time: float


def read_request(request: VllmRequest) -> RequestView:
    """Read the progress of a request of the real scheduler."""
    metrics = request.spec_decode_metrics
    return RequestView(
        status=request.status.name,
        num_computed_tokens=request.num_computed_tokens,
        num_in_flight_tokens=request.num_in_flight_tokens,
        is_prefill_chunk=request.is_prefill_chunk,
        output_token_ids=tuple(request.output_token_ids),
        block_hashes=tuple(request.block_hashes),
        num_preemptions=request.num_preemptions,
        num_stale_output_tokens=request.num_stale_output_tokens,
        drop_stale_output=request.drop_stale_output,
        prefill_stats=read_prefill_stats(request.prefill_stats),
        priority=request.priority,
        spec_token_ids=tuple(request.spec_token_ids),
        num_output_placeholders=request.num_output_placeholders,
        next_decode_eligible_step=request.next_decode_eligible_step,
        spec_decode_metrics=None if metrics is None else SPEC_DECODE_METRICS.to_ours(metrics),
        events=read_events(request.events),
        stop_reason=request.stop_reason,
        num_chunks=len(request.streaming_queue or ()),
        num_prompt_tokens=request.num_prompt_tokens,
        max_tokens=request.max_tokens,
        arrival_time=request.arrival_time,
    )


def view_request(request: Request, progress: Progress) -> RequestView:
    """Show the progress of a request of ours in the same way."""
    sampled = request.sampling_params
    shown = {field.name for field in attrs.fields(RequestView)}
    same = shown & {field.name for field in attrs.fields(Progress)}
    return RequestView(
        **{name: getattr(progress, name) for name in same - {"status", "output_token_ids"}},
        status=STATUSES[progress.status].name,
        output_token_ids=tuple(progress.output_token_ids),
        priority=request.priority,
        num_chunks=len(progress.chunks),
        num_prompt_tokens=request.num_prompt_tokens,
        max_tokens=sampled.max_tokens,
        arrival_time=request.arrival_time,
    )


def sorted_sets(told: Any) -> Any:
    """Sort the ids in our outputs that the reference keeps as sets."""
    if isinstance(told, SchedulerOutput):
        cached = told.scheduled_cached_requests
        resumed = tuple(sorted(cached.resumed_request_ids))
        return attrs.evolve(
            told,
            scheduled_cached_requests=attrs.evolve(cached, resumed_request_ids=resumed),
            preempted_request_ids=tuple(sorted(told.preempted_request_ids)),
            finished_request_ids=tuple(sorted(told.finished_request_ids)),
        )
    if isinstance(told, Emitted):
        clients = {client: _with_sorted_sets(outputs) for client, outputs in told.clients.items()}
        return attrs.evolve(told, clients=OrderedMap(clients))
    return told


def _with_sorted_sets(told: ClientOutputs) -> ClientOutputs:
    if told.finished_request_ids is None:
        return told
    return attrs.evolve(told, finished_request_ids=tuple(sorted(told.finished_request_ids)))
