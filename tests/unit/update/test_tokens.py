"""Taking in what one step brought for one request."""

import pytest

from kvsched_fp import (
    AutomatonGrammar,
    FinishReason,
    InvalidEvent,
    Progress,
    SchedulerState,
    StepResult,
    add_request,
    finish_requests,
    reset_prefix_cache,
    schedule,
    set_grammar,
    update,
    update_drafts,
)
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.kvcache.hashing import extend_block_hashes
from kvsched_fp.outputs import EngineOutput
from kvsched_fp.progress import PrefillStats
from tests.unit.refusal import refused
from tests.unit.worlds import (
    make_config,
    make_outgrown,
    make_request,
    make_result,
    make_state,
    plan_steps,
    run_step,
    run_steps,
    tokens_told,
)

A, B = map(RequestId, "ab")


def told(state: SchedulerState) -> list[EngineOutput]:
    """List what client 0 was told."""
    return list(state.emitted.clients[0].outputs)


def test_tokens_are_no_longer_in_flight_when_they_are_back() -> None:
    """[U-TOK-01] Each result takes away what its step had scheduled, whether it sampled or not."""
    state = plan_steps(make_state(make_config(max_num_batched_tokens=8), make_request("a", 20)), 3)
    in_flight = [state.progress[A].num_in_flight_tokens]
    for output in state.in_flight:
        state = update(state, StepResult(step_id=output.step_id))
        in_flight.append(state.progress[A].num_in_flight_tokens)

    assert [20, 12, 4, 0] == in_flight


def test_piece_of_a_prompt_brings_no_output() -> None:
    """[U-TOK-01] A row without tokens is not told to the client."""
    state, _ = run_step(make_state(make_config(max_num_batched_tokens=8), make_request("a", 20)))

    assert {} == tokens_told(state)


def test_result_of_a_request_that_has_left_is_ignored() -> None:
    """[U-TOK-02] It was ended from outside while it was in flight."""
    state, output = schedule(make_state(make_config(), make_request("a"), make_request("b")))
    late = make_result(state, output)
    state = update(finish_requests(state, [A]), late)

    assert {"b": (7,)} == tokens_told(state)
    assert {B} == set(state.progress)


def two_stale_steps(*, reset: bool) -> tuple[SchedulerState, Progress]:
    """Make a state in which `b` was preempted with steps of 4 and 2 tokens in flight."""
    state = make_outgrown(22, 6, usable_blocks=7, num_steps=2)
    if reset:
        state, _ = reset_prefix_cache(state, reset_running_requests=True)
    else:
        state = plan_steps(state, 4)
    return state, state.progress[B]


@pytest.mark.parametrize(("reset", "output"), [(False, {"b": (6,)}), (True, {})])
def test_stale_share_is_drained_step_by_step(reset: bool, output: dict[str, tuple[int, ...]]) -> None:
    """[U-TOK-03, M-REL-03] Its tokens are delivered, or dropped; the live counters stay at nothing."""
    state, progress = two_stale_steps(reset=reset)
    shares = [progress.num_stale_output_tokens]
    for step in state.in_flight[:2]:
        state = update(state, make_result(state, step))
        shares.append(state.progress[B].num_stale_output_tokens)

    assert [6, 2, 0] == shares
    assert output == {key: ids for key, ids in tokens_told(state).items() if key == B}
    assert 0 == state.progress[B].num_computed_tokens
    assert 0 == state.progress[B].num_in_flight_tokens


def test_share_that_is_dropped_does_not_take_the_fresh_one_with_it() -> None:
    """[U-TOK-03] After a reset `a` is admitted at once; the token of the new step counts."""
    state, first = schedule(make_state(make_config(), make_request("a")))
    late = make_result(state, first, {"a": (5,)})
    state, _ = reset_prefix_cache(state, reset_running_requests=True)
    state, second = schedule(state)
    state = update(state, late)

    assert (7, 0) == (state.progress[A].num_in_flight_tokens, state.progress[A].num_stale_output_tokens)

    state = update(state, make_result(state, second, {"a": (6,)}))

    assert {"a": (6,)} == tokens_told(state)
    assert [6] == list(state.progress[A].output_token_ids)


def late_step_of_a_former_request() -> SchedulerState:
    """Make a state in which `a`, of 3 tokens, was preempted while 5 of the `a` before it are in flight."""
    state, _ = schedule(make_state(make_config(), make_request("a", 5)))
    state = add_request(finish_requests(state, [A]), make_request("a", 3))
    state, _ = schedule(state)
    return reset_prefix_cache(state, reset_running_requests=True)[0]


