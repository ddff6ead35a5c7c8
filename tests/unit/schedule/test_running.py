"""The running phase: what each running request gets."""

import attrs
import pytest

from kvsched_fp import SchedulerState, add_request, finish_requests, schedule, update
from kvsched_fp.ids import RequestId
from tests.unit.worlds import (
    batch,
    blocks_of,
    make_config,
    make_request,
    make_result,
    make_state,
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
