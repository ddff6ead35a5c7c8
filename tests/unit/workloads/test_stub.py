"""The stub model and its drafter."""

from typing import Any

import pytest

from kvsched_fp import SchedulerState, UpdateDrafts, add_request, schedule, step, update
from kvsched_fp.errors import InvalidInputError
from kvsched_fp.events import FinishRequests
from kvsched_fp.lifecycle import reset_prefix_cache
from kvsched_fp.workloads.stub import (
    NUM_RANGES,
    POSITIONS_PER_REQUEST,
    StepInFlight,
    StubModel,
    output_token_id,
    sampling_request_ids,
)
from tests.unit.worlds import make_config, make_request, make_state

ALWAYS_RIGHT = StubModel(1.0)
ALWAYS_WRONG = StubModel(0.0)


def _plan(state: SchedulerState) -> tuple[SchedulerState, StepInFlight]:
    state, output = schedule(state)
    return state, StepInFlight(output, sampling_request_ids(state, output))


def _after_prompt(model: StubModel = ALWAYS_RIGHT, **changes: Any) -> tuple[SchedulerState, StepInFlight]:
    """Play the prompt of one request, whose answer is taken in; give the step, too."""
    state, sent = _plan(make_state(make_config(**changes), make_request("a", 4)))
    return update(state, model.answer(state, sent)), sent


def test_a_finished_prompt_and_a_decode_sample_one_token_each() -> None:
    """A request in the middle of its prompt samples nothing."""
    model = StubModel()
    config = make_config(max_num_batched_tokens=8)
    state, sent = _plan(make_state(config, make_request("a", 4), make_request("b", 8)))
    first = model.answer(state, sent)
    state, sent = _plan(update(state, first))
    second = model.answer(state, sent)

    assert {"a": (output_token_id(0, 0),)} == dict(first.sampled_token_ids)
    assert {"a": (output_token_id(0, 1),), "b": (output_token_id(1, 0),)} == dict(second.sampled_token_ids)


def test_what_samples_is_known_when_the_step_is_planned() -> None:
    """A later step may plan more of a prompt whose earlier piece is still in flight."""
    state, first = _plan(make_state(make_config(max_num_batched_tokens=8), make_request("a", 12)))
    state, second = _plan(state)

    assert {} == dict(StubModel().answer(state, first).sampled_token_ids)
    assert {"a"} == second.sampling


def test_a_request_that_has_left_samples_nothing() -> None:
    """A request may be ended while its step is in flight."""
    state, sent = _plan(make_state(make_config(), make_request("a", 4)))
    state, _ = step(state, FinishRequests(("a",)))

    assert {} == dict(StubModel().answer(state, sent).sampled_token_ids)


def test_output_tokens_have_ranges_of_their_own_below_2_to_the_53() -> None:
    """Every JSON reader gets the ids whole, and no prompt uses one."""
    assert 2**52 == output_token_id(0, 0)
    assert output_token_id(0, POSITIONS_PER_REQUEST - 1) + 1 == output_token_id(1, 0)
    assert 2**53 - 1 == output_token_id(NUM_RANGES - 1, POSITIONS_PER_REQUEST - 1)
    assert output_token_id(0, 5) == output_token_id(NUM_RANGES, 5)


def test_right_drafts_are_what_the_model_samples() -> None:
    """All of them are accepted, and the model adds its own token."""
    state, sent = _after_prompt(num_spec_tokens=3)
    drafts = ALWAYS_RIGHT.propose_drafts(state, sent)
    state, _ = step(state, UpdateDrafts(drafts))
    state, sent = _plan(state)
    result = ALWAYS_RIGHT.answer(state, sent)

    assert {"a": tuple(output_token_id(0, position) for position in (1, 2, 3))} == drafts
    assert {"a": tuple(output_token_id(0, position) for position in (1, 2, 3, 4))} == dict(
        result.sampled_token_ids
    )


def test_wrong_drafts_change_nothing_about_the_output() -> None:
    """The model's own token comes in the place of the first."""
    state, sent = _after_prompt(num_spec_tokens=3)
    state, _ = step(state, UpdateDrafts(ALWAYS_WRONG.propose_drafts(state, sent)))
    state, sent = _plan(state)

    assert 3 == len(sent.output.scheduled_spec_token_ids["a"])
    assert {"a": (output_token_id(0, 1),)} == dict(ALWAYS_WRONG.answer(state, sent).sampled_token_ids)


def test_drafts_behind_a_wrong_one_are_not_accepted() -> None:
    """Right ones neither: they follow what was not sampled."""
    state, _ = _after_prompt(num_spec_tokens=3)
    drafts = tuple(output_token_id(0, position) for position in (1, 9, 3))
    state, _ = step(state, UpdateDrafts({"a": drafts}))
    state, sent = _plan(state)

    assert {"a": (output_token_id(0, 1), output_token_id(0, 2))} == dict(
        ALWAYS_RIGHT.answer(state, sent).sampled_token_ids
    )


