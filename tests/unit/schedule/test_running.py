"""The running phase: what each running request gets."""

import attrs
import pytest

from kvsched_fp import SchedulerState, add_request, finish_requests, schedule, update, update_drafts
from kvsched_fp.ids import RequestId
from tests.unit.worlds import (
    batch,
    blocks_of,
    make_config,
    make_request,
    make_result,
    make_state,
    plan_steps,
    run_step,
    run_steps,
)

A, B = map(RequestId, "ab")


def test_requests_are_looked_at_in_scheduling_order() -> None:
    """[S-RUN-01] The order is the one of admission, and stays when one in the middle ends."""
    state = run_steps(make_state(make_config(), *[make_request(name) for name in "cab"]), 1)

    assert [("c", 1), ("a", 1), ("b", 1)] == batch(schedule(state)[1])
    assert [("c", 1), ("b", 1)] == batch(schedule(finish_requests(state, [A]))[1])


def with_config(state: SchedulerState, **changes: int) -> SchedulerState:
    """Give a state another configuration: a short way into a narrow situation."""
    return attrs.evolve(state, config=attrs.evolve(state.config, **changes))


@pytest.mark.parametrize("budget", ["max_num_scheduled_tokens", "max_num_batched_tokens"])
def test_phase_ends_when_a_budget_is_used_up(budget: str) -> None:
    """[S-RUN-01] With 3 tokens to give, of which `a` takes two, the third decoding request gets none."""
    config = make_config(max_num_seqs=3)
    state, _ = run_step(make_state(config, *[make_request(name) for name in "abc"]), a=(1, 2))

    assert [("a", 2), ("b", 1)] == batch(schedule(with_config(state, **{budget: 3}))[1])


def test_request_gets_what_is_known_and_not_computed() -> None:
    """[S-RUN-02] After two tokens in one result, the next step computes both."""
    state, output = schedule(make_state(make_config(), make_request("a")))
    state = update(state, make_result(state, output, {"a": (1, 2)}))

    assert [("a", 2)] == batch(schedule(state)[1])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 22),
        ({"max_num_scheduled_tokens": 5}, 5),
        ({"max_num_batched_tokens": 6}, 6),
        ({"long_prefill_token_threshold": 7}, 7),
        ({"max_model_len": 28}, 19),
        ({"max_model_len": 31}, 22),
        ({"max_model_len": 9}, 0),
    ],
)
def test_request_is_cut_by_each_limit(changes: dict[str, int], expected: int) -> None:
    """[S-RUN-02] Threshold, both budgets and the place of the sampled token cut the 22 left of `a`."""
    config = make_config(max_num_batched_tokens=8, max_num_seqs=2)
    state = run_steps(make_state(config, make_request("a", 30), make_request("b", 9)), 1)
    state = with_config(state, max_num_batched_tokens=64)
    _, output = schedule(with_config(state, **changes))

    assert expected == output.num_scheduled_tokens.get(A, 0)


def test_request_that_gets_nothing_is_passed_over() -> None:
    """[S-RUN-03] `a` has nothing to compute until its step is back; `b` behind it goes on."""
    config = make_config(max_num_batched_tokens=8)
    state, _ = schedule(make_state(config, make_request("a", 4), make_request("b", 20)))
    state, output = schedule(state)

    assert [("b", 8)] == batch(output)
    assert ("a", "b") == state.running


def test_request_in_the_middle_of_its_prompt_is_passed_over_while_prompts_are_held_back() -> None:
    """[S-RUN-04] The prompt of `a` waits, `b` behind it decodes."""
    config = make_config(long_prefill_token_threshold=4)
    state = run_steps(make_state(config, make_request("a", 20), make_request("b", 4)), 1)

    assert [("b", 1)] == batch(schedule(state, throttle_prefills=True)[1])
    assert [("a", 4), ("b", 1)] == batch(schedule(state)[1])


def test_others_are_preempted_when_blocks_do_not_fit() -> None:
    """[S-RUN-05] `a` needs a third of 5 blocks and takes it; then `b` does, and nobody is behind it."""
    state = run_steps(make_state(make_config(usable_blocks=5), make_request("a"), make_request("b")), 2)
    state, output = run_step(state)

    assert [("a", 1)] == batch(output)
    assert ("b",) == output.preempted_request_ids
    assert (1, 2, 5) == blocks_of(state, "a")


def test_phase_ends_with_a_request_that_preempted_itself() -> None:
    """[S-RUN-06] First come, first served: the victim is the last, so nobody behind it is left out."""
    config = make_config(usable_blocks=6, max_num_seqs=3)
    state = make_state(config, *[make_request(name, 7) for name in "abc"])
    state, output = run_step(run_steps(state, 2))

    assert [("a", 1), ("b", 1)] == batch(output)
    assert ("c",) == output.preempted_request_ids
    assert ("a", "b") == state.running


