"""Whether the real scheduler and the machine agree: quickly, since nearly always they do.

Nothing here says where they differ; that is found out from the values that `recorded.py` reads, once.
"""

from collections.abc import Iterable, Mapping, Sequence

from vllm.v1.core.sched.output import SchedulerOutput as VllmSchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.request import Request as VllmRequest
from vllm.v1.request import RequestStatus as VllmRequestStatus

from kvsched_fp.adapters.vllm.pairings import (
    SCHEDULER_STATS,
    SPEC_DECODE_METRICS,
    STATUSES,
    to_block_ids,
)
from kvsched_fp.adapters.vllm.recorded import (
    read_engine_output,
    read_output,
    read_prefill_stats,
    sorted_sets,
)
from kvsched_fp.config import SchedulingPolicy
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.outputs import ClientOutputs, Emitted, SchedulerOutput
from kvsched_fp.progress import Progress
from kvsched_fp.request import Request, RequestStatus
from kvsched_fp.state import SchedulerState

_RUNNING = VllmRequestStatus.RUNNING


def is_same_step(real: VllmSchedulerOutput, ours: SchedulerOutput) -> bool:
    """Tell whether both plan the same step."""
    cached, our_cached = real.scheduled_cached_reqs, ours.scheduled_cached_requests
    if real.scheduled_new_reqs or cached.all_token_ids or real.num_invalid_spec_tokens is not None:
        return bool(read_output(real, StepId(ours.step_id)) == sorted_sets(ours))
    return bool(
        not ours.scheduled_new_requests
        and not our_cached.all_token_ids
        and list(real.num_scheduled_tokens.items()) == list(ours.num_scheduled_tokens.items())
        and real.total_num_scheduled_tokens == ours.total_num_scheduled_tokens
        and tuple(cached.req_ids) == our_cached.request_ids
        and tuple(cached.num_computed_tokens) == our_cached.num_computed_tokens
        and tuple(cached.num_output_tokens) == our_cached.num_output_tokens
        and cached.resumed_req_ids == set(our_cached.resumed_request_ids)
        and tuple([None if ids is None else to_block_ids(ids) for ids in cached.new_block_ids])
        == our_cached.new_block_ids
        and (real.preempted_req_ids or set()) == set(ours.preempted_request_ids)
        and real.finished_req_ids == set(ours.finished_request_ids)
        and (real.new_block_ids_to_zero is None) == (ours.new_block_ids_to_zero is None)
        and tuple(real.new_block_ids_to_zero or ()) == (ours.new_block_ids_to_zero or ())
        and real.num_spec_tokens_to_schedule == ours.num_spec_tokens_to_schedule
        and real.skip_drafts == ours.skip_drafts
        and real.has_structured_output_requests == ours.has_structured_output_requests
        and real.pending_structured_output_tokens == ours.pending_structured_output_tokens
        and is_same_token_map(real.scheduled_spec_decode_tokens, ours.scheduled_spec_token_ids)
        and real.num_invalid_spec_tokens is ours.num_invalid_spec_tokens is None
        and to_block_ids(cached.new_token_ids) == our_cached.new_token_ids
    )


def is_same_token_map(real: Mapping[str, Sequence[int]], ours: Mapping[RequestId, tuple[int, ...]]) -> bool:
    """Tell whether both have the same tokens for the same requests, in the same order."""
    if not real and not ours:
        return True
    return [(name, tuple(tokens)) for name, tokens in real.items()] == list(ours.items())


def is_same_told(real: Mapping[int, EngineCoreOutputs], ours: Emitted, time: float) -> bool:
    """Tell whether both tell the clients the same, KV events apart; `time` is that of the event."""
    if list(real) != list(ours.clients):
        return False
    for client, told in ours.clients.items():
        outputs = real[client].outputs
        if len(outputs) != len(told.outputs):
            return False
        for output, our_output in zip(outputs, told.outputs, strict=True):
            if (
                output.finish_reason is our_output.finish_reason is None
                and output.prefill_stats is our_output.prefill_stats is None
                and output.stop_reason is our_output.stop_reason is None
                and output.spec_decode_metrics is our_output.spec_decode_metrics is None
                and output.error is our_output.error is None
                and output.pooling_output is output.events is None
                and not our_output.pooled
                and not our_output.events
                and output.request_id == our_output.request_id
                and tuple(output.new_token_ids) == our_output.new_token_ids
            ):
                continue
            if read_engine_output(output, time) != our_output:
                return False
    return all(_is_same_rest(real[client], told) for client, told in ours.clients.items())


def _is_same_rest(real: EngineCoreOutputs, ours: ClientOutputs) -> bool:
    """Tell whether a client gets the same besides the outputs."""
    finished, stats, our_stats = real.finished_requests, real.scheduler_stats, ours.scheduler_stats
    if finished is not None or ours.finished_request_ids is not None:
        if finished is None or ours.finished_request_ids is None:
            return False
        if finished != set(ours.finished_request_ids):
            return False
    if stats is None or our_stats is None:
        return stats is our_stats
    return SCHEDULER_STATS.agree(stats, our_stats)


