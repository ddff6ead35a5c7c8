"""What became of the drafts of one row."""

from typing import Any

import attrs
import pytest

from kvsched_fp import (
    AutomatonGrammar,
    EngineOutput,
    RequestStatus,
    SchedulerState,
    StepResult,
    reset_prefix_cache,
    schedule,
    set_grammar,
    update,
    update_drafts,
    update_drafts_in_flight,
)
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.outputs import SpecDecodingStats
from kvsched_fp.progress import RequestSpecDecodeMetrics
from tests.unit.worlds import (
    make_config,
    make_request,
    make_state,
    plan_steps,
    run_step,
    run_steps,
    tokens_told,
)

A, B = map(RequestId, "ab")


def result(step_id: int, **tokens: tuple[int, ...]) -> StepResult:
    """Make a result from plain values."""
    return StepResult(step_id=StepId(step_id), sampled_token_ids=tokens)


def verifying_state(*drafts: int, max_tokens: int = 16, **changes: Any) -> SchedulerState:
    """Make a state with step 2 in flight, in which `a` has these drafts behind its first token."""
    config = make_config(num_spec_tokens=3, **changes)
    state, _ = run_step(make_state(config, make_request("a", max_tokens=max_tokens)))
    return schedule(update_drafts(state, {A: drafts}))[0]


@pytest.mark.parametrize(
    ("tokens", "num_computed"), [((8,), 8), ((50, 8), 9), ((50, 51, 8), 10), ((50, 51, 52, 8), 11)]
)
def test_rejected_drafts_are_not_computed(tokens: tuple[int, ...], num_computed: int) -> None:
    """[U-SPEC-01] Those in front of the last token were accepted; the next step goes on from there."""
    before = verifying_state(50, 51, 52)
    state = update(before, result(2, a=tokens))
    _, output = schedule(state)

    assert 11 == before.progress[A].num_computed_tokens
    assert num_computed == state.progress[A].num_computed_tokens
    assert {A: 1} == dict(output.num_scheduled_tokens)
    assert {"a": tokens} == tokens_told(state)


def test_rejected_drafts_keep_their_blocks() -> None:
    """[U-SPEC-01, K-TAB-01] A table only grows; the next tokens are written over what was rejected."""
    before = verifying_state(50, 51, 52)
    state = update(before, result(2, a=(8,)))

    assert before.kv.block_ids(A) == state.kv.block_ids(A)
    assert 3 == len(state.kv.tables[A][0].block_ids)


def test_less_than_nothing_is_not_stale() -> None:
    """[U-SPEC-02] A late result of a used id may leave a share below zero, which stops nothing."""
    before = verifying_state(50, 51, 52)
    progress = attrs.evolve(before.progress[A], num_stale_output_tokens=-2)
    state = update(attrs.evolve(before, progress=before.progress.set(A, progress)), result(2, a=(50, 8)))

    assert 9 == state.progress[A].num_computed_tokens


def overlapping_state(num_steps: int, **changes: Any) -> SchedulerState:
    """Make a state with so many steps of `a` in flight, all but the first with two drafts."""
    config = make_config(async_scheduling=True, num_spec_tokens=2, **changes)
    return plan_steps(make_state(config, make_request("a")), num_steps)


def counts(state: SchedulerState) -> tuple[int, int]:
    """Give the computed tokens and the placeholders of `a`."""
    progress = state.progress[A]
    return progress.num_computed_tokens, progress.num_output_placeholders


def test_rejected_drafts_give_up_their_placeholders() -> None:
    """[U-SPEC-01, U-TOK-09] Each step takes its own away: 3 for step 2, of which two were rejected."""
    state = overlapping_state(3)
    seen = [counts(state)]
    for step in (result(1, a=(7,)), result(2, a=(8,)), result(3, a=(50, 51, 9))):
        state = update(state, step)
        seen.append(counts(state))

    assert [(13, 7), (13, 6), (11, 3), (11, 0)] == seen
    assert [7, 8, 50, 51, 9] == list(state.progress[A].output_token_ids)


