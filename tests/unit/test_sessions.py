"""Requests whose input comes in chunks."""

from typing import Any

import pytest

from kvsched_fp import (
    AutomatonGrammar,
    EngineOutput,
    FinishReason,
    InvalidEvent,
    Request,
    RequestStatus,
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
from kvsched_fp.state import has_unfinished_requests
from tests.unit.refusal import refused
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
    tokens_told,
)

A, B = map(RequestId, "ab")


def make_input(session: str = "a", *tokens: int, **fields: Any) -> Request:
    """Make the next input of a session; two tokens unless it is told which."""
    tokens = tokens or (91, 92)
    return make_request(session, len(tokens), tokens=tokens, resumable=True, **{"max_tokens": 2} | fields)


def make_end(session: str = "a") -> Request:
    """Make the end marker of a session."""
    return make_request(session, 1)


def session_state(*inputs: Request, **changes: Any) -> SchedulerState:
    """Make a state in which the session `a` has the first of two tokens; `inputs` came meanwhile."""
    state, _ = run_step(make_state(make_config(**changes), make_request("a", resumable=True, max_tokens=2)))
    for request in inputs:
        state = add_request(state, request)
    return state


def parked_state(**changes: Any) -> SchedulerState:
    """Make a state in which `a` has stopped with its second token, and waits for input."""
    return run_steps(session_state(**changes), 1)


def told(state: SchedulerState) -> EngineOutput:
    """Give the only output that client 0 was told."""
    [output] = state.emitted.clients[0].outputs
    return output


def test_session_that_stops_waits_for_input() -> None:
    """[M-SESS-01] Its client is told that it stopped, but it keeps its blocks and does not end."""
    state = parked_state()

    assert FinishReason.LENGTH is told(state).finish_reason
    assert RequestStatus.WAITING_FOR_INPUT is state.progress[A].status
    assert ((), ["a"], {A}) == (state.running, list(state.kv_holding_waiting), set(state.deferred))
    assert (1, 2) == blocks_of(state, "a")
    assert () == state.finished_request_ids
    assert 1 == state.num_waiting_for_input
    assert not has_unfinished_requests(state)


def test_session_that_waits_for_input_keeps_its_row() -> None:
    """[M-SESS-01, S-WAIT-03] It counts as active, so with one place `b` has to wait."""
    state, output = run_step(add_request(parked_state(max_num_seqs=1), make_request("b")))

    assert [] == batch(output)
    assert ["b"] == list(state.waiting)
    assert [("b", 7)] == batch(schedule(finish_requests(state, [A]))[1])


def test_session_goes_on_with_the_input_that_came_meanwhile() -> None:
    """[M-SESS-01] It does not wait for any."""
    state, _ = run_step(session_state(make_input()))

    assert RequestStatus.WAITING is state.progress[A].status
    assert 0 == state.num_waiting_for_input
    assert [("a", 2)] == batch(schedule(state)[1])


@pytest.mark.parametrize("parked", [False, True])
def test_session_ends_when_the_end_marker_comes_up(parked: bool) -> None:
    """[M-SESS-01, M-LIFE-04] At once if it waits for input, else when it stops."""
    state = add_request(parked_state(), make_end()) if parked else session_state(make_end())
    if not parked:
        assert {A} == set(state.requests)

        state, _ = run_step(state)

    assert set() == set(state.requests)
    assert ("a",) == state.finished_request_ids
    assert 16 == state.kv.pool.num_free_blocks
    assert 0 == state.num_waiting_for_input


def test_end_marker_behind_other_input_is_not_the_next() -> None:
    """[M-SESS-01, M-SESS-03] The input in front of it is served first."""
    state = run_steps(session_state(make_input(), make_end()), 1)

    assert {A} == set(state.requests)
    assert set() == set(run_steps(state, 2).requests)


def test_session_with_an_error_ends() -> None:
    """[M-SESS-01] A token that its grammar does not allow ends it, whatever input is there."""
    request = make_request("a", resumable=True, needs_grammar=True)
    state = set_grammar(make_state(make_config(), request), A, AutomatonGrammar([[(1, 0)]]))
    state, _ = run_step(add_request(state, make_input()), a=(2,))

    assert FinishReason.ERROR is told(state).finish_reason
    assert set() == set(state.requests)


