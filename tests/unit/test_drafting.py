"""Drafts that come from outside, between the steps."""

from typing import Any

import pytest

from kvsched_fp import (
    AutomatonGrammar,
    InvalidEvent,
    SchedulerState,
    finish_requests,
    schedule,
    set_grammar,
    update_drafts,
    update_drafts_in_flight,
)
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.ordered import OrderedMap
from tests.unit.refusal import refused
from tests.unit.worlds import batch, make_config, make_request, make_state, plan_steps, run_step

A, B = map(RequestId, "ab")
SEVEN_THEN_ONES = AutomatonGrammar([[(7, 1)], [(1, 1)]])
"""Allows the token that `a` samples first, and then ones."""


def decoding_state(**changes: Any) -> SchedulerState:
    """Make a state in which `a` of 7 tokens decodes; at most 3 drafts."""
    state, _ = run_step(make_state(make_config(num_spec_tokens=3, **changes), make_request("a")))
    return state


def constrained_state(**changes: Any) -> SchedulerState:
    """Make the same state with a grammar that allows only ones from there on."""
    config = make_config(num_spec_tokens=3, **changes)
    state = set_grammar(make_state(config, make_request("a", needs_grammar=True)), A, SEVEN_THEN_ONES)
    return run_step(state)[0]


def test_drafts_are_kept_for_the_next_step() -> None:
    """[D-NEXT-01] They take the place of older ones, also if they are none."""
    state = update_drafts(decoding_state(), {A: [50, 51]})
    _, output = schedule(state)

    assert (50, 51) == state.progress[A].spec_token_ids
    assert OrderedMap({A: (50, 51)}) == output.scheduled_spec_token_ids
    assert (60,) == update_drafts(state, {A: (60,)}).progress[A].spec_token_ids
    assert () == update_drafts(state, {A: ()}).progress[A].spec_token_ids


