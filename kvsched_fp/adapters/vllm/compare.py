"""Whether the real scheduler and the machine agree: quickly, since nearly always they do.

Nothing here says where they differ; that is found out from the values that `recorded.py` reads, once.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput as VllmSchedulerOutput
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.request import Request as VllmRequest
from vllm.v1.request import RequestStatus as VllmRequestStatus

from kvsched_fp.adapters.vllm.pairings import to_block_ids
from kvsched_fp.adapters.vllm.recorded import (
    read_emitted,
    read_output,
    read_prefill_stats,
    sorted_sets,
)
from kvsched_fp.ids import StepId
from kvsched_fp.outputs import Emitted, EngineOutput, SchedulerOutput
from kvsched_fp.progress import Progress
from kvsched_fp.request import RequestStatus

_RUNNING = VllmRequestStatus.RUNNING
_STATUSES = {
    RequestStatus.WAITING: VllmRequestStatus.WAITING,
    RequestStatus.PREEMPTED: VllmRequestStatus.PREEMPTED,
}


def is_same_step(real: VllmSchedulerOutput, ours: SchedulerOutput) -> bool:
    """Tell whether both plan the same step."""
    cached, our_cached = real.scheduled_cached_reqs, ours.scheduled_cached_requests
    if real.scheduled_new_reqs or cached.all_token_ids:
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
    )


def is_same_told(real: Mapping[int, EngineCoreOutputs], ours: Emitted) -> bool:
    """Tell whether both tell the clients the same, KV events apart."""
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
                and output.request_id == our_output.request_id
                and tuple(output.new_token_ids) == our_output.new_token_ids
            ):
                continue
            if not _is_same_output(output, our_output):
                return False
    # Without the outputs, little is left.
    return _without_outputs(read_emitted(_strip(real), ())) == _without_outputs(sorted_sets(ours))


def _is_same_output(real: EngineCoreOutput, ours: EngineOutput) -> bool:
    reason, our_reason = real.finish_reason, ours.finish_reason
    return (
        real.request_id == ours.request_id
        and tuple(real.new_token_ids) == ours.new_token_ids
        and (None if reason is None else reason.name) == (None if our_reason is None else our_reason.name)
        and real.stop_reason == ours.stop_reason
        and read_prefill_stats(real.prefill_stats) == ours.prefill_stats
    )


def _strip(real: Mapping[int, EngineCoreOutputs]) -> Mapping[int, EngineCoreOutputs]:
    return {
        client: EngineCoreOutputs(
            finished_requests=told.finished_requests, scheduler_stats=told.scheduler_stats
        )
        for client, told in real.items()
    }


def _without_outputs(emitted: Emitted) -> list[Any]:
    return [
        (client, told.finished_request_ids, told.scheduler_stats)
        for client, told in emitted.clients.items()
    ]


def find_different_request(
    requests: Iterable[VllmRequest], progress: Iterable[Progress | None]
) -> VllmRequest | None:
    """Give the first of `requests` whose progress is not what stands beside it in `progress`, or None."""
    for request, ours in zip(requests, progress, strict=True):
        if (
            ours is None
            or ours.num_computed_tokens != request.num_computed_tokens
            or ours.num_in_flight_tokens != request.num_in_flight_tokens
            or ours.is_prefill_chunk != request.is_prefill_chunk
            or len(ours.output_token_ids) != len(request._output_token_ids)
            or len(ours.block_hashes) > len(request.block_hashes)
            or ours.num_preemptions != request.num_preemptions
            or ours.num_stale_output_tokens != request.num_stale_output_tokens
            or ours.drop_stale_output != request.drop_stale_output
            or (ours.prefill_stats is None) != (request.prefill_stats is None)
            or request.spec_token_ids
            or request.num_output_placeholders
        ):
            return request
        if ours.status is RequestStatus.RUNNING:
            if request.status is not _RUNNING:
                return request
        elif request.status is not _STATUSES[ours.status] or (
            read_prefill_stats(request.prefill_stats) != ours.prefill_stats
        ):
            return request
    return None


def find_moved_request(requests: Iterable[VllmRequest], progress: Iterable[Progress]) -> VllmRequest | None:
    """Give the first of the running `requests` that a step moved otherwise than ours, or None.

    This looks at what planning a step changes in a running request, and is called after every step;
    the rest is compared after the update that follows.
    """
    for request, ours in zip(requests, progress, strict=True):
        if (
            ours.num_computed_tokens != request.num_computed_tokens
            or ours.num_in_flight_tokens != request.num_in_flight_tokens
            or ours.is_prefill_chunk != request.is_prefill_chunk
        ):
            return request
    return None