def test_session_can_be_ended_from_outside() -> None:
    """[M-SESS-01] Also while it waits for input."""
    state = finish_requests(parked_state(), [A])

    assert 0 == state.num_waiting_for_input
    assert ((), set()) == (tuple(state.kv_holding_waiting), set(state.deferred))
    assert 16 == state.kv.pool.num_free_blocks


def test_input_follows_all_tokens_but_the_last_one() -> None:
    """[M-SESS-02] The last token was sampled and never computed; the others are prompt now."""
    before = parked_state()
    state = add_request(before, make_input("a", 91, 92, max_tokens=5, arrival_time=9.0))
    request, progress = state.requests[A], state.progress[A]

    assert [7, 8] == list(before.progress[A].output_token_ids)
    assert (*before.requests[A].prompt_token_ids, 7, 91, 92) == request.prompt_token_ids
    assert (5, 9.0) == (request.sampling_params.max_tokens, request.arrival_time)
    assert ([], 8) == (list(progress.output_token_ids), progress.num_computed_tokens)
    assert [("a", 2)] == batch(schedule(state)[1])


def test_input_does_not_change_whether_the_prefix_cache_is_read() -> None:
    """[M-SESS-02] That is settled with the first input."""
    state = add_request(parked_state(), make_input(skip_reading_prefix_cache=True))

    assert not state.requests[A].sampling_params.skip_reading_prefix_cache


def test_output_to_an_input_is_counted_anew() -> None:
    """[M-SESS-02] `max_tokens` is for the output to one input."""
    state, _ = run_step(add_request(parked_state(), make_input(max_tokens=1)))

    assert ((10,), FinishReason.LENGTH) == (told(state).new_token_ids, told(state).finish_reason)
    assert RequestStatus.WAITING_FOR_INPUT is state.progress[A].status


def test_block_that_holds_the_discarded_token_is_hashed_anew() -> None:
    """[M-SESS-02] The third block has the token of position 8 no more, but the first of the input."""
    config = make_config()
    state = make_state(config, make_request("a", 10, resumable=True, max_tokens=2))
    state = add_request(run_steps(state, 2), make_input("a", 91))
    prompt = state.requests[A].prompt_token_ids

    assert (10, 91) == prompt[10:]
    assert (
        extend_block_hashes(config.block_hasher, (), prompt, 0, 4, None) == state.progress[A].block_hashes
    )


def test_inputs_wait_in_order() -> None:
    """[M-SESS-03] Each is begun when the output to the one before has stopped."""
    state = session_state(make_input("a", 91), make_input("a", 92), make_input("a", 93))
    begun = []
    for _ in range(6):
        state, _ = run_step(state)
        begun.append(state.requests[A].prompt_token_ids[-1])

    assert [91, 91, 92, 92, 93, 93] == begun
    assert () == state.progress[A].chunks


def parked_pair() -> SchedulerState:
    """Make a state in which the sessions `a` and `b` wait for input, `a` ahead of `b`."""
    requests = [make_request(name, resumable=True, max_tokens=1) for name in "ab"]
    return run_steps(make_state(make_config(), *requests), 1)


def test_input_is_begun_where_its_session_stands() -> None:
    """[M-SESS-03] `b` got its input first, but `a` stands ahead of it."""
    state = add_request(add_request(parked_pair(), make_input("b")), make_input("a"))

    assert ["a", "b"] == list(state.kv_holding_waiting)
    assert [("a", 2), ("b", 2)] == batch(schedule(state)[1])


def test_session_that_goes_on_waits_behind_the_others() -> None:
    """[M-SESS-05] `b` has its next input when it stops, and goes behind `c`, which waits already."""
    requests = [
        make_request(name, resumable=True, max_tokens=tokens) for name, tokens in [("b", 2), ("c", 1)]
    ]
    state = run_steps(make_state(make_config(), *requests), 1)
    state = run_steps(add_request(state, make_input("b")), 1)

    assert ["c", "b"] == list(state.kv_holding_waiting)


def test_session_that_goes_on_is_served_before_requests_without_blocks() -> None:
    """[M-SESS-05, S-WAIT-02] It holds blocks."""
    state = run_steps(add_request(session_state(make_input(), max_num_seqs=1), make_request("b")), 1)

    assert (["a"], ["b"]) == (list(state.kv_holding_waiting), list(state.waiting))
    assert [("a", 2)] == batch(schedule(state)[1])