def test_with_asynchronous_scheduling_the_drafts_stay_in_the_worker() -> None:
    """The scheduler is told nothing, counts with -1, and gets the tokens."""
    config = make_config(async_scheduling=True, num_spec_tokens=3)
    state, first = _plan(make_state(config, make_request("a", 4)))
    state, second = _plan(state)
    state = update(state, ALWAYS_RIGHT.answer(state, first))

    assert {} == ALWAYS_RIGHT.propose_drafts(state, first)
    assert {"a": (-1, -1, -1)} == dict(second.output.scheduled_spec_token_ids)
    assert 4 == len(ALWAYS_RIGHT.answer(state, second).sampled_token_ids["a"])
    assert 1 == len(ALWAYS_WRONG.answer(state, second).sampled_token_ids["a"])


def test_padding_is_no_draft() -> None:
    """A request that is admitted with one token to compute is padded to the size of the others' rows."""
    tokens = tuple(range(5))
    config = make_config(async_scheduling=True, num_spec_tokens=3)
    state, _ = _plan(make_state(config, make_request("a", 5, tokens=tokens)))
    # It finds all but its last token in the cache.
    state = add_request(state, make_request("b", 5, tokens=tokens))
    state, sent = _plan(state)

    assert {"a": (-1, -1, -1), "b": (-1, -1, -1)} == dict(sent.output.scheduled_spec_token_ids)
    assert {"a": 4, "b": 1} == {
        request_id: len(token_ids)
        for request_id, token_ids in ALWAYS_RIGHT.answer(state, sent).sampled_token_ids.items()
    }


@pytest.mark.parametrize("use_v2_model_runner", [True, False])
def test_a_resumed_request_may_be_padded_too(use_v2_model_runner: bool) -> None:
    """Either shape of output tells that it was not running before."""
    config = make_config(usable_blocks=4, num_spec_tokens=3, use_v2_model_runner=use_v2_model_runner)
    state = make_state(config, make_request("a", 7, max_tokens=3), make_request("b", 3))
    for _ in range(3):  # in the third step, `a` takes the last block
        state, sent = _plan(state)
        state = update(state, ALWAYS_RIGHT.answer(state, sent))

    assert ("b",) == sent.output.preempted_request_ids
    state, sent = _plan(state)
    assert {"b": (-1, -1, -1)} == dict(sent.output.scheduled_spec_token_ids)
    assert {"b": (output_token_id(1, 2),)} == dict(ALWAYS_RIGHT.answer(state, sent).sampled_token_ids)


def test_nothing_is_proposed_for_what_does_not_go_on() -> None:
    """Neither in the middle of a prompt, nor for a request that lost its blocks or left meanwhile."""
    config = make_config(max_num_batched_tokens=8, num_spec_tokens=2)
    state, sent = _plan(make_state(config, make_request("a", 4), make_request("b", 8)))
    state = update(state, ALWAYS_RIGHT.answer(state, sent))
    preempted, _ = reset_prefix_cache(state, reset_running_requests=True)
    left, _ = step(state, FinishRequests(("a",)))

    assert {"a"} == ALWAYS_RIGHT.propose_drafts(state, sent).keys()
    assert {} == ALWAYS_RIGHT.propose_drafts(preempted, sent)
    assert {} == ALWAYS_RIGHT.propose_drafts(left, sent)


def test_nothing_is_proposed_where_the_output_says_so() -> None:
    """A row that samples its last token makes the runner skip the drafts."""
    config = make_config(num_spec_tokens=2, num_lookahead_tokens=2)
    state, sent = _plan(make_state(config, make_request("a", 4, max_tokens=1)))

    assert sent.output.skip_drafts
    assert {} == ALWAYS_RIGHT.propose_drafts(state, sent)


def test_as_many_drafts_as_the_output_asks_for() -> None:
    """The number may follow the size of the batch."""
    state, sent = _after_prompt(num_spec_tokens=3, num_spec_tokens_per_batch_size=((1, 1, 2), (2, 2, 0)))

    assert 2 == len(ALWAYS_RIGHT.propose_drafts(state, sent)["a"])


def _right_positions(model: StubModel, num_positions: int) -> list[bool]:
    """Tell at which positions of the output of `a` the drafter is right, from the second on."""
    state, sent = _after_prompt(model, num_spec_tokens=num_positions)
    drafts = model.propose_drafts(state, sent)["a"]
    return [draft == output_token_id(0, position) for position, draft in enumerate(drafts, 1)]


@pytest.mark.parametrize("rate", [0, 0.25, 0.7, 1])
def test_drafts_are_right_as_often_as_asked_for(rate: float) -> None:
    """The share over many positions is the rate, and exactly none or all at its ends."""
    right = _right_positions(StubModel(rate), 4000)

    assert rate == pytest.approx(sum(right) / len(right), abs=0.02 if 0 < rate < 1 else 0)


def test_which_drafts_are_right_is_always_the_same() -> None:
    """It depends on the request's id and the position only, on no seed and no history."""
    assert [True, True, False, False, True, False, True, False] == _right_positions(StubModel(0.5), 8)


def test_a_higher_rate_only_adds_right_drafts() -> None:
    """So runs with different rates can be compared."""
    low, high = (_right_positions(StubModel(rate), 500) for rate in (0.3, 0.6))

    assert all(more or not less for less, more in zip(low, high, strict=True))
    assert sum(low) < sum(high)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), "0.5", True, None])
def test_refuses_a_rate_that_is_no_probability(rate: object) -> None:
    """It is a number from 0 to 1."""
    with pytest.raises(InvalidInputError, match=r"acceptance rate: got .*; allowed: a number from 0 to 1"):
        StubModel(rate)  # type: ignore[arg-type]
