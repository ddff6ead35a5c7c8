"""Requests that wait for something outside."""

from kvsched_fp import (
    AutomatonGrammar,
    FinishReason,
    RequestStatus,
    SchedulerState,
    add_request,
    fail_grammar,
    finish_requests,
    schedule,
    set_grammar,
    update,
)
from kvsched_fp.ids import RequestId
from tests.unit.worlds import batch, make_config, make_request, make_result, make_state, run_steps

A, B = map(RequestId, "ab")


def waiting_state(**changes: object) -> SchedulerState:
    """Make a state in which `a` waits for its grammar, with `b` behind it."""
    return make_state(make_config(**changes), make_request("a", needs_grammar=True), make_request("b"))


def test_request_goes_on_once_its_grammar_is_there() -> None:
    """[S-BLOCK-01, S-WAIT-12] Until then it is skipped, and those behind it are admitted."""
    state, before = schedule(waiting_state())
    state, after = schedule(set_grammar(state, A, AutomatonGrammar([[]])))

    assert [("b", 7)] == batch(before)
    assert [("a", 7)] == batch(after)
    assert RequestStatus.RUNNING is state.progress[A].status
    assert set() == set(state.deferred)


def test_grammar_does_not_move_its_request_ahead() -> None:
    """[S-BLOCK-01] It is looked at in its turn: with one place, `a` is behind `b`, which runs already."""
    state = run_steps(waiting_state(max_num_seqs=1), 1)
    state, output = schedule(set_grammar(state, A, AutomatonGrammar([[]])))

    assert [("b", 1)] == batch(output)
    assert RequestStatus.WAITING_FOR_GRAMMAR is state.progress[A].status
    assert [("a", 7)] == batch(schedule(finish_requests(state, [B]))[1])


def test_request_that_cannot_have_its_grammar_ends_with_the_next_update() -> None:
    """[S-BLOCK-01, U-STEP-05] A scan that reaches it notes it; the client is told why."""
    state, output = schedule(fail_grammar(waiting_state(), A, "no such rule"))
    noted = dict(state.grammar_errors)
    state = update(state, make_result(state, output))
    told = {out.request_id: out for out in state.emitted.clients[0].outputs}

    assert {A: "no such rule"} == noted
    assert ["b", "a"] == list(told)
    assert (FinishReason.ERROR, "no such rule", ()) == (
        told[A].finish_reason,
        told[A].error,
        told[A].new_token_ids,
    )
    assert {B} == set(state.requests)
    assert ("a",) == state.finished_request_ids
    assert {} == dict(state.grammar_errors)


def test_error_that_no_scan_has_reached_is_not_told_yet() -> None:
    """[S-BLOCK-01] `b` runs and there is one place: nobody looks at `a`."""
    state = run_steps(make_state(make_config(max_num_seqs=1), make_request("b")), 1)
    state = fail_grammar(add_request(state, make_request("a", needs_grammar=True)), A, "no")
    state = run_steps(state, 1)

    assert {A, B} == set(state.requests)
    assert {} == dict(state.grammar_errors)


def test_request_that_was_ended_meanwhile_is_not_told_of_its_error() -> None:
    """[U-STEP-05] It has left, and its client has been told by whoever ended it."""
    state, output = schedule(fail_grammar(waiting_state(), A, "no"))
    state = finish_requests(state, [A])
    state = update(state, make_result(state, output))

    assert ["b"] == [out.request_id for out in state.emitted.clients[0].outputs]
    assert {} == dict(state.grammar_errors)


def test_session_without_input_is_skipped() -> None:
    """[S-BLOCK-02, S-WAIT-12] It stays where it is; the next chunk lets it go on."""
    session = make_request("a", max_tokens=1, resumable=True)
    state = run_steps(make_state(make_config(), session), 1)
    state, output = schedule(add_request(state, make_request("b")))

    assert [("b", 7)] == batch(output)
    assert ["a"] == list(state.kv_holding_waiting)
    assert [("a", 7)] == batch(schedule(add_request(state, session))[1])