def test_row_without_tokens_rejects_nothing() -> None:
    """[U-SPEC-01] It was not verified: nothing is taken back, and nothing counted."""
    state = update(verifying_state(50, 51, 52), result(2))

    assert 11 == state.progress[A].num_computed_tokens
    assert state.emitted.clients[0].scheduler_stats is not None
    assert state.emitted.clients[0].scheduler_stats.spec_decoding_stats is None


def test_canvas_without_tokens_is_rejected_whole() -> None:
    """[U-SPEC-01] A step of diffusion that brings no token was one of denoising."""
    config = make_config(runner_type="diffusion", num_spec_tokens=4)
    state, _ = run_step(make_state(config, make_request("a")), a=())
    state, _ = schedule(update_drafts(state, {A: (1, 2, 3, 4)}))
    before = counts(state)
    state = update(state, result(2))

    assert ((11, 0), (7, 0)) == (before, counts(state))


def test_canvas_of_one_token_gives_up_its_placeholder() -> None:
    """[U-SPEC-01] The only one there is."""
    config = make_config(runner_type="diffusion", num_spec_tokens=4, async_scheduling=True)
    state = plan_steps(make_state(config, make_request("a", canvas_length=1)), 2)
    before = counts(state)
    state = update(update(state, result(1)), result(2))

    assert ((8, 1), (7, 0)) == (before, counts(state))


def stale_state() -> SchedulerState:
    """Make a state in which `b` was preempted in step 3, while its step 2 with two drafts is in flight."""
    config = make_config(
        usable_blocks=5, async_scheduling=True, num_spec_tokens=2, scheduler_reserve_full_isl=False
    )
    state = plan_steps(make_state(config, make_request("a", 8), make_request("b", 4)), 3)
    return update(state, result(1, a=(8,), b=(4,)))


def test_stale_row_takes_nothing_back() -> None:
    """[U-SPEC-02] The preemption has set the counters to nothing; the row's token is delivered still."""
    before = stale_state()
    state = update(before, result(2, a=(9,), b=(5,)))
    progress = state.progress[B]

    assert (RequestStatus.PREEMPTED, 3) == (
        before.progress[B].status,
        before.progress[B].num_stale_output_tokens,
    )
    assert {"a": (9,), "b": (5,)} == tokens_told(state)
    assert (0, 0, 0) == (
        progress.num_computed_tokens,
        progress.num_output_placeholders,
        progress.num_stale_output_tokens,
    )


def test_drafts_of_a_dropped_row_are_not_counted() -> None:
    """[U-SPEC-02, U-SPEC-03] What a reset made worthless was verified for nothing."""
    state, _ = reset_prefix_cache(verifying_state(50, 51), reset_running_requests=True)
    state = update(state, result(2, a=(50, 51, 8)))

    assert {} == tokens_told(state)
    assert state.emitted.clients[0].scheduler_stats is not None
    assert state.emitted.clients[0].scheduler_stats.spec_decoding_stats is None


def test_verified_drafts_are_counted() -> None:
    """[U-SPEC-03] Of two rows with three drafts and one, the first accepted two and the second none."""
    config = make_config(num_spec_tokens=3)
    requests = [make_request("a"), make_request("b"), make_request("c")]
    state = run_steps(make_state(config, *requests), 1)
    state, _ = schedule(update_drafts(state, {A: (50, 51, 52), B: (60,)}))
    state = update(state, result(2, a=(50, 51, 8), b=(9,), c=(9,)))
    stats = state.emitted.clients[0].scheduler_stats

    assert stats is not None
    assert SpecDecodingStats(3, 2, 4, 2, (1, 1, 0), (2, 1, 1)) == stats.spec_decoding_stats


def test_drafts_are_counted_update_by_update() -> None:
    """[U-SPEC-03] The next update says only what it learnt itself, and an update without drafts nothing."""
    state = update(verifying_state(50), result(2, a=(8,)))
    state, _ = run_step(state)

    assert state.emitted.clients[0].scheduler_stats is not None
    assert state.emitted.clients[0].scheduler_stats.spec_decoding_stats is None


