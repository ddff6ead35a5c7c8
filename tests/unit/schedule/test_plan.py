"""The budgets of a step, and whether prompts are held back in it."""

import attrs
import pytest

from kvsched_fp import (
    PauseState,
    SchedulerState,
    add_request,
    finish_requests,
    schedule,
    set_pause_state,
    update_drafts,
)
from kvsched_fp.ids import RequestId
from tests.unit.worlds import (
    batch,
    make_config,
    make_request,
    make_state,
    run_step,
    run_steps,
    run_together,
)

A, B = map(RequestId, "ab")


def test_step_computes_at_most_the_token_budget() -> None:
    """[S-BUD-01] What is scheduled adds up to the budget, over running and waiting requests."""
    config = make_config(max_num_scheduled_tokens=10)
    state, _ = run_step(make_state(config, make_request("a", 4)))
    state = add_request(add_request(state, make_request("b", 6)), make_request("c", 6))

    assert [("a", 1), ("b", 6), ("c", 3)] == batch(schedule(state)[1])


def test_nothing_is_computed_while_everything_is_paused() -> None:
    """[S-BUD-01] Neither running nor waiting requests get anything."""
    state = run_steps(make_state(make_config(), make_request("a")), 1)
    state = set_pause_state(add_request(state, make_request("b")), PauseState.PAUSED_ALL)

    assert [] == batch(schedule(state)[1])


def test_input_budget_binds_apart_from_the_token_budget() -> None:
    """[S-BUD-02] The smaller of the two budgets decides, in both phases."""
    config = make_config(max_num_batched_tokens=5, max_num_scheduled_tokens=9)
    state, first = run_step(make_state(config, make_request("a", 7), make_request("b", 7)))
    _, second = run_step(state)

    assert [("a", 5)] == batch(first)
    assert [("a", 2), ("b", 3)] == batch(second)


def test_running_phase_ends_when_the_input_budget_is_used_up() -> None:
    """[S-BUD-02] Two running requests have two tokens each; the third waits, and so does the queue."""
    config = make_config(max_num_batched_tokens=4, max_num_scheduled_tokens=5)
    state, _ = run_step(make_state(config, *[make_request(name, 1) for name in "abc"]), a=(1, 2), b=(1, 2))

    assert [("a", 2), ("b", 2)] == batch(schedule(add_request(state, make_request("d", 1)))[1])


@pytest.mark.parametrize(("prompts", "expected"), [((20,), [20]), ((20, 20), [8, 8]), ((5, 20), [5, 8])])
def test_long_prompt_is_cut_while_others_are_there(prompts: tuple[int, ...], expected: list[int]) -> None:
    """[S-LONG-01] A lone request is not cut; with others, a waiting one gets at most the threshold."""
    config = make_config(long_prefill_token_threshold=8)
    requests = [make_request(name, prompt) for name, prompt in zip("ab", prompts, strict=False)]
    _, output = schedule(make_state(config, *requests))

    assert expected == [num_tokens for _, num_tokens in batch(output)]


def test_running_prompt_is_cut_while_others_are_there() -> None:
    """[S-LONG-01] The threshold binds running requests too, and stops to when they are alone."""
    config = make_config(long_prefill_token_threshold=8)
    state, _ = run_step(make_state(config, make_request("a", 30), make_request("b", 30)))

    assert [("a", 8), ("b", 8)] == batch(schedule(state)[1])
    assert [("a", 22)] == batch(schedule(finish_requests(state, [B]))[1])


def test_request_that_only_waits_counts_as_another() -> None:
    """[S-LONG-01] A request without a place is starved too, so it makes the threshold count."""
    config = make_config(long_prefill_token_threshold=8, max_num_active_seqs=1)
    _, output = schedule(make_state(config, make_request("a", 20), make_request("b", 20)))

    assert [("a", 8)] == batch(output)


@pytest.mark.parametrize(("num_requests", "expected"), [(2, 32), (3, 21), (4, 20)])
def test_adaptive_threshold_is_at_least_an_even_share(num_requests: int, expected: int) -> None:
    """[S-LONG-02] The share is the input budget by all requests, rounded down."""
    config = make_config(
        long_prefill_token_threshold=20, long_prefill_token_threshold_adaptive=True, num_blocks=99
    )
    state = make_state(config, *[make_request(name, 40) for name in "abcd"[:num_requests]])

    assert ("a", expected) == batch(schedule(state)[1])[0]


