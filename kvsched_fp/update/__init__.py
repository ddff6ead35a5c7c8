"""`update()`: take in what the model runner returned for the oldest step in flight.

Rules
-----
[U-STEP-01] Results come back in the order of the steps; any other is refused.
[U-STEP-02] A result may only name requests that were in the step.
[U-STEP-03] Rows are taken in in the order of the batch [U-TOK-01]; requests that stopped leave their
    queue when all are in, and sessions that go on are put into another.
[U-STEP-04] A row brings at most what it could sample: with drafts, those and one (a canvas: those); with
    placeholders, no more than there are. A row with neither may bring any number, as the reference has it.
[U-STEP-05] Requests that cannot have their grammar end then, with an error.

Upstream: `v1/core/sched/scheduler.py::Scheduler.update_from_output`.
"""

from kvsched_fp.events import StepResult, check_time
from kvsched_fp.outputs import EngineOutput, SchedulerOutput
from kvsched_fp.release import end_request
from kvsched_fp.request import FinishReason
from kvsched_fp.sessions import enqueue
from kvsched_fp.state import SchedulerState
from kvsched_fp.update.checks import check_answer
from kvsched_fp.update.outputs import take_emitted
from kvsched_fp.update.results import Results
from kvsched_fp.update.tokens import take_in_row

__all__ = ["take_in", "update"]


def update(state: SchedulerState, result: StepResult, *, time: float = 0.0) -> SchedulerState:
    """Take in `result`; what it tells the clients is in `emitted` of the new state.

    `time` is put into the events of requests. Raises `InvalidEvent` if the result is not for the oldest
    step in flight, names a request that was not scheduled, brings something that could not be sampled
    [U-STEP-04], is one of an earlier request [U-TOK-08], or stops a session that has computed more than its
    next input keeps [M-SESS-02]; or if `time` is not finite.
    """
    output = check_answer(state, result)
    check_time("time", time)
    return take_in(Results(state, time), output, result)


def take_in(results: Results, output: SchedulerOutput, result: StepResult) -> SchedulerState:
    """Take in the result of `output`, the oldest step in flight of the state that was opened."""
    sampled = result.sampled_token_ids.thaw()  # a plain dict is asked faster
    for request_id, num_scheduled_tokens in output.num_scheduled_tokens.items():
        token_ids = sampled.get(request_id, ())
        pooled = request_id in result.pooled_request_ids
        take_in_row(results, output, request_id, num_scheduled_tokens, token_ids, pooled=pooled)
    _move_stopped(results)
    _end_without_grammar(results)
    emitted = take_emitted(results)
    return results.close(in_flight=results.in_flight[1:], emitted=emitted)


def _move_stopped(results: Results) -> None:
    """Take the requests that stopped out of their queues; let sessions wait again [U-STEP-03]."""
    if results.stopped:
        results.remove_from_queues(results.stopped)
    for request_id in results.continuing:
        enqueue(results, request_id)


def _end_without_grammar(results: Results) -> None:
    """End the requests that cannot have their grammar [U-STEP-05]."""
    if not results.grammar_errors:
        return
    errors, results.grammar_errors = results.grammar_errors, {}
    live = [request_id for request_id in errors if request_id in results.requests]
    results.remove_from_queues(set(live))
    for request_id in live:
        client_index = results.requests[request_id].client_index
        events = results.progress[request_id].events
        end_request(results, request_id)
        told = EngineOutput(
            request_id, (), FinishReason.ERROR, None, None, None, events, errors[request_id]
        )
        results.emit(client_index, told)