def test_nothing_is_counted_without_statistics() -> None:
    """[U-SPEC-03] With `log_stats` off nothing is told; what is told of a request is asked for apart."""
    state = verifying_state(50, log_stats=False, spec_decode_metrics="summary", max_tokens=2)
    state = update(state, result(2, a=(8,)))
    [told] = state.emitted.clients[0].outputs

    assert state.emitted.clients[0].scheduler_stats is None
    assert RequestSpecDecodeMetrics(3, (1, 0, 0, 0), 1) == told.spec_decode_metrics


def last_output(level: str) -> list[EngineOutput]:
    """Let `a` accept two of three drafts, then none of one, and end; list what its client is told."""
    state = verifying_state(50, 51, 52, max_tokens=5, spec_decode_metrics=level)
    state = update(state, result(2, a=(50, 51, 8)))
    told = list(state.emitted.clients[0].outputs)
    state, _ = schedule(update_drafts(state, {A: (60,)}))
    return [*told, *update(state, result(3, a=(9,))).emitted.clients[0].outputs]


@pytest.mark.parametrize(
    ("level", "metrics"),
    [
        ("none", None),
        ("summary", RequestSpecDecodeMetrics(3, (1, 0, 1, 0), 4)),
        ("detailed", RequestSpecDecodeMetrics(3, (1, 0, 1, 0), 4, (2, 0), (3, 1))),
    ],
)
def test_drafts_of_a_request_are_told_with_its_last_output(
    level: str, metrics: RequestSpecDecodeMetrics | None
) -> None:
    """[U-SPEC-03] How often how many were accepted; in detail, each verification in order."""
    before, last = last_output(level)

    assert before.spec_decode_metrics is None
    assert metrics == last.spec_decode_metrics


def test_row_without_tokens_keeps_what_was_counted_of_its_request() -> None:
    """[U-SPEC-03] Step 3 brings nothing, and the last output tells of step 2."""
    state = verifying_state(50, max_tokens=3, spec_decode_metrics="summary")
    state = update(state, result(2, a=(8,)))
    state, _ = run_step(state, a=())

    assert RequestSpecDecodeMetrics(3, (1, 0, 0, 0), 1) == state.progress[A].spec_decode_metrics


def test_drafts_that_the_grammar_does_not_allow_are_not_counted() -> None:
    """[U-SPEC-03] One of two was padded in flight, so one draft was rejected, not two."""
    grammar = AutomatonGrammar([[(token_id, 0) for token_id in range(20)]])
    config = make_config(async_scheduling=True, num_spec_tokens=2)
    state = set_grammar(make_state(config, make_request("a", needs_grammar=True)), A, grammar)
    state = update_drafts_in_flight(plan_steps(state, 2), StepId(2), {A: (5, 50)})
    state = update(update(state, result(1, a=(7,))), result(2, a=(8,)))
    stats = state.emitted.clients[0].scheduler_stats

    assert stats is not None
    assert SpecDecodingStats(2, 1, 1, 0, (0, 0), (1, 0)) == stats.spec_decoding_stats


def test_padding_of_one_row_is_not_taken_from_another() -> None:
    """[U-SPEC-03] `a` has one draft and one padded in its place, `b` two drafts: three were drafted."""
    grammar = AutomatonGrammar([[(token_id, 0) for token_id in range(20)]])
    config = make_config(async_scheduling=True, num_spec_tokens=2)
    state = make_state(config, make_request("a", needs_grammar=True), make_request("b"))
    state = plan_steps(set_grammar(state, A, grammar), 2)
    state = update_drafts_in_flight(state, StepId(2), {A: (5, 50), B: (60, 61)})
    state = update(update(state, result(1, a=(7,), b=(7,))), result(2, a=(8,), b=(8,)))
    stats = state.emitted.clients[0].scheduler_stats

    assert stats is not None
    assert SpecDecodingStats(2, 2, 3, 0, (0, 0), (2, 1)) == stats.spec_decoding_stats