def overlapping_state(*inputs: Request, **changes: Any) -> SchedulerState:
    """Make a state in which `a` stopped with its first token, 7, while its next step is in flight."""
    config = make_config(async_scheduling=True, **changes)
    request = make_request("a", resumable=True, stop_token_ids=[7])
    state = plan_steps(make_state(config, request), 2)
    for chunk in inputs:
        state = add_request(state, chunk)
    return update(state, StepResult(step_id=StepId(1), sampled_token_ids={A: (7,)}))


def test_what_a_stop_leaves_in_flight_is_stale_and_not_computed() -> None:
    """[M-SESS-04] The token of step 2 had a placeholder, and counted as computed."""
    progress = overlapping_state().progress[A]

    assert (1, 1, True) == (
        progress.num_in_flight_tokens,
        progress.num_stale_output_tokens,
        progress.drop_stale_output,
    )
    assert (7, 0) == (progress.num_computed_tokens, progress.num_output_placeholders)


def test_late_token_of_a_session_is_dropped() -> None:
    """[M-SESS-04] It continued what the next input has replaced, which is admitted meanwhile."""
    state, output = schedule(overlapping_state(make_input("a", 91)))
    state = update(state, StepResult(step_id=StepId(2), sampled_token_ids={A: (55,)}))

    assert [("a", 1)] == batch(output)
    assert {} == tokens_told(state)
    assert 0 == state.progress[A].num_stale_output_tokens
    assert {"a": (8,)} == tokens_told(update(state, make_result(state, output)))


def test_drafts_of_a_session_do_not_outlive_its_stop() -> None:
    """[M-SESS-04] They continue an output that is over."""
    state = update_drafts(session_state(num_spec_tokens=2), {A: (50, 51)})
    planned, output = schedule(state)
    planned = update_drafts(planned, {A: (60,)})
    state = update(planned, make_result(planned, output))

    assert RequestStatus.WAITING_FOR_INPUT is state.progress[A].status
    assert () == state.progress[A].spec_token_ids


def test_stop_reason_stays_with_the_session() -> None:
    """[M-SESS-06] It is told with every output, until another stop token takes its place."""
    request = make_request("a", resumable=True, stop_token_ids=[3, 4])
    state, _ = run_step(make_state(make_config(), request), a=(3,))
    reasons = [told(state).stop_reason]
    state = add_request(state, make_input("a", 91, max_tokens=3, stop_token_ids=[3, 4]))
    for tokens in [(50,), (51,), (52,)]:
        state, _ = run_step(state, a=tokens)
        reasons.append(told(state).stop_reason)
    state, _ = run_step(add_request(state, make_input("a", 91, stop_token_ids=[3, 4])), a=(4,))

    assert [3, 3, 3, 3] == reasons
    assert 4 == told(state).stop_reason


def test_stop_reason_outlives_a_preemption() -> None:
    """[M-SESS-06] The session is thrown out and admitted again before it has its next token."""
    request = make_request("a", resumable=True, stop_token_ids=[3])
    state, _ = run_step(make_state(make_config(), request), a=(3,))
    state, output = schedule(add_request(state, make_input("a", 91, 92)))
    state, _ = reset_prefix_cache(state, reset_running_requests=True)
    state = update(state, make_result(state, output))
    state, _ = run_step(state, a=(50,))
    outputs = [told(state)]
    state, _ = run_step(state, a=(51,))

    assert [3, 3] == [output.stop_reason for output in (*outputs, told(state))]


def test_hash_that_covers_the_discarded_token_stands_for_what_is_cached() -> None:
    """[M-SESS-07] It stays while the session keeps its blocks; one that starts again is hashed anew."""
    config = make_config(num_hash_lookahead_tokens=1)
    state = make_state(config, make_request("a", resumable=True, max_tokens=2))
    before = run_steps(state, 2)
    state, _ = run_step(add_request(before, make_input("a", 91, 92, max_tokens=9)))
    kept = state.progress[A].block_hashes
    state, _ = schedule(reset_prefix_cache(state, reset_running_requests=True)[0])
    known = (*state.requests[A].prompt_token_ids, *state.progress[A].output_token_ids)

    assert before.progress[A].block_hashes == kept[:2]
    assert (8, 91) == (before.progress[A].output_token_ids[-1], known[8])
    assert kept != state.progress[A].block_hashes
    assert (
        extend_block_hashes(config.block_hasher, (), known, 0, 4, None, None, 1)
        == state.progress[A].block_hashes
    )


