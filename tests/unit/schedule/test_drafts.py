"""Drafts in a step: which are verified, and whether the next ones can be used."""

from typing import Any

import pytest

from kvsched_fp import (
    SchedulerState,
    add_request,
    finish_requests,
    schedule,
    update,
    update_drafts,
)
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.groups.full import FullAttentionSpec
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

A, B, C = map(RequestId, "abc")


def drafted_state(*drafts: int, **changes: Any) -> SchedulerState:
    """Make a state in which `a` and `b` decode, and `a` has these drafts; at most 3."""
    config = make_config(num_spec_tokens=3, **changes)
    state = run_steps(make_state(config, make_request("a"), make_request("b")), 1)
    return update_drafts(state, {A: drafts})


def test_drafts_are_verified_behind_what_is_known() -> None:
    """[S-DRAFT-01] A token that is known and not computed, then two drafts; `b` has none."""
    _, output = schedule(drafted_state(50, 51))

    assert [("a", 3), ("b", 1)] == batch(output)
    assert {A: (50, 51)} == dict(output.scheduled_spec_token_ids)


@pytest.mark.parametrize(
    ("num_tokens", "verified"), [(1, {}), (2, {A: (50,)}), (3, {A: (50, 51)}), (4, {A: (50, 51, 52)})]
)
def test_budget_cuts_drafts_from_the_end(num_tokens: int, verified: dict[RequestId, Any]) -> None:
    """[S-DRAFT-01] The known token comes first."""
    config = make_config(num_spec_tokens=3, max_num_scheduled_tokens=num_tokens)
    state = run_steps(make_state(config, make_request("a", 1)), 1)
    _, output = schedule(update_drafts(state, {A: (50, 51, 52)}))

    assert [("a", num_tokens)] == batch(output)
    assert verified == dict(output.scheduled_spec_token_ids)


def test_drafts_behind_tokens_in_flight_are_verified_behind_their_placeholders() -> None:
    """[S-DRAFT-01] Tokens of three steps are on their way when the fourth is planned."""
    config = make_config(async_scheduling=True, num_spec_tokens=2)
    state = plan_steps(make_state(config, make_request("a")), 4)

    assert [7, 3, 3, 3] == [output.num_scheduled_tokens[A] for output in state.in_flight]
    assert {A: (-1, -1)} == dict(state.in_flight[3].scheduled_spec_token_ids)


def test_budget_cuts_drafts_behind_tokens_in_flight() -> None:
    """[S-DRAFT-01] One token is on its way, and with two positions one draft is verified behind it."""
    config = make_config(async_scheduling=True, num_spec_tokens=2, max_num_scheduled_tokens=2)
    state = plan_steps(make_state(config, make_request("a", 1)), 2)

    assert [1, 2] == [output.num_scheduled_tokens[A] for output in state.in_flight]
    assert {A: (-1,)} == dict(state.in_flight[1].scheduled_spec_token_ids)


def test_lookahead_gives_drafts_their_slots() -> None:
    """[K-FIT-01] With 3 slots behind the computed tokens, a prompt of 6 takes a third block at once."""
    with_slots = make_state(make_config(num_spec_tokens=3, num_lookahead_tokens=3), make_request("a", 6))
    without = make_state(make_config(num_spec_tokens=3), make_request("a", 6))

    assert [3, 2] == [len(blocks_of(schedule(state)[0], "a")) for state in (with_slots, without)]


def last_token_state(max_tokens: int, **changes: Any) -> SchedulerState:
    """Make a state in which `a` has its first of so many tokens."""
    config = make_config(num_spec_tokens=2, num_lookahead_tokens=2, **changes)
    return run_steps(make_state(config, make_request("a", max_tokens=max_tokens)), 1)


@pytest.mark.parametrize(("max_tokens", "skip"), [(2, True), (3, False)])
def test_drafts_behind_the_last_token_are_skipped(max_tokens: int, skip: bool) -> None:
    """[S-DRAFT-02] The step samples the second token, which is the last one or is not."""
    assert skip is schedule(last_token_state(max_tokens))[1].skip_drafts


def test_token_in_flight_counts_as_sure() -> None:
    """[S-DRAFT-02] One token is in flight and one sampled now: of three, one is left for the drafter."""
    config = make_config(num_spec_tokens=2, num_lookahead_tokens=2, async_scheduling=True)
    skips = []
    for max_tokens in (2, 3):
        state = plan_steps(make_state(config, make_request("a", max_tokens=max_tokens)), 2)
        skips.append([output.skip_drafts for output in state.in_flight])

    assert [[False, True], [False, False]] == skips


