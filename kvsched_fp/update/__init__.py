"""`update()`: take in what the model runner returned for the oldest step in flight.

Rules
-----
[U-STEP-01] Results come back in the order of the steps; any other is refused.
[U-STEP-02] A result may only name requests that were in the step.
[U-STEP-03] Rows are taken in in the order of the batch [U-TOK-01]; requests that stopped leave their
    queue when all are in.

Upstream: `v1/core/sched/scheduler.py::Scheduler.update_from_output`.
"""

from kvsched_fp.errors import InvalidEvent
from kvsched_fp.events import StepResult, check_result
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.request import check_token_ids
from kvsched_fp.state import SchedulerState
from kvsched_fp.update.outputs import take_emitted
from kvsched_fp.update.results import Results
from kvsched_fp.update.tokens import take_in_tokens

__all__ = ["update"]


def update(state: SchedulerState, result: StepResult) -> SchedulerState:
    """Take in `result`; what it tells the clients is in `emitted` of the new state.

    Raises `InvalidEvent` if the result is not for the oldest step in flight, names a request that
    was not scheduled, brings something that is not a token id, or is one of an earlier request [U-TOK-08].
    """
    output = _check_result(state, result)
    sampled = result.sampled_token_ids
    results = Results(state)
    for request_id, num_scheduled_tokens in output.num_scheduled_tokens.items():
        take_in_tokens(results, request_id, num_scheduled_tokens, sampled.get(request_id, ()))
    _remove_stopped(results)
    emitted = take_emitted(results)
    return results.close(in_flight=state.in_flight[1:], emitted=emitted)


def _check_result(state: SchedulerState, result: StepResult) -> SchedulerOutput:
    """Give the output that `result` answers, or refuse it [U-STEP-01, U-STEP-02]."""
    check_result("result", result)
    if not state.in_flight:
        raise InvalidEvent("step_id", result.step_id, "nothing: no step is in flight")
    output = state.in_flight[0]
    if result.step_id != output.step_id:
        raise InvalidEvent("step_id", result.step_id, f"{output.step_id}, the oldest in flight")
    sampled = result.sampled_token_ids
    scheduled = output.num_scheduled_tokens
    if not sampled.keys() <= scheduled.keys():
        stranger = next(request_id for request_id in sampled if request_id not in scheduled)
        raise InvalidEvent(
            "sampled_token_ids",
            stranger,
            f"requests in step {output.step_id}: {', '.join(scheduled)}",
        )
    check_token_ids(
        "sampled_token_ids", [token_id for token_ids in sampled.values() for token_id in token_ids]
    )
    return output


def _remove_stopped(results: Results) -> None:
    """Take the requests that stopped out of their queues [U-STEP-03]."""
    if results.stopped:
        results.remove_from_queues(results.stopped)
