"""Which rows of a step sample under a grammar."""

import pytest

from kvsched_fp import (
    AutomatonGrammar,
    GrammarRows,
    SchedulerOutput,
    SchedulerState,
    finish_requests,
    grammar_rows,
    schedule,
    set_grammar,
    update_drafts,
    update_drafts_in_flight,
)
from kvsched_fp.ids import RequestId, StepId
from tests.unit.worlds import make_config, make_request, make_state, plan_steps, run_step

A, B, C = map(RequestId, "abc")
ANY = AutomatonGrammar([[(token_id, 0) for token_id in range(20)]])
"""Allows the tokens that the worlds sample."""


def constrained_state(**changes: object) -> SchedulerState:
    """Make a state of a short `a` and a long `b` with grammars, and of `c` without one."""
    config = make_config(num_spec_tokens=2, **changes)
    requests = [make_request("a", needs_grammar=True), make_request("b", 30, needs_grammar=True)]
    state = make_state(config, *requests, make_request("c"))
    return set_grammar(set_grammar(state, A, ANY), B, ANY)


def test_rows_with_a_grammar_need_a_mask_when_they_sample() -> None:
    """[G-MASK-01] `b` is in the middle of its prompt at first; `c` is free to say anything."""
    state = constrained_state(long_prefill_token_threshold=20)
    state, first = schedule(state)
    rows = grammar_rows(state, first)
    state, second = schedule(state)

    assert ["a", "b", "c"] == list(first.num_scheduled_tokens)
    assert GrammarRows((A,), (0,)) == rows
    assert GrammarRows((B,), (0,)) == grammar_rows(state, second)


def test_row_of_a_request_that_has_left_needs_no_mask() -> None:
    """[G-MASK-01] Its result will be ignored."""
    state, output = schedule(constrained_state())

    assert GrammarRows((A, B), (0, 0)) == grammar_rows(state, output)
    assert GrammarRows((B,), (0,)) == grammar_rows(finish_requests(state, [A]), output)
    assert grammar_rows(finish_requests(state, [A, B]), output) is None


def test_step_without_grammars_needs_no_mask() -> None:
    """[G-MASK-01] There is nothing to ask."""
    state, output = schedule(make_state(make_config(), make_request("c")))

    assert grammar_rows(state, output) is None


def verifying_step(drafts: tuple[int, ...], *, is_async: bool) -> tuple[SchedulerState, SchedulerOutput]:
    """Plan a step in which `a` has `drafts`."""
    state = constrained_state(async_scheduling=is_async)
    if is_async:
        state = update_drafts_in_flight(plan_steps(state, 2), StepId(2), {A: drafts})
        return state, state.in_flight[1]
    state, _ = run_step(state)
    return schedule(update_drafts(state, {A: drafts}))


@pytest.mark.parametrize(("drafts", "is_async", "num_acceptable"), [((4, 5), False, 2), ((4,), True, 1)])
def test_drafts_can_be_followed_up_to_the_padding(
    drafts: tuple[int, ...], is_async: bool, num_acceptable: int
) -> None:
    """[G-MASK-02] Drafts that came while the step was in flight may be fewer than its placeholders."""
    state, output = verifying_step(drafts, is_async=is_async)
    rows = grammar_rows(state, output)

    assert rows is not None
    assert 2 == len(output.scheduled_spec_token_ids[A])
    assert num_acceptable == rows.num_acceptable_drafts[rows.request_ids.index(A)]