def test_drafts_behind_a_piece_of_prompt_are_skipped() -> None:
    """[S-DRAFT-02] They would be thrown away; one row that can use its drafts is enough to want them."""
    config = make_config(num_spec_tokens=2, num_lookahead_tokens=2, max_num_batched_tokens=8)
    state, first = run_step(make_state(config, make_request("a", 10)))
    _, last = schedule(state)
    _, mixed = schedule(run_steps(make_state(config, make_request("a", 2), make_request("b", 20)), 1))

    assert (True, False) == (first.skip_drafts, last.skip_drafts)
    assert [("a", 1), ("b", 7)] == batch(mixed)
    assert not mixed.skip_drafts


def test_step_without_rows_needs_no_drafts() -> None:
    """[S-DRAFT-02] There is nobody to use them."""
    config = make_config(num_spec_tokens=2, num_lookahead_tokens=2)

    assert schedule(make_state(config))[1].skip_drafts


@pytest.mark.parametrize(
    "changes",
    [{"num_lookahead_tokens": 0}, {"use_v2_model_runner": False}, {"num_spec_tokens": 0}],
    ids=str,
)
def test_drafts_are_skipped_only_where_a_runner_may_be_told(changes: dict[str, Any]) -> None:
    """[S-DRAFT-02] The V2 runner, with drafts that take slots."""
    config = make_config(**{"num_spec_tokens": 2, "num_lookahead_tokens": 2} | changes)

    assert not schedule(make_state(config))[1].skip_drafts


def test_row_that_is_taken_back_still_counts() -> None:
    """[S-DRAFT-02] `b` could use its drafts, and is then a victim of `a`, which cannot."""
    config = make_config(
        usable_blocks=4, policy="priority", num_spec_tokens=2, num_lookahead_tokens=2, max_model_len=16
    )
    b = make_request("b", 4, priority=1)
    a = make_request("a", 6, max_tokens=2)
    state = run_steps(make_state(config, b), 1)
    state = run_steps(add_request(state, a), 1)
    state, output = schedule(state)

    assert ("b",) == output.preempted_request_ids
    assert [("a", 1)] == batch(output)
    assert not output.skip_drafts


@pytest.mark.parametrize(
    ("prompt", "pieces"),
    [(8, [8]), (9, [6, 3]), (10, [7, 3]), (11, [8, 3]), (12, [8, 4]), (16, [8, 8]), (17, [8, 6, 3])],
)
def test_piece_of_prompt_leaves_the_drafter_enough_to_read(prompt: int, pieces: list[int]) -> None:
    """[S-DRAFT-03] With 3 tokens of lookahead, a piece ends at the prompt's end or 3 before it."""
    config = make_config(max_num_batched_tokens=8, num_prefill_lookahead_tokens=3, num_spec_tokens=3)
    state = plan_steps(make_state(config, make_request("a", prompt)), len(pieces))

    assert pieces == [output.num_scheduled_tokens[A] for output in state.in_flight]


def test_request_whose_piece_would_be_empty_is_skipped() -> None:
    """[S-DRAFT-03] Two tokens are left for a prompt of 3; `c` behind it fits."""
    config = make_config(max_num_batched_tokens=8, num_prefill_lookahead_tokens=3, num_spec_tokens=3)
    state = make_state(config, make_request("a", 6), make_request("b", 3), make_request("c", 1))
    state, output = schedule(state)

    assert [("a", 6), ("c", 1)] == batch(output)
    assert (["b"], {B}) == (list(state.waiting), set(state.deferred))


def test_running_request_whose_piece_would_be_empty_is_passed_over() -> None:
    """[S-DRAFT-03, S-RUN-03] `b` has 3 tokens of its prompt left, and one of them fits; `c` goes on."""
    config = make_config(max_num_batched_tokens=8, num_prefill_lookahead_tokens=3, num_spec_tokens=3)
    requests = [make_request(name, prompt) for name, prompt in [("a", 1), ("d", 1), ("b", 8), ("c", 1)]]
    state = run_steps(make_state(config, *requests), 1)
    state = update_drafts(state, {A: (50, 51, 52), RequestId("d"): (60, 61)})

    assert 5 == state.progress[B].num_computed_tokens
    assert [("a", 4), ("d", 3), ("c", 1)] == batch(schedule(state)[1])


def decoding_pair(**changes: Any) -> SchedulerState:
    """Make a state in which `a` decodes with drafts, and `b` of one token waits."""
    state = run_steps(make_state(make_config(num_spec_tokens=3, **changes), make_request("a")), 1)
    return add_request(update_drafts(state, {A: (50, 51, 52)}), make_request("b", 1))


