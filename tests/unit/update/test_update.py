"""Which results are taken in, and what a refused one leaves behind."""

from typing import Any

import pytest

from kvsched_fp import InvalidEvent, SchedulerState, StepResult, add_request, schedule, update
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.progress import Progress
from kvsched_fp.update import take_in
from kvsched_fp.update.results import Results
from tests.unit.refusal import refused
from tests.unit.worlds import (
    make_config,
    make_outgrown,
    make_request,
    make_result,
    make_state,
    plan_steps,
    run_step,
    run_steps,
    tokens_told,
)

A, B = map(RequestId, "ab")


def result(step_id: int, **tokens: Any) -> StepResult:
    """Make a result from plain values."""
    return StepResult(step_id=StepId(step_id), sampled_token_ids=tokens)


def planned_state(num_steps: int = 1) -> SchedulerState:
    """Make a state with `a` and `b` in step 1, and so many steps in flight."""
    state = make_state(make_config(), make_request("a"), make_request("b"))
    for _ in range(num_steps):
        state, _ = schedule(state)
    return state


def test_results_come_back_in_the_order_of_the_steps() -> None:
    """[U-STEP-01] Each update takes the oldest step, and leaves the others in flight."""
    state = planned_state(3)
    remaining = []
    for step_id in (1, 2, 3):
        state = update(state, result(step_id))
        remaining.append([output.step_id for output in state.in_flight])

    assert [[2, 3], [3], []] == remaining


@pytest.mark.parametrize("step_id", [2, 3, 0, -1, 99])
def test_result_of_another_step_is_refused(step_id: Any) -> None:
    """[U-STEP-01] Only the oldest step in flight can be answered."""
    state = planned_state(2)
    with refused(InvalidEvent, "step_id", step_id, "1, the oldest in flight", state=state):
        update(state, StepResult(step_id=step_id))


@pytest.mark.parametrize("num_steps", [0, 1])
def test_result_with_nothing_in_flight_is_refused(num_steps: int) -> None:
    """[U-STEP-01] Before the first step, and after the last result."""
    state = run_steps(make_state(make_config(), make_request("a")), num_steps)
    with refused(InvalidEvent, "step_id", 1, "no step is in flight", state=state):
        update(state, result(1))


def test_result_without_a_time_comes_at_zero() -> None:
    """What it brings about is noted at that time: here, that a session goes on with the input in store."""
    session = make_request("a", 6, resumable=True, max_tokens=1)
    state = add_request(make_state(make_config(log_request_events=True), session), session)
    state, output = schedule(state)
    answer = make_result(state, output)

    assert update(state, answer, time=0.0) == update(state, answer)
    assert update(state, answer, time=1.0) != update(state, answer)


def test_result_cannot_be_taken_in_twice() -> None:
    """[U-STEP-01] The second time its step is not in flight any more."""
    state = planned_state(2)
    first = result(1, a=(5,))
    state = update(state, first)
    with refused(InvalidEvent, "step_id", 1, "2, the oldest", state=state):
        update(state, first)


@pytest.mark.parametrize("tokens", [{"z": (5,)}, {"a": (5,), "z": ()}])
def test_token_for_a_request_that_was_not_scheduled_is_refused(tokens: dict[str, tuple[int, ...]]) -> None:
    """[U-STEP-02] The stranger is named, and `a` has not got its token either."""
    state = planned_state()
    with refused(InvalidEvent, "sampled_token_ids", "z", "requests in step 1: a, b", state=state):
        update(state, result(1, **tokens))


def test_token_for_a_live_request_that_was_not_in_the_step_is_refused() -> None:
    """[U-STEP-02] `a` is live, but had nothing to compute in step 2."""
    state = update(planned_state(2), result(1, a=(), b=()))
    with refused(InvalidEvent, "sampled_token_ids", "a", "requests in step 2", state=state):
        update(state, result(2, a=(5,)))


@pytest.mark.parametrize("token_id", [-1, 2**63, 1.0, "5", None, True, b"5", (5,)])
def test_token_that_is_no_token_id_is_refused(token_id: Any) -> None:
    """What is not an integer from 0 to 2**63 - 1 is refused, wherever it stands in the result."""
    state = planned_state()
    with refused(InvalidEvent, "sampled_token_ids", token_id, f"from 0 to {2**63 - 1}", state=state):
        update(state, result(1, a=(5,), b=(6, token_id)))


def test_extreme_token_ids_are_taken_in() -> None:
    """0 and 2**63 - 1 are token ids."""
    state = update(planned_state(), result(1, a=(0,), b=(2**63 - 1,)))

    assert {"a": (0,), "b": (2**63 - 1,)} == tokens_told(state)


def test_rows_are_taken_in_in_the_order_of_the_batch() -> None:
    """[U-STEP-03] The order of the result does not matter."""
    state = planned_state()
    orders = [update(state, result(1, **dict(items))) for items in ([B5, A5], [A5, B5])]

    assert orders[0] == orders[1]
    assert ["a", "b"] == list(tokens_told(orders[0]))


A5, B5 = ("a", (5,)), ("b", (5,))


def test_requests_that_stopped_leave_their_queues() -> None:
    """[U-STEP-03] `a` and `c` stop; `b` runs on."""
    requests = [
        make_request(name, max_tokens=max_tokens) for name, max_tokens in [("a", 1), ("b", 9), ("c", 1)]
    ]
    state, output = run_step(make_state(make_config(), *requests))

    assert ("b",) == state.running
    assert {"b"} == set(state.requests)
    assert 3 == len(output.num_scheduled_tokens)


def test_request_that_stops_while_it_waits_leaves_the_waiting_queue() -> None:
    """[U-STEP-03] Its late token was its last one; it was skipped before, and is deferred no more."""
    state, first = schedule(make_outgrown(max_tokens=1))
    late = make_result(state, first)
    state = plan_steps(state, 5)

    assert (["b"], {B}) == (list(state.waiting), set(state.deferred))

    state = update(state, late)

    assert ([], set()) == (list(state.waiting), set(state.deferred))
    assert ("a",) == state.running


def test_update_leaves_the_state_alone() -> None:
    """[M-STATE-01] Taking a result in twice from one state gives the same, and changes nothing."""
    state = planned_state()
    before = (hash(state), state.in_flight, dict(state.progress), state.kv.pool.free_blocks())
    results = [update(state, result(1, a=(5,), b=(5,))) for _ in range(2)]

    assert results[0] == results[1]
    assert before == (hash(state), state.in_flight, dict(state.progress), state.kv.pool.free_blocks())


def test_listeners_hear_where_a_request_stood() -> None:
    """[U-STEP-03] Whoever opens the state hears of each request that leaves, as it was in the end."""

    class Listening(Results):
        __slots__ = ("heard",)

        def left(self, request_id: RequestId, progress: Progress) -> None:
            self.heard = (request_id, list(progress.output_token_ids), progress.num_in_flight_tokens)

    state = make_state(make_config(), make_request("a", max_tokens=1))
    state, output = schedule(state)
    results = Listening(state, 0.0)
    after = take_in(results, output, result(1, a=(7,)))

    assert after == update(state, result(1, a=(7,)))
    assert (A, [7], 0) == results.heard