@pytest.mark.parametrize("tokens", [{}, {"a": (7,)}])
def test_late_result_that_exceeds_the_stale_share_is_refused(tokens: dict[str, tuple[int, ...]]) -> None:
    """[U-TOK-08] Its 5 tokens are not of the request that has the id now, whether it brings any or not."""
    state = late_step_of_a_former_request()
    allowed = "a step with at most 3 tokens of request 'a'; this one has 5"
    with refused(InvalidEvent, "step_id", 1, allowed, state=state):
        update(state, StepResult(step_id=StepId(1), sampled_token_ids=tokens))


def test_late_result_is_ignored_once_the_new_request_has_ended() -> None:
    """[U-TOK-08, U-TOK-02] So the steps in flight can still come back."""
    state = finish_requests(late_step_of_a_former_request(), [A])
    for step_id in (1, 2):
        state = update(state, StepResult(step_id=StepId(step_id), sampled_token_ids={"a": (7,)}))

    assert {} == tokens_told(state)
    assert () == state.in_flight


def test_late_result_within_the_stale_share_is_taken_in() -> None:
    """[U-TOK-03, U-TOK-08] The reference cannot tell it from one of the new request, and neither do we."""
    state, _ = schedule(make_state(make_config(), make_request("a", 3)))
    state = add_request(finish_requests(state, [A]), make_request("a", 5))
    state, _ = schedule(state)
    state, _ = reset_prefix_cache(state, reset_running_requests=True)
    state = update(state, StepResult(step_id=StepId(1), sampled_token_ids={"a": (7,)}))

    assert (2, 2) == (state.progress[A].num_stale_output_tokens, state.progress[A].num_in_flight_tokens)
    assert {} == tokens_told(state)


def test_tokens_behind_the_one_that_stops_are_cut_off() -> None:
    """[U-TOK-04] Of 1, 7, 9 the client gets 1 and 7, with the reason."""
    state, _ = run_step(make_state(make_config(), make_request("a", stop_token_ids=[7])), a=(1, 7, 9))

    assert [((1, 7), FinishReason.STOP, 7)] == [
        (output.new_token_ids, output.finish_reason, output.stop_reason) for output in told(state)
    ]


def test_several_tokens_are_appended_in_order() -> None:
    """[U-TOK-04] None of them stops the output."""
    state, _ = run_step(make_state(make_config(), make_request("a")), a=(3, 1, 2))

    assert [3, 1, 2] == list(state.progress[A].output_token_ids)
    assert [(3, 1, 2)] == [output.new_token_ids for output in told(state)]
    assert told(state)[0].finish_reason is None


def test_output_ends_at_the_longest_length() -> None:
    """[U-TOK-04] Prompt and output together have at most `max_model_len` tokens."""
    state, _ = run_step(make_state(make_config(max_model_len=8), make_request("a", 6)), a=(1, 2, 3))

    assert [((1, 2), FinishReason.LENGTH)] == [
        (output.new_token_ids, output.finish_reason) for output in told(state)
    ]


@pytest.mark.parametrize(("num_tokens", "num_hashes"), [(1, 2), (2, 2), (4, 2), (5, 3), (6, 3)])
def test_block_that_tokens_fill_is_hashed_at_once(num_tokens: int, num_hashes: int) -> None:
    """[U-TOK-05] A prompt of 7 and new tokens fill two or three blocks, hashed as a whole."""
    config = make_config()
    tokens = tuple(range(num_tokens))
    state, _ = run_step(make_state(config, make_request("a", cache_salt="s")), a=tokens)
    known = (*state.requests[A].prompt_token_ids, *tokens)
    hashes = list(state.progress[A].block_hashes)

    assert num_hashes == len(hashes)
    assert list(extend_block_hashes(config.block_hasher, (), known, 0, 4, "s")) == hashes


def test_block_is_cached_when_it_is_scheduled_not_when_it_is_filled() -> None:
    """[U-TOK-05, K-CACHE-01] The eighth token is known after step 1, and computed in step 2."""
    state, _ = run_step(make_state(make_config(), make_request("a")))

    assert 1 == len(state.kv.pool.cached)
    assert 2 == len(schedule(state)[0].kv.pool.cached)


def test_requests_that_stop_give_back_in_the_order_of_the_batch() -> None:
    """[U-TOK-06] `b` ran before `a`, so its blocks are the first at the front, the last ones last."""
    requests = [make_request("b", 6, max_tokens=1), make_request("a", 6, max_tokens=1)]
    state, _ = run_step(make_state(make_config(enable_prefix_caching=False), *requests))

    assert [4, 3, 2, 1, 5, 6] == state.kv.pool.free_blocks()[:6]
    assert ("b", "a") == state.finished_request_ids


