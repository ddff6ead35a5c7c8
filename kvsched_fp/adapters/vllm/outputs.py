"""From our outputs to vLLM's own, field by field.

What vLLM hands through from the request or from the model runner (sampling parameters, log-probabilities,
trace headers, adapters, pooled outputs) is handed through here as well.
"""

import time
from collections.abc import Iterable, Mapping
from copy import deepcopy

from vllm.distributed.kv_events import MEDIUM_GPU, KVEventBatch
from vllm.distributed.kv_events import (
    AllBlocksCleared as VllmAllBlocksCleared,
)
from vllm.distributed.kv_events import (
    BlockRemoved as VllmBlockRemoved,
)
from vllm.distributed.kv_events import (
    BlockStored as VllmBlockStored,
)
from vllm.v1.core.sched.output import NewRequestData as VllmNewRequestData
from vllm.v1.core.sched.output import SchedulerOutput as VllmSchedulerOutput
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.engine import FinishReason as VllmFinishReason
from vllm.v1.kv_cache_interface import (
    KVCacheConfig,
    get_kv_cache_spec_kind,
    get_kv_cache_spec_sliding_window,
)
from vllm.v1.metrics.stats import KV_FETCH_STAGES
from vllm.v1.metrics.stats import SchedulerStats as VllmSchedulerStats
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request as VllmRequest

from kvsched_fp.adapters.vllm.mirror import to_events
from kvsched_fp.adapters.vllm.pairings import (
    BLOCK_REMOVED,
    BLOCK_STORED,
    NEW_REQUEST,
    SCHEDULER_STATS,
    STEP,
    WITHOUT,
    to_request_error,
)
from kvsched_fp.kvcache.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVCacheEvent
from kvsched_fp.outputs import (
    ClientOutputs,
    EngineOutput,
    NewRequestData,
    SchedulerOutput,
    SchedulerStats,
)


def to_vllm_output(output: SchedulerOutput, requests: Mapping[str, VllmRequest]) -> VllmSchedulerOutput:
    """Give the step in vLLM's words; `requests` are the live ones."""
    new_requests = [_to_new_request(new, requests[new.request_id]) for new in output.scheduled_new_requests]
    made: VllmSchedulerOutput = STEP.to_theirs(output, scheduled_new_reqs=new_requests, **deepcopy(WITHOUT))
    return made


def _to_new_request(new: NewRequestData, request: VllmRequest) -> VllmNewRequestData:
    return NEW_REQUEST.to_theirs(
        new,
        prompt_token_ids=request.prompt_token_ids,
        # The list that goes on growing with the request, as with the reference.
        prefill_token_ids=None if new.prefill_token_ids is None else request._all_token_ids,
        mm_features=[],
        sampling_params=request.sampling_params,
        pooling_params=request.pooling_params,
        lora_request=request.lora_request,
    )


def to_engine_output(
    told: EngineOutput, request: VllmRequest, returned: ModelRunnerOutput, prefill_stats: object
) -> EngineCoreOutput:
    """Give what a client learns about a request; `prefill_stats` is the request's own record of them.

    The list of sampled tokens is cut in place and handed through, as the reference does.
    """
    index = returned.req_id_to_index[told.request_id]
    new_token_ids = returned.sampled_token_ids[index] if returned.sampled_token_ids else []
    del new_token_ids[len(told.new_token_ids) :]
    params = request.sampling_params
    logprobs = None
    if params is not None and params.num_logprobs is not None and returned.logprobs:
        logprobs = returned.logprobs.slice_request(index, len(new_token_ids))
    reason = told.finish_reason
    return EngineCoreOutput(
        request_id=told.request_id,
        new_token_ids=new_token_ids,
        new_logprobs=logprobs,
        new_prompt_logprobs_tensors=returned.prompt_logprobs_dict.get(told.request_id),
        prompt_token_id_logprobs=returned.prompt_token_id_logprobs_dict.get(told.request_id),
        pooling_output=returned.pooler_output[index] if returned.pooler_output else None,
        finish_reason=None if reason is None else VllmFinishReason[reason.name],
        stop_reason=told.stop_reason,
        events=to_events(told.events) or None,
        prefill_stats=prefill_stats,
        spec_decode_metrics=None if reason is None else request.spec_decode_metrics,
        trace_headers=request.trace_headers,
        num_nans_in_logits=request.num_nans_in_logits,
    )


def to_error_output(told: EngineOutput, request: VllmRequest) -> EngineCoreOutput:
    """Give what a client learns about a request that ended without any output."""
    return EngineCoreOutput(
        request_id=told.request_id,
        new_token_ids=[],
        finish_reason=VllmFinishReason.ERROR,
        events=to_events(told.events) or None,
        trace_headers=request.trace_headers,
        error=to_request_error(told.error),
    )


def to_client_outputs(
    told: ClientOutputs, outputs: list[EngineCoreOutput], returned: ModelRunnerOutput
) -> EngineCoreOutputs:
    """Give what one front end gets; `outputs` are its `told.outputs`, translated."""
    made = EngineCoreOutputs(outputs=outputs)
    if told.finished_request_ids is not None:
        made.finished_requests = set(told.finished_request_ids)
    if told.scheduler_stats is not None:
        made.scheduler_stats = to_scheduler_stats(told.scheduler_stats)
        made.scheduler_stats.cudagraph_stats = returned.cudagraph_stats
    return made


def to_scheduler_stats(stats: SchedulerStats) -> VllmSchedulerStats:
    """Give the scheduler's figures."""
    stages = dict.fromkeys(KV_FETCH_STAGES, 0)
    made: VllmSchedulerStats = SCHEDULER_STATS.to_theirs(stats, num_kv_fetch_reqs_by_stage=stages)
    return made


def to_kv_event(
    event: KVCacheEvent, kv_cache_config: KVCacheConfig | None
) -> VllmBlockStored | VllmBlockRemoved | VllmAllBlocksCleared:
    """Give an event of the prefix index.

    The kind of the group is filled in from `kv_cache_config`; without one it is left open, as in the
    reference before the event is published.
    """
    match event:
        case AllBlocksCleared():
            return VllmAllBlocksCleared()
        case BlockRemoved():
            return BLOCK_REMOVED.to_theirs(event, medium=MEDIUM_GPU)
        case BlockStored():
            return _to_block_stored(event, kv_cache_config)


def _to_block_stored(event: BlockStored, kv_cache_config: KVCacheConfig | None) -> VllmBlockStored:
    stored: VllmBlockStored = BLOCK_STORED.to_theirs(event, medium=MEDIUM_GPU)
    if kv_cache_config is not None:
        spec = kv_cache_config.kv_cache_groups[event.group_index].kv_cache_spec
        stored.kv_cache_spec_kind = get_kv_cache_spec_kind(spec).value
        stored.kv_cache_spec_sliding_window = get_kv_cache_spec_sliding_window(spec)
    return stored


def to_kv_event_batch(events: Iterable[KVCacheEvent], kv_cache_config: KVCacheConfig) -> KVEventBatch:
    """Give what is published after one update."""
    return KVEventBatch(ts=time.time(), events=[to_kv_event(event, kv_cache_config) for event in events])