@pytest.mark.parametrize("events", [False, True])
def test_session_that_grows_beyond_the_longest_length_gets_no_more_blocks(events: bool) -> None:
    """[K-FIT-01] No input is refused (deviation D-11); there are blocks for 12 tokens, then it stops."""
    state = parked_state(max_model_len=12, enable_kv_cache_events=events)
    state, output = run_step(add_request(state, make_input("a", *range(91, 99))))

    assert 16 == state.requests[A].num_prompt_tokens
    assert [("a", 8)] == batch(output)
    assert 3 == len(blocks_of(state, "a"))
    assert FinishReason.LENGTH is told(state).finish_reason


def early_drafts_state(*inputs: Request) -> SchedulerState:
    """Make a state in which a draft was computed behind a token that is to come, 7, which will stop `a`."""
    request = make_request("a", resumable=True, stop_token_ids=[7])
    state, _ = schedule(make_state(make_config(num_spec_tokens=1), request))
    state, output = schedule(update_drafts(state, {A: (50,)}))

    assert [("a", 1)] == batch(output)
    for chunk in inputs:
        state = add_request(state, chunk)
    return state


def test_session_that_has_computed_more_than_is_kept_cannot_go_on() -> None:
    """[M-SESS-02] Neither with input that is there nor with the next one; it can be ended."""
    stop = StepResult(step_id=StepId(1), sampled_token_ids={A: (7,)})
    allowed = "a session with at most 7 computed tokens: it has 8"
    state = early_drafts_state(make_input())
    with refused(InvalidEvent, "request_id", "a", allowed, state=state):
        update(state, stop)
    state = update(early_drafts_state(), stop)
    with refused(InvalidEvent, "request_id", "a", allowed, state=state):
        add_request(state, make_input())

    assert set() == set(add_request(state, make_end()).requests)


def test_late_result_of_its_id_cannot_stop_a_session_that_has_computed_nothing() -> None:
    """[M-SESS-08] The token behind the stop was computed for the earlier request of that id."""
    state, _ = run_step(make_state(make_config(num_spec_tokens=1), make_request("a", 2, max_tokens=9)))
    state, output = schedule(update_drafts(state, {A: (5,)}))
    state = finish_requests(state, [A])
    state = add_request(state, make_request("a", 2, resumable=True, stop_token_ids=[9]))
    result = StepResult(step_id=output.step_id, sampled_token_ids={A: (9, 5)})

    with refused(InvalidEvent, "sampled_token_ids", A, "behind the stop of a session", state=state):
        update(state, result)


def test_late_result_of_its_id_may_stop_a_session_with_its_last_token() -> None:
    """[M-SESS-08] Nothing is cut off behind it (deviation D-05)."""
    state, output = schedule(make_state(make_config(), make_request("a", 2, max_tokens=9)))
    state = finish_requests(state, [A])
    state = add_request(state, make_request("a", 2, resumable=True, stop_token_ids=[9]))
    state = update(state, StepResult(step_id=output.step_id, sampled_token_ids={A: (9,)}))

    assert (RequestStatus.WAITING_FOR_INPUT, 0) == (
        state.progress[A].status,
        state.progress[A].num_computed_tokens,
    )


@pytest.mark.parametrize("late", [make_end(), make_input()], ids=["end", "input"])
def test_nothing_comes_behind_the_end(late: Request) -> None:
    """[M-LIFE-04] A second end marker is refused, and so is more input."""
    state = session_state(make_end())
    with refused(InvalidEvent, "request_id", "a", "this session got its end", state=state):
        add_request(state, late)


@pytest.mark.parametrize("resumable", [False, True])
def test_input_for_a_request_that_is_no_session_is_refused(resumable: bool) -> None:
    """[M-LIFE-01, M-LIFE-04] `a` is live, and not resumable."""
    state, _ = run_step(make_state(make_config(), make_request("a")))
    with refused(InvalidEvent, "request_id", "a", "an id that is not live", state=state):
        add_request(state, make_request("a", 2, resumable=resumable))


def test_id_of_an_ended_session_can_be_used_again() -> None:
    """[M-LIFE-04] What comes then is a new request."""
    state = add_request(add_request(parked_state(), make_end()), make_request("a", 3))

    assert (["a"], 0) == (list(state.waiting), state.progress[A].num_computed_tokens)