def test_request_gives_back_within_the_update_that_stops_it() -> None:
    """[U-TOK-06] Nothing is held when the update is done, and the end goes out with the next step."""
    state, _ = run_step(make_state(make_config(), make_request("a", max_tokens=1)))

    assert 16 == state.kv.pool.num_free_blocks
    assert ("a",) == schedule(state)[1].finished_request_ids


def test_first_output_carries_the_statistics_of_the_prefill() -> None:
    """[U-TOK-07] Of 12 tokens 8 were found, 4 computed, and these stored; later outputs have none."""
    state, _ = run_step(make_state(make_config(), make_request("a", 12, tokens=(1,) * 8)))
    state, _ = run_step(add_request(state, make_request("b", 12, tokens=(1,) * 8)))
    stats = {output.request_id: output.prefill_stats for output in told(state)}

    assert {"a": None, "b": PrefillStats(12, 4, 8, 4)} == stats
    assert [None, None] == [output.prefill_stats for output in told(run_steps(state, 1))]


def test_first_output_may_come_after_several_pieces() -> None:
    """[U-TOK-07] The statistics wait until there is an output; what is found is that of the first piece."""
    state = run_steps(make_state(make_config(max_num_batched_tokens=8), make_request("a", 18)), 3)

    assert [PrefillStats(18, 18, 0, 16)] == [output.prefill_stats for output in told(state)]


def test_nothing_is_stored_without_prefix_caching() -> None:
    """[U-TOK-07] All is computed and nothing is stored."""
    config = make_config(enable_prefix_caching=False)
    state, _ = run_step(make_state(config, make_request("a", 12)))

    assert [PrefillStats(12, 12, 0, 0)] == [output.prefill_stats for output in told(state)]


def test_stale_tokens_resolve_no_placeholder() -> None:
    """[U-TOK-03] It is admitted again, and the late token is not the one that is expected."""
    state, _ = schedule(make_state(make_config(async_scheduling=True), make_request("a")))
    state, _ = reset_prefix_cache(state, reset_running_requests=True)
    state, _ = schedule(state)
    state = update(state, StepResult(step_id=StepId(1), sampled_token_ids={"a": (5,)}))

    assert 1 == state.progress[A].num_output_placeholders
    assert {} == tokens_told(state)


def test_tokens_that_are_cut_off_do_not_count_as_computed() -> None:
    """[U-TOK-04] Of three tokens the first stopped it: the two drafts behind it were computed for nothing.

    It is a session, so one can look at it afterwards.
    """
    config = make_config(num_spec_tokens=2)
    state = make_state(config, make_request("a", stop_token_ids=[50], resumable=True))
    state, _ = run_step(state)
    state, _ = schedule(update_drafts(state, {A: (50, 51)}))
    before = state.progress[A].num_computed_tokens
    state = update(state, StepResult(step_id=StepId(2), sampled_token_ids={"a": (50, 51, 52)}))

    assert (10, 8) == (before, state.progress[A].num_computed_tokens)
    assert {"a": (50,)} == tokens_told(state)


def test_every_token_that_is_back_resolves_a_placeholder() -> None:
    """[U-TOK-09] Each step brings one; then nothing is expected."""
    state = plan_steps(make_state(make_config(async_scheduling=True), make_request("a")), 3)
    expected = [state.progress[A].num_output_placeholders]
    for output in state.in_flight:
        state = update(state, make_result(state, output))
        expected.append(state.progress[A].num_output_placeholders)

    assert [3, 2, 1, 0] == expected


def test_row_without_tokens_resolves_no_placeholder() -> None:
    """[U-TOK-09] What it was to bring may come later."""
    state = plan_steps(make_state(make_config(async_scheduling=True), make_request("a")), 1)
    state = update(state, StepResult(step_id=StepId(1)))

    assert 1 == state.progress[A].num_output_placeholders


def test_block_is_cached_when_no_step_in_flight_can_take_it_back() -> None:
    """[U-TOK-10, K-CACHE-01] The eighth token is known with the result of step 1, and computed in step 2.

    Step 2 was scheduled before the token was known, so the block is cached with the result of step 2.
    """
    state = plan_steps(make_state(make_config(async_scheduling=True), make_request("a")), 3)
    num_cached = [len(state.kv.pool.cached)]
    for output in state.in_flight:
        state = update(state, make_result(state, output))
        num_cached.append(len(state.kv.pool.cached))

    assert [1, 1, 2, 2] == num_cached


def test_block_of_accepted_drafts_is_cached_with_the_result() -> None:
    """[U-TOK-10] Drafts are not known when they are scheduled; one that is rejected fills no block."""
    num_cached = []
    for tokens in [(50, 51, 52, 8), (8,)]:
        config = make_config(num_spec_tokens=3)
        state, _ = run_step(make_state(config, make_request("a", 5)))
        state, output = schedule(update_drafts(state, {A: (50, 51, 52)}))
        planned = len(state.kv.pool.cached)
        state = update(state, make_result(state, output, {"a": tokens}))
        num_cached.append((planned, len(state.kv.pool.cached)))

    assert [(1, 2), (1, 1)] == num_cached