@pytest.mark.parametrize(
    ("drafts", "kept"),
    [((1, 1, 2), (1, 1)), ((2, 1, 1), ()), ((1, -1, 1), (1,)), ((-1, -1, -1), ()), ((1, 1, 1), (1, 1, 1))],
)
def test_drafts_that_the_grammar_does_not_allow_are_cut(
    drafts: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    """[D-NEXT-01, G-PAD-01] From the first that it does not allow on, or from the padding on."""
    assert kept == update_drafts(constrained_state(), {A: drafts}).progress[A].spec_token_ids


def test_drafts_without_a_grammar_may_be_anything() -> None:
    """[D-NEXT-01] Padding included: the model runner knows what it means."""
    assert (9, -1, 9) == update_drafts(decoding_state(), {A: (9, -1, 9)}).progress[A].spec_token_ids


def test_drafts_in_the_middle_of_a_prompt_are_thrown_away() -> None:
    """[D-NEXT-01] Those that were there before, too: they do not continue the end of the prompt."""
    config = make_config(num_spec_tokens=3, max_num_batched_tokens=8)
    state = update_drafts(make_state(config, make_request("a", 20)), {A: (50,)})
    state, _ = schedule(state)

    assert (50,) == state.progress[A].spec_token_ids
    assert () == update_drafts(state, {A: (60, 61)}).progress[A].spec_token_ids


@pytest.mark.parametrize(("canvas_length", "kept"), [(None, (5, 6, 7)), (2, (5, 6))])
def test_canvas_that_is_narrower_cuts_its_drafts(canvas_length: int | None, kept: tuple[int, ...]) -> None:
    """[D-NEXT-01] The next drafts of a diffusion request are its canvas."""
    config = make_config(num_spec_tokens=3, runner_type="diffusion")
    state = make_state(config, make_request("a", canvas_length=canvas_length))

    assert kept == update_drafts(state, {A: (5, 6, 7)}).progress[A].spec_token_ids


def overlapping_state() -> SchedulerState:
    """Make a state with two steps of `a` in flight; the second has placeholders for 3 drafts."""
    config = make_config(num_spec_tokens=3, async_scheduling=True)
    return plan_steps(make_state(config, make_request("a")), 2)


@pytest.mark.parametrize(
    ("drafts", "scheduled", "num_invalid"),
    [
        ((5, 6, 7), (5, 6, 7), {}),
        ((5, 6, 7, 8), (5, 6, 7), {}),
        ((5,), (5, -1, -1), {A: 2}),
        ((), (-1, -1, -1), {A: 3}),
    ],
)
def test_drafts_take_the_place_of_the_placeholders_of_a_step(
    drafts: tuple[int, ...], scheduled: tuple[int, ...], num_invalid: dict[RequestId, int]
) -> None:
    """[D-FLIGHT-01] As many as there were: more are cut, fewer are padded, and the padding is counted."""
    state = update_drafts_in_flight(overlapping_state(), StepId(2), {A: drafts})
    output = state.in_flight[1]

    assert OrderedMap({A: scheduled}) == output.scheduled_spec_token_ids
    assert OrderedMap(num_invalid) == output.num_invalid_spec_tokens
    assert [("a", 4)] == batch(output)


def test_step_whose_drafts_did_not_come_counts_no_padding() -> None:
    """[D-FLIGHT-01] That is told apart from none."""
    assert overlapping_state().in_flight[1].num_invalid_spec_tokens is None


def test_drafts_in_flight_are_cut_by_the_grammar() -> None:
    """[D-FLIGHT-01] The first that is not allowed and all behind it become padding."""
    config = make_config(num_spec_tokens=3, async_scheduling=True)
    state = set_grammar(make_state(config, make_request("a", needs_grammar=True)), A, SEVEN_THEN_ONES)
    state = update_drafts_in_flight(plan_steps(state, 2), StepId(2), {A: (7, 2, 1)})

    assert (7, -1, -1) == state.in_flight[1].scheduled_spec_token_ids[A]


def test_row_without_placeholders_gets_no_drafts() -> None:
    """[D-FLIGHT-01] Step 1 was planned before there could be any."""
    before = overlapping_state()
    state = update_drafts_in_flight(before, StepId(1), {A: (5, 6, 7)})

    assert OrderedMap() == state.in_flight[0].scheduled_spec_token_ids
    assert before.in_flight[1] == state.in_flight[1]


@pytest.mark.parametrize("unknown", ["b", "z"])
def test_drafts_for_an_unknown_request_are_refused(unknown: str) -> None:
    """A request that never was, or that has left; the drafts of the others are not kept either."""
    state = finish_requests(make_state(make_config(num_spec_tokens=3), *map(make_request, "ab")), [B])
    drafts = {A: (5,), RequestId(unknown): (5,)}
    with refused(InvalidEvent, "draft_token_ids", unknown, "ids of live requests", state=state):
        update_drafts(state, drafts)
    state, _ = schedule(state)
    with refused(InvalidEvent, "draft_token_ids", unknown, "ids of live requests", state=state):
        update_drafts_in_flight(state, StepId(1), drafts)


def test_more_drafts_than_are_asked_for_are_refused() -> None:
    """A model runner has no place for them."""
    state = decoding_state()
    allowed = "at most num_spec_tokens = 3"
    with refused(InvalidEvent, "draft_token_ids", "4 drafts for a", allowed, state=state):
        update_drafts(state, {A: (1, 2, 3, 4)})


@pytest.mark.parametrize("token_id", [-2, 2**63, "5", None, True, 1.0])
def test_draft_that_is_no_token_id_is_refused(token_id: Any) -> None:
    """Token ids and -1 are allowed."""
    state = overlapping_state()
    with refused(InvalidEvent, "draft_token_ids", token_id, "integers from -1 to", state=state):
        update_drafts(state, {A: (5, token_id)})
    with refused(InvalidEvent, "draft_token_ids", token_id, "integers from -1 to", state=state):
        update_drafts_in_flight(state, StepId(2), {A: (5, token_id)})


@pytest.mark.parametrize(("num_steps", "allowed"), [(0, "nothing: no step is in flight"), (2, "1, 2")])
def test_step_that_is_not_in_flight_is_refused(num_steps: int, allowed: str) -> None:
    """Its drafts would come too late."""
    config = make_config(num_spec_tokens=3, async_scheduling=True)
    state = plan_steps(make_state(config, make_request("a")), num_steps)
    with refused(InvalidEvent, "step_id", 3, allowed, state=state):
        update_drafts_in_flight(state, StepId(3), {A: (5,)})


def test_drafts_for_a_request_without_its_grammar_are_refused() -> None:
    """Nobody can tell which of them are allowed; none are fine."""
    state = make_state(make_config(num_spec_tokens=3), make_request("a", needs_grammar=True))
    with refused(InvalidEvent, "draft_token_ids", "a", "requests that have their grammar", state=state):
        update_drafts(state, {A: (1,)})

    assert state == update_drafts(state, {A: ()})