def find_different_request(requests: Iterable[VllmRequest], state: SchedulerState) -> VllmRequest | None:
    """Give the first of `requests` whose progress is not that in `state`, or None."""
    progress = state.progress
    for request in requests:
        ours = progress.get(request.request_id)
        if (
            ours is None
            or ours.num_computed_tokens != request.num_computed_tokens
            or ours.num_in_flight_tokens != request.num_in_flight_tokens
            or ours.is_prefill_chunk != request.is_prefill_chunk
            # Earlier tokens and hashes were the last ones once.
            or len(tokens := ours.output_token_ids) != len(request._output_token_ids)
            or (tokens and tokens[-1] != request._output_token_ids[-1])
            or len(hashes := ours.block_hashes) > len(request.block_hashes)
            or (hashes and hashes[-1] != request.block_hashes[len(hashes) - 1])
            or ours.num_preemptions != request.num_preemptions
            or ours.num_stale_output_tokens != request.num_stale_output_tokens
            or ours.drop_stale_output != request.drop_stale_output
            or ours.num_output_placeholders != request.num_output_placeholders
            or ours.next_decode_eligible_step != request.next_decode_eligible_step
            or ours.stop_reason != request.stop_reason
            or (ours.prefill_stats is None) != (request.prefill_stats is None)
            # So were events; of what kind they are shows when they are told.
            or len(ours.events) != len(request.events)
            or (ours.events and ours.events[-1].time != request.events[-1].timestamp)
        ):
            return request
        if (ours.spec_token_ids or request.spec_token_ids) and (
            ours.spec_token_ids != tuple(request.spec_token_ids)
        ):
            return request
        if ours.status is RequestStatus.RUNNING:
            if request.status is not _RUNNING:
                return request
        elif request.status is not STATUSES[ours.status] or (
            read_prefill_stats(request.prefill_stats) != ours.prefill_stats
        ):
            return request
        has_rare_things = (
            request.resumable
            or request.spec_decode_metrics is not None
            or ours.spec_decode_metrics is not None
        )
        if has_rare_things and _differs_in_rare_things(request, ours, state):
            return request
    return None


def _differs_in_rare_things(request: VllmRequest, ours: Progress, state: SchedulerState) -> bool:
    """Tell whether something differs that most requests do not have."""
    metrics, our_metrics = request.spec_decode_metrics, ours.spec_decode_metrics
    if metrics is not None or our_metrics is not None:
        if metrics is None or our_metrics is None:
            return True
        if (metrics.num_draft_tokens, tuple(metrics.histogram)) != (
            our_metrics.num_draft_tokens,
            our_metrics.histogram,
        ):
            return True
    return request.resumable and not _is_same_session(request, ours, state.requests[request.request_id])


def _is_same_session(request: VllmRequest, ours: Progress, asked: Request) -> bool:
    return (
        len(request.streaming_queue) == len(ours.chunks)
        and tuple(request.prompt_token_ids) == asked.prompt_token_ids
        and request.max_tokens == asked.sampling_params.max_tokens
        and request.arrival_time == asked.arrival_time
    )


def find_differently_asked(requests: Iterable[VllmRequest], state: SchedulerState) -> VllmRequest | None:
    """Give the first of `requests` that differs in what seldom or never changes after it came, or None."""
    for request in requests:
        asked, ours = state.requests.get(request.request_id), state.progress.get(request.request_id)
        if (
            asked is None
            or ours is None
            or request.max_tokens != asked.sampling_params.max_tokens
            or request.num_prompt_tokens != asked.num_prompt_tokens
            or request.arrival_time != asked.arrival_time
            or (ours.prefill_stats and read_prefill_stats(request.prefill_stats) != ours.prefill_stats)
            or (
                ours.spec_decode_metrics
                and not SPEC_DECODE_METRICS.agree(request.spec_decode_metrics, ours.spec_decode_metrics)
            )
        ):
            return request
    return find_other_priority(requests, state)


def find_other_priority(requests: Iterable[VllmRequest], state: SchedulerState) -> VllmRequest | None:
    """Give the first of `requests` that has another priority, where that means anything, or None."""
    if state.config.policy is not SchedulingPolicy.PRIORITY:
        return None
    asked = state.requests
    return next((each for each in requests if each.priority != asked[each.request_id].priority), None)


def find_moved_request(requests: Iterable[VllmRequest], state: SchedulerState) -> VllmRequest | None:
    """Give the first of the running `requests` that a step moved otherwise than ours, or None.

    This looks at what planning a step changes in a running request, and is called after every step;
    the rest is compared after the update that follows.
    """
    progress = state.progress
    for request in requests:
        ours = progress[request.request_id]
        if (
            ours.num_computed_tokens != request.num_computed_tokens
            or ours.num_in_flight_tokens != request.num_in_flight_tokens
            or ours.is_prefill_chunk != request.is_prefill_chunk
            or ours.num_output_placeholders != request.num_output_placeholders
            or ours.next_decode_eligible_step != request.next_decode_eligible_step
            or len(ours.spec_token_ids) != len(request.spec_token_ids)
        ):
            return request
    return None
