"""What a result may say [U-STEP-01, U-STEP-02, U-STEP-04]."""

from collections.abc import Set
from itertools import chain

from kvsched_fp.config import RunnerType
from kvsched_fp.errors import InvalidEvent
from kvsched_fp.events import StepResult, check_result
from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.request import check_token_ids
from kvsched_fp.state import SchedulerState


def check_answer(state: SchedulerState, result: StepResult) -> SchedulerOutput:
    """Give the output that `result` answers, or refuse it [U-STEP-01, U-STEP-02]."""
    check_result("result", result)
    if not state.in_flight:
        raise InvalidEvent("step_id", result.step_id, "nothing: no step is in flight")
    output = state.in_flight[0]
    if result.step_id != output.step_id:
        raise InvalidEvent("step_id", result.step_id, f"{output.step_id}, the oldest in flight")
    sampled = result.sampled_token_ids
    _check_names("sampled_token_ids", sampled.keys(), output)
    check_token_ids("sampled_token_ids", list(chain.from_iterable(sampled.values())))
    for request_id, drafts in output.scheduled_spec_token_ids.items():
        _check_accepted(state, request_id, len(sampled.get(request_id, ())), len(drafts))
    if state.config.async_scheduling:
        for request_id, token_ids in sampled.items():
            _check_placeholders(state, output, request_id, len(token_ids))
    if state.config.runner_type is RunnerType.POOLING or result.pooled_request_ids:
        _check_names("pooled_request_ids", frozenset(result.pooled_request_ids), output)
        _check_pooling(state, result)
    return output


def _check_names(field: str, named: Set[RequestId], output: SchedulerOutput) -> None:
    scheduled = output.num_scheduled_tokens
    if named <= scheduled.keys():
        return
    stranger = min((name for name in named if name not in scheduled), key=repr)
    raise InvalidEvent(field, stranger, f"requests in step {output.step_id}: {', '.join(scheduled)}")


def _check_accepted(state: SchedulerState, request_id: RequestId, num_tokens: int, num_drafts: int) -> None:
    """Refuse more tokens than a row with drafts could bring [U-STEP-04]."""
    num_most = num_drafts + state.config.num_sampled_tokens_per_step
    if num_tokens > num_most:
        raise InvalidEvent(
            "sampled_token_ids",
            f"{num_tokens} tokens for {request_id}",
            f"at most {num_most}: it had {num_drafts} drafts",
        )


def _check_placeholders(
    state: SchedulerState, output: SchedulerOutput, request_id: RequestId, num_tokens: int
) -> None:
    """Refuse more tokens than a row has placeholders [U-STEP-04]."""
    progress = state.progress.get(request_id)
    if progress is None or progress.num_stale_output_tokens > 0 or progress.num_output_placeholders == 0:
        return
    num_drafts = len(output.scheduled_spec_token_ids.get(request_id, ()))
    num_sampled = state.config.num_sampled_tokens_per_step
    num_rejected = max(0, num_drafts - max(0, num_tokens - num_sampled)) if num_tokens else 0
    num_most = progress.num_output_placeholders - num_rejected
    if 0 < num_most < num_tokens:  # without any left (deviation D-05), none is resolved
        raise InvalidEvent(
            "sampled_token_ids",
            f"{num_tokens} tokens for {request_id}",
            f"at most {num_most}: so many placeholders are left for it",
        )


def _check_pooling(state: SchedulerState, result: StepResult) -> None:
    """Refuse tokens for a pooling request, and a pooled output for any other."""
    for request_id in result.pooled_request_ids:
        request = state.requests.get(request_id)
        if request is not None and not request.pooling:
            raise InvalidEvent("pooled_request_ids", request_id, "pooling requests")
    if state.config.runner_type is not RunnerType.POOLING:
        return
    for request_id, token_ids in result.sampled_token_ids.items():
        request = state.requests.get(request_id)
        if token_ids and request is not None and request.pooling:
            raise InvalidEvent("sampled_token_ids", request_id, "requests that sample: this one pools")
