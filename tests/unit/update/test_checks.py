"""What a result may say."""

from typing import Any

import attrs

from kvsched_fp import (
    InvalidEvent,
    SchedulerState,
    StepResult,
    finish_requests,
    reset_prefix_cache,
    schedule,
    update,
    update_drafts,
)
from kvsched_fp.ids import RequestId, StepId
from tests.unit.refusal import refused
from tests.unit.worlds import make_config, make_request, make_state, plan_steps, run_step, tokens_told

A, B = map(RequestId, "ab")


def result(step_id: int, *tokens: int, pooled: Any = ()) -> StepResult:
    """Make a result for `a`."""
    return StepResult(
        step_id=StepId(step_id), sampled_token_ids={A: tokens} if tokens else {}, pooled_request_ids=pooled
    )


def verifying_state() -> SchedulerState:
    """Make a state with step 2 in flight, in which `a` has two drafts."""
    state, _ = run_step(make_state(make_config(num_spec_tokens=3), make_request("a")))
    return schedule(update_drafts(state, {A: (50, 51)}))[0]


def test_row_accepts_at_most_its_drafts_and_one() -> None:
    """[U-STEP-04] A fourth token of two drafts came from nowhere."""
    state = verifying_state()
    allowed = "at most 3: it had 2 drafts"
    with refused(InvalidEvent, "sampled_token_ids", "4 tokens for a", allowed, state=state):
        update(state, result(2, 50, 51, 52, 53))

    assert {"a": (50, 51, 52)} == tokens_told(update(state, result(2, 50, 51, 52)))


def test_canvas_accepts_at_most_its_tokens() -> None:
    """[U-STEP-04] Nothing is sampled behind it."""
    config = make_config(runner_type="diffusion", num_spec_tokens=2)
    state, _ = run_step(make_state(config, make_request("a")), a=())
    state, _ = schedule(update_drafts(state, {A: (5, 6)}))
    with refused(InvalidEvent, "sampled_token_ids", "3 tokens for a", "at most 2", state=state):
        update(state, result(2, 5, 6, 7))

    assert {"a": (5, 6)} == tokens_told(update(state, result(2, 5, 6)))


def test_row_resolves_at_most_its_placeholders() -> None:
    """[U-STEP-04] With one step in flight there is one, so two tokens are refused."""
    state = plan_steps(make_state(make_config(async_scheduling=True), make_request("a")), 1)
    allowed = "at most 1: so many placeholders are left for it"
    with refused(InvalidEvent, "sampled_token_ids", "2 tokens for a", allowed, state=state):
        update(state, result(1, 7, 8))


def test_rejected_drafts_leave_no_placeholders_for_other_tokens() -> None:
    """[U-STEP-04] What step 2 may bring is bounded by its drafts, though step 3 has placeholders, too."""
    state = plan_steps(
        make_state(make_config(async_scheduling=True, num_spec_tokens=1), make_request("a")), 3
    )
    state = update(state, result(1, 7))
    with refused(InvalidEvent, "sampled_token_ids", "3 tokens for a", "at most 2", state=state):
        update(state, result(2, 8, 9, 10))

    assert {"a": (8, 9)} == tokens_told(update(state, result(2, 8, 9)))


def test_rejected_drafts_take_placeholders_away() -> None:
    """[U-STEP-04] Two are left behind an id that was used before (D-05), less one for a rejected draft."""
    config = make_config(async_scheduling=True, num_spec_tokens=2)
    state = update(plan_steps(make_state(config, make_request("a")), 2), result(1, 7))
    progress = attrs.evolve(state.progress[A], num_output_placeholders=2)
    state = attrs.evolve(state, progress=state.progress.set(A, progress))
    allowed = "at most 1: so many placeholders are left for it"

    with refused(InvalidEvent, "sampled_token_ids", "2 tokens for a", allowed, state=state):
        update(state, result(2, 8, 9))


def test_stale_row_is_not_bounded_by_placeholders() -> None:
    """[U-STEP-04] They were given up with the preemption; what comes is dropped here."""
    state = plan_steps(make_state(make_config(async_scheduling=True), make_request("a")), 1)
    state, _ = schedule(reset_prefix_cache(state, reset_running_requests=True)[0])

    assert {} == tokens_told(update(state, result(1, 7, 8)))


def test_row_without_drafts_may_bring_several_tokens_without_asynchronous_scheduling() -> None:
    """[U-STEP-04] A stub of a model may do so; nothing was promised."""
    state, _ = schedule(make_state(make_config(), make_request("a")))

    assert {"a": (7, 8, 9)} == tokens_told(update(state, result(1, 7, 8, 9)))


def pooling_state() -> SchedulerState:
    """Make a state with the only step of a pooling `a` in flight."""
    request = make_request("a", pooling=True, max_tokens=1)
    return plan_steps(make_state(make_config(runner_type="pooling"), request), 1)


def test_pooled_output_of_a_request_that_was_not_scheduled_is_refused() -> None:
    """[U-STEP-02] It is named like a stranger among the tokens."""
    state = pooling_state()
    with refused(InvalidEvent, "pooled_request_ids", "z", "requests in step 1: a", state=state):
        update(state, result(1, pooled=("a", "z")))


def test_request_that_pools_samples_nothing() -> None:
    """[U-STEP-04] And one that samples does not pool."""
    state = pooling_state()
    with refused(InvalidEvent, "sampled_token_ids", "a", "this one pools", state=state):
        update(state, result(1, 7))
    state, _ = schedule(make_state(make_config(), make_request("a")))
    with refused(InvalidEvent, "pooled_request_ids", "a", "pooling requests", state=state):
        update(state, result(1, pooled=("a",)))


def test_late_result_of_a_request_that_has_left_is_not_judged() -> None:
    """[U-TOK-02] Nobody knows any more what it could be."""
    state = finish_requests(pooling_state(), [A])

    assert () == update(state, result(1, 7)).emitted.clients[0].outputs


def test_strangers_of_any_type_are_named() -> None:
    """[U-STEP-02] One of them, also where they cannot be put in order."""
    state = verifying_state()
    strange = StepResult(step_id=StepId(2), sampled_token_ids={1: (1,), "zz": (2,)})  # type: ignore[dict-item]
    with refused(InvalidEvent, "sampled_token_ids", "zz", "requests in step 2: a", state=state):
        update(state, strange)


def test_drafting_slots_cost_nothing_without_drafts() -> None:
    """[S-BUD-02] There is no drafter that could need them."""
    config = make_config(max_num_batched_tokens=6, max_num_new_slots_for_drafting=2)
    state = make_state(config, make_request("a", 2), make_request("b", 4))

    assert {A: 2, B: 4} == dict(schedule(state)[1].num_scheduled_tokens)
