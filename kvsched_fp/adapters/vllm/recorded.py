"""From vLLM's outputs and requests to our values, to be compared field by field and to be recorded.

Ids that the reference keeps as a set come out sorted; `sorted_sets` does the same to ours.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from vllm.distributed.kv_events import AllBlocksCleared as VllmAllBlocksCleared
from vllm.distributed.kv_events import BlockStored as VllmBlockStored
from vllm.v1.core.sched.output import CachedRequestData as VllmCachedRequestData
from vllm.v1.core.sched.output import NewRequestData as VllmNewRequestData
from vllm.v1.core.sched.output import SchedulerOutput as VllmSchedulerOutput
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.metrics.stats import PrefillStats as VllmPrefillStats
from vllm.v1.metrics.stats import SchedulerStats as VllmSchedulerStats
from vllm.v1.request import Request as VllmRequest

from kvsched_fp.ids import BlockHash, StepId
from kvsched_fp.kvcache.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVCacheEvent
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import (
    BlockIds,
    CachedRequestData,
    ClientOutputs,
    Emitted,
    EngineOutput,
    NewRequestData,
    PrefixCacheStats,
    SchedulerOutput,
    SchedulerStats,
)
from kvsched_fp.progress import PrefillStats
from kvsched_fp.request import FinishReason


def read_output(output: VllmSchedulerOutput, step_id: StepId) -> SchedulerOutput:
    """Read a step of the real scheduler."""
    return SchedulerOutput(
        step_id=step_id,
        scheduled_new_requests=tuple(map(_read_new_request, output.scheduled_new_reqs)),
        scheduled_cached_requests=_read_cached_requests(output.scheduled_cached_reqs),
        num_scheduled_tokens=OrderedMap(output.num_scheduled_tokens),
        total_num_scheduled_tokens=output.total_num_scheduled_tokens,
        preempted_request_ids=tuple(sorted(output.preempted_req_ids or ())),
        finished_request_ids=tuple(sorted(output.finished_req_ids)),
        new_block_ids_to_zero=(
            None if output.new_block_ids_to_zero is None else tuple(output.new_block_ids_to_zero)
        ),
    )


def _read_new_request(new: VllmNewRequestData) -> NewRequestData:
    return NewRequestData(
        request_id=new.req_id,
        prompt_token_ids=tuple(new.prompt_token_ids),
        block_ids=read_block_ids(new.block_ids),
        num_computed_tokens=new.num_computed_tokens,
        prefill_token_ids=None if new.prefill_token_ids is None else tuple(new.prefill_token_ids),
    )


def _read_cached_requests(cached: VllmCachedRequestData) -> CachedRequestData:
    return CachedRequestData(
        request_ids=tuple(cached.req_ids),
        resumed_request_ids=tuple(sorted(cached.resumed_req_ids)),
        all_token_ids=OrderedMap(
            {request_id: tuple(token_ids) for request_id, token_ids in cached.all_token_ids.items()}
        ),
        new_block_ids=tuple(None if ids is None else read_block_ids(ids) for ids in cached.new_block_ids),
        num_computed_tokens=tuple(cached.num_computed_tokens),
        num_output_tokens=tuple(cached.num_output_tokens),
    )


def read_block_ids(block_ids: Iterable[Iterable[Any]]) -> BlockIds:
    """Read block ids, per group."""
    return tuple(map(tuple, block_ids))


def read_emitted(clients: Mapping[int, EngineCoreOutputs], kv_events: Iterable[Any]) -> Emitted:
    """Read what an update of the real scheduler told."""
    return Emitted(
        clients=OrderedMap({client: _read_client(told) for client, told in clients.items()}),
        kv_events=tuple(map(_read_kv_event, kv_events)),
    )


def _read_client(told: EngineCoreOutputs) -> ClientOutputs:
    return ClientOutputs(
        outputs=tuple(map(_read_engine_output, told.outputs)),
        finished_request_ids=(
            None if told.finished_requests is None else tuple(sorted(told.finished_requests))
        ),
        scheduler_stats=None if told.scheduler_stats is None else _read_stats(told.scheduler_stats),
    )


def _read_engine_output(told: EngineCoreOutput) -> EngineOutput:
    reason = told.finish_reason
    return EngineOutput(
        request_id=told.request_id,
        new_token_ids=tuple(told.new_token_ids),
        finish_reason=None if reason is None else FinishReason[reason.name],
        stop_reason=told.stop_reason,
        prefill_stats=read_prefill_stats(told.prefill_stats),
    )


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


def _read_stats(stats: VllmSchedulerStats) -> SchedulerStats:
    return SchedulerStats(
        num_running_requests=stats.num_running_reqs,
        num_waiting_requests=stats.num_waiting_reqs,
        num_skipped_waiting_requests=stats.num_skipped_waiting_reqs,
        kv_cache_usage=stats.kv_cache_usage,
        prefix_cache_stats=read_prefix_cache_stats(stats.prefix_cache_stats),
    )


def read_prefix_cache_stats(stats: Any) -> PrefixCacheStats:
    """Read the look-ups since the last report."""
    return PrefixCacheStats(
        reset=stats.reset,
        requests=stats.requests,
        queries=stats.queries,
        hits=stats.hits,
        preempted_requests=stats.preempted_requests,
        preempted_queries=stats.preempted_queries,
        preempted_hits=stats.preempted_hits,
    )


def _read_kv_event(event: Any) -> KVCacheEvent:
    if isinstance(event, VllmAllBlocksCleared):
        return AllBlocksCleared()
    hashes = tuple(map(_read_hash, event.block_hashes))
    if not isinstance(event, VllmBlockStored):
        return BlockRemoved(hashes, event.group_idx)
    parent = event.parent_block_hash
    return BlockStored(
        block_hashes=hashes,
        parent_block_hash=None if parent is None else _read_hash(parent),
        token_ids=tuple(event.token_ids),
        block_size=event.block_size,
        extra_keys=tuple(event.extra_keys or ()),
        group_index=event.group_idx,
    )


def _read_hash(name: bytes | int) -> BlockHash:
    """Read the name of a block; by default vLLM publishes the last 8 bytes of the hash as a number."""
    return BlockHash(name if isinstance(name, bytes) else name.to_bytes(8, "big"))


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


def read_request(request: VllmRequest) -> RequestView:
    """Read the progress of a request of the real scheduler."""
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