def test_adaptive_share_is_one_of_the_input_budget() -> None:
    """[S-LONG-02] A smaller token budget does not make the share smaller: 30 tokens, not 20, go to `a`."""
    config = make_config(
        long_prefill_token_threshold=20,
        long_prefill_token_threshold_adaptive=True,
        max_num_scheduled_tokens=30,
    )
    state = make_state(config, make_request("a", 40), make_request("b", 10))

    assert [("a", 30)] == batch(schedule(state)[1])


def test_adaptive_threshold_needs_a_threshold() -> None:
    """[S-LONG-01] 0 is no limit, adaptive or not."""
    config = make_config(long_prefill_token_threshold_adaptive=True)
    state = make_state(config, make_request("a", 40), make_request("b", 10))

    assert ("a", 40) == batch(schedule(state)[1])[0]


def half_prefilled_state() -> SchedulerState:
    """Make a state in which `a` decodes and `b` is in the middle of its prompt."""
    config = make_config(max_num_batched_tokens=8)
    state, _ = run_step(make_state(config, make_request("a", 4)))
    state, _ = run_step(add_request(state, make_request("b", 20)))
    return state


def test_throttled_step_computes_no_prompt_while_something_decodes() -> None:
    """[S-HOLD-01] Neither the rest of a running prompt nor a new one; without throttle it goes on."""
    state = add_request(half_prefilled_state(), make_request("c", 2))

    assert [("a", 1)] == batch(schedule(state, throttle_prefills=True)[1])
    assert [("a", 1), ("b", 7)] == batch(schedule(state)[1])


def test_throttled_step_goes_on_when_nothing_decodes() -> None:
    """[S-HOLD-01] Holding prompts back protects decoding; there is none."""
    state = finish_requests(half_prefilled_state(), [A])

    assert [("b", 8)] == batch(schedule(state, throttle_prefills=True)[1])


def test_nothing_is_held_back_while_capacity_is_short() -> None:
    """[S-HOLD-01, S-WAIT-11] The last scan left `c` behind, so the throttled step computes prompts."""
    config = make_config(max_num_batched_tokens=8)
    state, _ = run_step(
        make_state(config, make_request("a", 4), make_request("b", 20), make_request("c", 4))
    )

    assert state.prefill_capacity_bound
    assert [("a", 1), ("b", 7)] == batch(schedule(state, throttle_prefills=True)[1])


def interval_batches(interval: int, num_steps: int) -> list[list[str]]:
    """Run a decoding `a` and a `b` of two pieces, and list who was in each step."""
    config = make_config(max_num_batched_tokens=8, prefill_schedule_interval=interval)
    state, output = run_step(make_state(config, make_request("a", 4)))
    batches = [list(output.num_scheduled_tokens)]
    state = add_request(state, make_request("b", 12))
    for _ in range(num_steps - 1):
        state, output = run_step(state)
        batches.append(list(output.num_scheduled_tokens))
    return batches


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (1, ["a", "ab", "ab", "ab", "ab", "ab"]),
        (2, ["a", "a", "ab", "a", "ab", "ab"]),
        (3, ["a", "a", "a", "ab", "a", "a"]),
    ],
)
def test_prompts_come_every_so_many_steps(interval: int, expected: list[str]) -> None:
    """[S-HOLD-02] With an interval of n, n - 1 steps after one that carried prompt carry none."""
    assert expected == ["".join(ids) for ids in interval_batches(interval, 6)]


def test_any_row_of_prompt_restarts_the_interval() -> None:
    """[S-HOLD-02] Also one with a decode behind it: `a` computes prompt in steps 1 and 3."""
    config = make_config(prefill_schedule_interval=2, long_prefill_token_threshold=4)
    state, _ = run_step(make_state(config, make_request("a", 20), make_request("b", 4)))
    state, second = run_step(state)
    state, third = run_step(state)

    assert [("b", 1)] == batch(second)
    assert [("a", 4), ("b", 1)] == batch(third)
    assert 3 == state.last_prefill_step