def test_blocks_of_a_request_that_stopped_are_cached() -> None:
    """[U-TOK-10] Others may find them."""
    config = make_config(async_scheduling=True)
    state = plan_steps(make_state(config, make_request("a", stop_token_ids=[8])), 2)
    for output in state.in_flight:
        state = update(state, make_result(state, output))

    assert set() == set(state.requests)
    assert 2 == len(state.kv.pool.cached)


def test_pooling_request_stops_with_its_pooled_output() -> None:
    """[U-TOK-11] The pieces of its prompt bring nothing; the output has no tokens."""
    config = make_config(runner_type="pooling", max_num_batched_tokens=8)
    state = plan_steps(make_state(config, make_request("a", 12, pooling=True, max_tokens=1)), 2)
    state = update(state, StepResult(step_id=StepId(1)))
    before = state.emitted.clients[0].outputs
    state = update(state, StepResult(step_id=StepId(2), pooled_request_ids=[A]))
    [last] = told(state)

    assert () == before
    assert ((), FinishReason.STOP, True) == (last.new_token_ids, last.finish_reason, last.pooled)
    assert PrefillStats(12, 12, 0, 12) == last.prefill_stats
    assert set() == set(state.requests)


def test_request_without_its_pooled_output_does_not_end() -> None:
    """[U-TOK-11] Though the step has computed all of its prompt."""
    config = make_config(runner_type="pooling")
    state = make_state(config, make_request("a", pooling=True, max_tokens=1))
    state, _ = schedule(state)

    assert {A} == set(update(state, StepResult(step_id=StepId(1))).requests)


def test_request_of_an_encoder_instance_stops_with_its_prompt() -> None:
    """[U-TOK-11] Its embeddings are published elsewhere; the client is told the end."""
    config = make_config(runner_type="encoder_only", max_num_batched_tokens=8)
    state = make_state(config, make_request("a", 12))
    ended = []
    for _ in range(2):
        state, _ = run_step(state, a=())
        ended.append([(out.new_token_ids, out.finish_reason, out.pooled) for out in told(state)])

    assert [[], [((), FinishReason.STOP, False)]] == ended
    assert set() == set(state.requests)


ONES = AutomatonGrammar([[(1, 0)]])


def constrained_state(**params: object) -> SchedulerState:
    """Make a state with the first step of `a` in flight, whose grammar allows ones."""
    state = make_state(make_config(), make_request("a", needs_grammar=True, **params))
    return plan_steps(set_grammar(state, A, ONES), 1)


def test_grammar_goes_past_the_tokens_that_it_allows() -> None:
    """[U-TOK-12] They are appended as always."""
    state = update(constrained_state(), StepResult(step_id=StepId(1), sampled_token_ids={"a": (1, 1)}))

    assert ONES == state.progress[A].grammar
    assert {"a": (1, 1)} == tokens_told(state)


@pytest.mark.parametrize("params", [{}, {"max_tokens": 1}, {"stop_token_ids": [2]}], ids=str)
def test_token_that_the_grammar_does_not_allow_is_an_error(params: dict[str, object]) -> None:
    """[U-TOK-12] The client gets the token and the error, even where the token would have stopped it."""
    state = update(
        constrained_state(**params), StepResult(step_id=StepId(1), sampled_token_ids={"a": (2,)})
    )
    [last] = told(state)

    assert ((2,), FinishReason.ERROR) == (last.new_token_ids, last.finish_reason)
    assert (2 if "stop_token_ids" in params else None) == last.stop_reason
    assert set() == set(state.requests)


def test_tokens_that_were_cut_off_are_not_shown_to_the_grammar() -> None:
    """[U-TOK-12] Behind the one that stopped the output anything may stand."""
    state = constrained_state(stop_token_ids=[1])
    state = update(state, StepResult(step_id=StepId(1), sampled_token_ids={"a": (1, 2)}))

    assert [FinishReason.STOP] == [output.finish_reason for output in told(state)]


def test_tokens_for_a_request_without_its_grammar_are_refused() -> None:
    """[U-TOK-12] Its id was used before, and the result is that of the first request (deviation D-05)."""
    state = plan_steps(make_state(make_config(), make_request("a")), 1)
    state = add_request(finish_requests(state, [A]), make_request("a", needs_grammar=True))
    allowed = "requests that have their grammar"
    with refused(InvalidEvent, "sampled_token_ids", "a", allowed, state=state):
        update(state, StepResult(step_id=StepId(1), sampled_token_ids={"a": (1,)}))
