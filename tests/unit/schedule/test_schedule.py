"""The step as a whole."""

import pytest

from kvsched_fp import SchedulerState, add_request, schedule
from kvsched_fp.ids import RequestId
from tests.unit.worlds import batch, make_config, make_request, make_state, run_step, run_steps

A = RequestId("a")


def test_running_requests_come_before_waiting_ones() -> None:
    """[S-STEP-01] Even if a waiting one is more important."""
    state, _ = run_step(make_state(make_config(policy="priority"), make_request("a", priority=5)))
    _, output = schedule(add_request(state, make_request("b", priority=0)))

    assert [("a", 1), ("b", 7)] == batch(output)


def test_scheduled_tokens_count_as_computed_at_once() -> None:
    """[S-STEP-02] Three pieces of a prompt can be planned before the first one has come back."""
    state = make_state(make_config(max_num_batched_tokens=8), make_request("a", 20))
    computed = []
    for _ in range(4):
        state, output = schedule(state)
        progress = state.progress[A]
        computed.append(
            (
                output.num_scheduled_tokens.get(A),
                progress.num_computed_tokens,
                progress.num_in_flight_tokens,
                progress.is_prefill_chunk,
            )
        )

    assert [(8, 8, 8, True), (8, 16, 16, True), (4, 20, 20, False), (None, 20, 20, False)] == computed


def test_every_output_is_in_flight_until_an_update() -> None:
    """[S-STEP-03] Empty ones too, the oldest first; steps are numbered from 1."""
    state = make_state(make_config(), make_request("a"))
    state, first = schedule(state)
    state, second = schedule(state)

    assert (first, second) == state.in_flight
    assert (1, 2) == (first.step_id, second.step_id)
    assert 0 == second.total_num_scheduled_tokens
    assert 2 == state.current_step


def test_only_steps_that_scheduled_something_are_executed() -> None:
    """[S-STEP-04] An empty step is called but not executed."""
    state = run_steps(make_state(make_config()), 2)
    state = run_steps(add_request(state, make_request("a", max_tokens=2)), 4)

    assert (6, 2) == (state.current_step, state.num_executed_steps)


@pytest.mark.parametrize(("interval", "expected"), [(1, [-1, -1, -1, -1]), (2, [1, 1, 3, 4])])
def test_step_that_carried_prompt_restarts_the_interval(interval: int, expected: list[int]) -> None:
    """[S-STEP-04] An admission and a later piece both count; without an interval nothing is kept.

    `a` is admitted in step 1 and decodes in step 2. Step 3 admits `b`. As `a` ends with it, nothing
    decodes, and step 4 carries the rest of the prompt of `b`.
    """
    config = make_config(max_num_batched_tokens=8, prefill_schedule_interval=interval)
    state, _ = run_step(make_state(config, make_request("a", 4, max_tokens=3)))
    seen = [state.last_prefill_step]
    state, _ = run_step(state)
    seen.append(state.last_prefill_step)
    state = add_request(state, make_request("b", 14))
    for _ in range(2):
        state, _ = run_step(state)
        seen.append(state.last_prefill_step)

    assert expected == seen


@pytest.mark.parametrize(("is_v2", "expected"), [(False, {"a"}), (True, set())])
def test_batch_is_kept_only_for_the_runner_that_asks_for_it(is_v2: bool, expected: set[str]) -> None:
    """[M-STATE-01] V1 is told which rows are new [S-OUT-03]; for V2, equal situations stay equal states."""
    state, _ = run_step(make_state(make_config(use_v2_model_runner=is_v2), make_request("a")))

    assert expected == state.prev_step_request_ids


def remember(state: SchedulerState) -> tuple[object, ...]:
    """List what one plan could change by mistake."""
    return (state, hash(state), list(state.waiting), state.kv.pool.free_blocks(), dict(state.progress))


def test_planning_leaves_the_state_alone() -> None:
    """[M-STATE-01] Planning twice gives the same output and the same state, and changes nothing."""
    state = run_steps(make_state(make_config(usable_blocks=5), make_request("a"), make_request("b")), 2)
    before = remember(state)
    results = [schedule(state), schedule(state)]

    assert results[0] == results[1]
    assert before == remember(state)