def test_request_with_one_token_to_compute_is_padded() -> None:
    """[S-DRAFT-04] Its row is as wide as those of the decodes."""
    state, output = schedule(decoding_pair())

    assert [("a", 4), ("b", 4)] == batch(output)
    assert {A: (50, 51, 52), B: (-1, -1, -1)} == dict(output.scheduled_spec_token_ids)
    assert 4 == state.progress[B].num_computed_tokens


@pytest.mark.parametrize(
    ("changes", "prompt"),
    [
        ({"num_spec_tokens_per_batch_size": [(1, 8, 3)]}, 1),
        ({}, 2),
        ({"max_model_len": 4}, 1),
    ],
    ids=["dynamic", "more than one token", "too long with them"],
)
def test_request_is_not_padded_otherwise(changes: dict[str, Any], prompt: int) -> None:
    """[S-DRAFT-04] The number of drafts must be the same in every step, and the tokens must fit."""
    config = make_config(num_spec_tokens=3, **changes)
    state = run_steps(make_state(config, make_request("a", 1)), 1)
    _, output = schedule(add_request(state, make_request("b", prompt)))

    assert ("b", prompt) in batch(output)
    assert B not in output.scheduled_spec_token_ids


@pytest.mark.parametrize(("max_model_len", "num_tokens"), [(4, 1), (5, 4)])
def test_request_is_padded_if_a_sampled_token_still_fits(max_model_len: int, num_tokens: int) -> None:
    """[S-DRAFT-04] One token, three drafts, and one that is sampled behind them."""
    config = make_config(num_spec_tokens=3, max_model_len=max_model_len)
    state = run_steps(make_state(config, make_request("a", 1)), 1)
    _, output = schedule(add_request(state, make_request("b", 1)))

    assert ("b", num_tokens) in batch(output)


def test_nothing_is_padded_where_nothing_is_drafted() -> None:
    """[S-DRAFT-04] The rows of the decodes have one token."""
    state = run_steps(make_state(make_config(), make_request("a")), 1)
    _, output = schedule(add_request(state, make_request("b", 1)))

    assert [("a", 1), ("b", 1)] == batch(output)
    assert {} == dict(output.scheduled_spec_token_ids)


def test_hit_of_one_token_is_enough_for_padding() -> None:
    """[S-DRAFT-04] Blocks of one token: the first of two was found."""
    groups = (FullAttentionSpec(block_size=1),)
    config = make_config(num_spec_tokens=3, block_size=1, num_blocks=65, kv_cache_groups=groups)
    state = run_steps(make_state(config, make_request("a", 2, tokens=(1, 1))), 1)
    state = add_request(finish_requests(state, [A]), make_request("b", 2, tokens=(1, 1)))

    assert [("b", 4)] == batch(schedule(state)[1])


def test_request_that_is_alone_is_padded_behind_a_hit_only() -> None:
    """[S-DRAFT-04] A prompt of one token is a prompt; one that was found but for its last is a decode."""
    config = make_config(num_spec_tokens=3)
    _, first = schedule(make_state(config, make_request("a", 1)))
    state = run_steps(make_state(config, make_request("a", 5, tokens=(1,) * 4)), 1)
    state = add_request(finish_requests(state, [A]), make_request("b", 5, tokens=(1,) * 4))
    _, hit = schedule(state)

    assert [("a", 1)] == batch(first)
    assert [("b", 4)] == batch(hit)


def test_request_is_not_padded_beside_a_running_prompt() -> None:
    """[S-DRAFT-04] The rows are not of one size then."""
    config = make_config(num_spec_tokens=3, max_num_batched_tokens=8)
    state = run_steps(make_state(config, make_request("a", 14)), 1)
    _, output = schedule(add_request(state, make_request("b", 1)))

    assert [("a", 6), ("b", 1)] == batch(output)


def test_padded_request_that_does_not_fit_ends_the_phase() -> None:
    """[S-DRAFT-04] Three positions are left for its four; `c` behind it may not overtake."""
    config = make_config(num_spec_tokens=3, max_num_scheduled_tokens=7)
    state = run_steps(make_state(config, make_request("a")), 1)
    state = add_request(add_request(state, make_request("b", 1)), make_request("c", 2))
    state, output = schedule(update_drafts(state, {A: (50, 51, 52)}))

    assert [("a", 4)] == batch(output)
    assert ["b", "c"] == list(state.waiting)
    assert set() == set(state.deferred)


def test_padding_is_rejected_like_drafts() -> None:
    """[S-DRAFT-04, U-SPEC-01] Only the token that was there counts as computed in the end."""
    state, output = schedule(decoding_pair())
    state = update(state, make_result(state, output, {"a": (8,), "b": (1,)}))

    assert (1, (1,)) == (state.progress[B].num_computed_tokens, tuple(state.progress[B].output_token_ids))