def test_phase_goes_on_behind_a_request_that_preempted_itself() -> None:
    """[S-RUN-06] By priority, the ones behind are more important, and may fit now."""
    config = make_config(usable_blocks=6, policy="priority")
    requests = [make_request("a", 7, priority=9), make_request("b", 7), make_request("c", 7, priority=1)]
    state = make_state(config, requests[0])
    state = run_steps(state, 1)
    for request in requests[1:]:
        state = add_request(state, request)
    state = run_steps(state, 1)

    assert ("a", "b", "c") == state.running
    assert 0 == state.kv.pool.num_free_blocks

    state, output = run_step(state)

    assert [("b", 1), ("c", 1)] == batch(output)
    assert ("a",) == output.preempted_request_ids
    assert ("b", "c") == state.running


def rows_of_steps(state: SchedulerState) -> list[int]:
    """Give the tokens of `a` in each step in flight, 0 where it has none."""
    return [output.num_scheduled_tokens.get(A, 0) for output in state.in_flight]


@pytest.mark.parametrize(("max_in_flight", "rows"), [(1, [7, 1, 1]), (2, [7, 1, 1, 0]), (3, [7, 1, 1, 1])])
def test_request_that_is_sure_to_end_takes_no_more_steps(max_in_flight: int, rows: list[int]) -> None:
    """[S-RUN-07] Three tokens are allowed: with the second one back, the third is sure to come.

    With three steps in flight, the fourth is planned when two tokens are missing still.
    """
    state = make_state(make_config(async_scheduling=True), make_request("a", max_tokens=3))
    actual = []
    for _ in rows:
        state, output = schedule(state)
        actual.append(output.total_num_scheduled_tokens)
        if len(state.in_flight) == max_in_flight:
            state = update(state, make_result(state, state.in_flight[0]))

    assert rows == actual


@pytest.mark.parametrize(("max_tokens", "expected"), [(5, []), (6, [("a", 3)])])
def test_accepted_drafts_make_an_end_sure(max_tokens: int, expected: list[tuple[str, int]]) -> None:
    """[S-RUN-07] Steps 1 and 2 have brought 4 tokens, and one more is sure, whatever is rejected."""
    config = make_config(async_scheduling=True, num_spec_tokens=2)
    state = plan_steps(make_state(config, make_request("a", max_tokens=max_tokens)), 4)
    state = update(state, make_result(state, state.in_flight[0]))
    state = update(state, make_result(state, state.in_flight[0], {"a": (8, 9, 10)}))

    assert 4 == len(state.progress[A].output_token_ids)
    assert expected == batch(schedule(state)[1])


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({"use_v2_model_runner": True}, [7, 0, 0, 1, 0, 0, 1]),
        ({"use_v2_model_runner": False}, [7, 1, 1, 1, 1, 1, 1]),
        ({"pipeline_parallel_size": 1}, [7, 1, 1, 1, 1, 1, 1]),
    ],
    ids=str,
)
def test_request_is_decoded_once_per_round_of_the_pipeline(
    changes: dict[str, int], rows: list[int]
) -> None:
    """[S-RUN-08] With three stages, its token is back before the next one can be begun."""
    config = make_config(**{"async_scheduling": True, "pipeline_parallel_size": 3} | changes)
    state = make_state(config, make_request("a"))

    assert rows == rows_of_steps(plan_steps(state, 7))


def test_pieces_of_a_prompt_follow_one_another_through_the_pipeline() -> None:
    """[S-RUN-08] Only decoding has to wait; another request fills the steps between."""
    config = make_config(async_scheduling=True, pipeline_parallel_size=2, max_num_batched_tokens=8)
    state = plan_steps(make_state(config, make_request("a", 4), make_request("b", 20)), 5)

    assert [
        [("a", 4), ("b", 4)],
        [("b", 8)],
        [("a", 1), ("b", 7)],
        [("b", 1)],
        [("a", 1)],
    ] == [batch(output) for output in state.in_flight]


def test_request_with_drafts_gets_them_and_what_is_known() -> None:
    """[S-RUN-02] Drafts are cut so that the token sampled behind them still fits."""
    state = run_steps(make_state(make_config(num_spec_tokens=3, max_model_len=10), make_request("a")), 1)
    _, output = schedule(update_drafts(state, {A: (50, 51, 52)}))

    assert [("a", 2)] == batch(output)
    assert {A: (50,)} == dict(output.scheduled_spec_token_ids)


def test_pooling_needs_no_room_for_a_sampled_token() -> None:
    """[S-RUN-02] The last token of a prompt of `max_model_len` is computed in its turn."""
    config = make_config(runner_type="pooling", max_model_len=12, max_num_batched_tokens=8)
    state = plan_steps(make_state(config, make_request("a", 12, pooling=True, max_tokens=1)), 2)

    assert [8, 4] == rows_of_steps(state)
