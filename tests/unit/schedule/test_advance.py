"""Counting the step: what is computed, what is in flight, and what it is expected to bring."""

from typing import Any

import pytest

from kvsched_fp import (
    AutomatonGrammar,
    SchedulerOutput,
    SchedulerState,
    add_request,
    schedule,
    set_grammar,
    update,
    update_drafts,
)
from kvsched_fp.ids import RequestId
from tests.unit.worlds import (
    batch,
    make_config,
    make_request,
    make_result,
    make_state,
    plan_steps,
    run_step,
    run_steps,
)

A, B = map(RequestId, "ab")


def async_state(num_steps: int, prompt: int = 7, **changes: Any) -> SchedulerState:
    """Make a state in which so many steps of `a` are planned and nobody has answered."""
    config = make_config(async_scheduling=True, **changes)
    return plan_steps(make_state(config, make_request("a", prompt)), num_steps)


def test_scheduled_tokens_count_as_computed_and_in_flight() -> None:
    """[S-STEP-02] A piece of 8 leaves prompt to compute, the rest does not."""
    state, counts = make_state(make_config(max_num_batched_tokens=8), make_request("a", 13)), []
    for _ in range(2):
        state, _ = schedule(state)
        progress = state.progress[A]
        counts.append(
            (progress.num_computed_tokens, progress.num_in_flight_tokens, progress.is_prefill_chunk)
        )

    assert [(8, 8, True), (13, 13, False)] == counts


def test_row_that_samples_gets_a_placeholder() -> None:
    """[S-ASYNC-01] It counts as known: the next step follows at once, and computes one position further."""
    state = async_state(3)

    assert [[("a", 7)], [("a", 1)], [("a", 1)]] == [batch(output) for output in state.in_flight]
    assert (9, 3) == (state.progress[A].num_computed_tokens, state.progress[A].num_output_placeholders)
    assert (1, 2) == tuple(
        output.scheduled_cached_requests.num_output_tokens[0] for output in state.in_flight[1:]
    )


def test_piece_of_a_prompt_gets_no_placeholder() -> None:
    """[S-ASYNC-01] It samples nothing; its drafter proposes nothing either."""
    state = async_state(1, 20, max_num_batched_tokens=8, num_spec_tokens=2)

    assert 0 == state.progress[A].num_output_placeholders
    assert () == state.progress[A].spec_token_ids


def test_row_that_waits_for_its_token_gets_none_without_asynchronous_scheduling() -> None:
    """[S-ASYNC-01] Then nothing can follow before the step is back."""
    state = plan_steps(make_state(make_config(), make_request("a")), 2)

    assert 0 == state.progress[A].num_output_placeholders
    assert [] == batch(state.in_flight[1])


def test_drafts_have_placeholders_of_their_own() -> None:
    """[S-ASYNC-01, S-ASYNC-02] Step 1 may bring one token, step 2 three; two more drafts are asked for."""
    state = async_state(2, num_spec_tokens=2)
    progress = state.progress[A]

    assert [("a", 3)] == batch(state.in_flight[1])
    assert (1 + 3, (-1, -1)) == (progress.num_output_placeholders, progress.spec_token_ids)


def test_next_drafts_are_as_many_as_the_step_asks_for() -> None:
    """[S-ASYNC-02, S-OUT-06] Two rows get one placeholder each, a single one two."""
    config = make_config(
        async_scheduling=True, num_spec_tokens=2, num_spec_tokens_per_batch_size=[(1, 1, 2), (2, 8, 1)]
    )
    state, _ = schedule(make_state(config, make_request("a")))
    alone = state.progress[A].spec_token_ids
    state, _ = schedule(add_request(state, make_request("b")))

    assert (-1, -1) == alone
    assert [(-1,), (-1,)] == [state.progress[request_id].spec_token_ids for request_id in (A, B)]


def constrained_step(**changes: Any) -> tuple[SchedulerState, SchedulerOutput]:
    """Plan the first step of an `a` of 20 tokens with a grammar, beside a `b` without."""
    config = make_config(**changes)
    state = make_state(config, make_request("b"), make_request("a", 20, needs_grammar=True))
    state = set_grammar(state, A, AutomatonGrammar([[(token_id, 0) for token_id in range(40)]]))
    return schedule(state)


def test_step_tells_whether_a_row_samples_under_a_grammar() -> None:
    """[S-ASYNC-03] A piece of a prompt does not."""
    state, piece = constrained_step(long_prefill_token_threshold=12)
    _, whole = schedule(state)

    assert (False, True) == (piece.has_structured_output_requests, whole.has_structured_output_requests)


@pytest.mark.parametrize(("is_async", "pending"), [(False, [False, False]), (True, [False, True])])
def test_step_tells_whether_such_a_row_needs_a_token_that_is_not_back(
    is_async: bool, pending: list[bool]
) -> None:
    """[S-ASYNC-03] The bitmask of the second step depends on the token of the first."""
    state, first = constrained_step(async_scheduling=is_async)
    if not is_async:
        state = update(state, make_result(state, first))
    _, second = schedule(state)

    assert [True, True] == [step.has_structured_output_requests for step in (first, second)]
    assert pending == [step.pending_structured_output_tokens for step in (first, second)]


def test_one_row_that_needs_such_a_token_is_enough() -> None:
    """[S-ASYNC-03] `b`, which is in the batch behind `a`, needs none."""
    grammar = AutomatonGrammar([[(token_id, 0) for token_id in range(40)]])
    state = make_state(make_config(async_scheduling=True), make_request("a", needs_grammar=True))
    state, _ = schedule(set_grammar(state, A, grammar))
    state = set_grammar(add_request(state, make_request("b", needs_grammar=True)), B, grammar)
    _, output = schedule(state)

    assert ["a", "b"] == list(output.num_scheduled_tokens)
    assert output.pending_structured_output_tokens


def test_drafts_are_used_up_by_the_step_that_could_verify_them() -> None:
    """[S-RUN-09] Those that a budget cut off are gone as well: `b` has two drafts and place for one."""
    config = make_config(num_spec_tokens=3, max_num_batched_tokens=8, max_num_scheduled_tokens=6)
    state = run_steps(make_state(config, make_request("a", 2), make_request("b", 2)), 1)
    state = update_drafts(state, {A: (50, 51, 52), B: (60, 61)})
    state, output = schedule(state)

    assert [("a", 4), ("b", 2)] == batch(output)
    assert {A: (50, 51, 52), B: (60,)} == dict(output.scheduled_spec_token_ids)
    assert [(), ()] == [state.progress[request_id].spec_token_ids for request_id in (A, B)]


def test_drafts_of_a_waiting_request_are_not_used_up_by_its_admission() -> None:
    """[S-RUN-09] They could not be verified: it had its prompt to compute."""
    state = update_drafts(make_state(make_config(num_spec_tokens=2), make_request("a")), {A: (50,)})
    state, output = run_step(state)

    assert {} == dict(output.scheduled_spec_token_ids)
    assert (50,) == state.progress[A].spec_token_ids