def test_step_that_is_due_may_still_be_throttled() -> None:
    """[S-HOLD-01, S-HOLD-02] Either reason is enough to hold prompts back."""
    config = make_config(prefill_schedule_interval=2)
    state = run_steps(make_state(config, make_request("a", 4)), 2)
    state = add_request(state, make_request("b", 4))

    assert [("a", 1)] == batch(schedule(state, throttle_prefills=True)[1])
    assert [("a", 1), ("b", 4)] == batch(schedule(state)[1])


def test_interval_holds_nothing_back_while_capacity_is_short() -> None:
    """[S-HOLD-02] The second condition of a throttled step counts here too."""
    config = make_config(prefill_schedule_interval=9, max_num_batched_tokens=8)
    state, _ = run_step(
        make_state(config, make_request("a", 4), make_request("b", 20), make_request("c", 4))
    )

    assert [("a", 1), ("b", 7)] == batch(schedule(state)[1])


def test_first_step_is_never_held() -> None:
    """[S-HOLD-02] The interval begins a full interval before the first step."""
    config = make_config(prefill_schedule_interval=5)

    assert -5 == make_state(config).last_prefill_step
    assert [("a", 4)] == batch(schedule(make_state(config, make_request("a", 4)))[1])


def test_drafting_slots_are_paid_from_the_input_budget() -> None:
    """[S-BUD-02] Each row costs two positions more: of 16, `a` takes 9, and 7 pay for 5 tokens of `b`."""
    config = make_config(num_spec_tokens=2, max_num_batched_tokens=16, max_num_new_slots_for_drafting=2)
    state = make_state(config, make_request("a", 7), make_request("b", 20))

    state, first = run_step(state)
    _, second = run_step(state)

    assert [("a", 7), ("b", 5)] == batch(first)
    assert [("a", 1), ("b", 11)] == batch(second)


@pytest.mark.parametrize(("max_num_batched_tokens", "expected"), [(12, "ab"), (14, "ab"), (15, "abc")])
def test_row_that_can_pay_for_no_token_is_not_begun(max_num_batched_tokens: int, expected: str) -> None:
    """[S-BUD-02] `a` and `b` take 6 positions each; a third row needs 3."""
    config = make_config(
        num_spec_tokens=2,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_new_slots_for_drafting=2,
        max_num_seqs=3,
    )
    state = make_state(config, *[make_request(name, 4) for name in "abc"])
    state, output = schedule(state)

    assert expected == "".join(output.num_scheduled_tokens)
    assert set() == set(state.deferred)


def test_running_row_that_can_pay_for_no_token_is_not_begun() -> None:
    """[S-BUD-02] With its draft `a` takes 4 positions of 9 and `b` takes 3; 2 are left, for no row."""
    config = make_config(
        num_spec_tokens=2, max_num_batched_tokens=9, max_num_new_slots_for_drafting=2, max_num_seqs=3
    )
    state = make_state(config, *[make_request(name, 1) for name in "abc"])
    state, first = run_step(state)
    state, second = run_step(update_drafts(state, {A: (50,)}))

    assert [("a", 1), ("b", 1), ("c", 1)] == batch(first)
    assert [("a", 2), ("b", 1)] == batch(second)


def test_victim_gives_its_drafting_slots_back() -> None:
    """[S-BUD-03] `b` takes the last block and 2 of 6 positions; without it, three other rows fit."""
    config = make_config(usable_blocks=5, policy="priority", num_spec_tokens=1)
    others = [make_request(name, prompt) for name, prompt in [("a", 4), ("c", 1), ("d", 1)]]
    state = run_together(config, make_request("b", 4, priority=9), *others)
    tight = attrs.evolve(config, max_num_batched_tokens=6, max_num_seqs=4, max_num_new_slots_for_drafting=1)
    _, output = schedule(attrs.evolve(state, config=tight))

    assert (B,) == output.preempted_request_ids
    assert [("a", 1), ("c", 1), ("d", 1)] == batch(output)


def test_cadence_of_several_ranks_is_not_kept_here() -> None:
    """[S-HOLD-02] With two ranks the interval does nothing; the engine throttles."""
    config = make_config(prefill_schedule_interval=3, data_parallel_size=2)
    state = run_steps(make_state(config, make_request("a", 4)), 1)
    state = add_request(state, make_request("b", 4))

    assert [("a", 1), ("b", 4)] == batch(schedule(state)[1])
    assert [("a", 1)] == batch(schedule(state, throttle_prefills=True)[1])
    assert -1 == schedule(state)[0].last_prefill_step
