"""What a state at a standstill waits for."""

import attrs
import pytest

from kvsched_fp import FinishRequests, SchedulerState, SetPauseState, step
from kvsched_fp.events import AddRequest, GrammarFailed, PauseState
from kvsched_fp.invariants.liveness import Awaited, Standstill, StandstillKind, classify_standstill
from kvsched_fp.request import Request
from tests.unit.worlds import (
    blocks_of,
    drain,
    make_config,
    make_outgrown,
    make_request,
    make_state,
    make_waiting_for_a_session,
    plan_steps,
    run_step,
    run_steps,
)

DONE = Standstill(StandstillKind.DONE)


def _waiting(*awaited: Awaited) -> Standstill:
    return Standstill(StandstillKind.WAITING, awaited)


def _stuck(*request_ids: str) -> Standstill:
    return Standstill(StandstillKind.STUCK, stuck=request_ids)  # type: ignore[arg-type]  # plain texts


def _stands_still(state: SchedulerState) -> bool:
    """Tell whether a step of nobody changes nothing but counters."""
    later, output = run_step(state)
    same = attrs.evolve(later, current_step=state.current_step, emitted=state.emitted)
    return not output.num_scheduled_tokens and state == same


def _idle_session(state: SchedulerState) -> SchedulerState:
    """Let the session `s` answer its first input, with one token."""
    return run_steps(state, 2)


def _session(**fields: int) -> Request:
    return make_request("s", 8, resumable=True, max_tokens=1, **fields)


def test_nobody_is_live() -> None:
    """A scheduler that has nothing to do is done."""
    state = make_state(make_config())

    assert _stands_still(state)
    assert DONE == classify_standstill(state)
    assert DONE == classify_standstill(
        run_steps(make_state(make_config(), make_request("a", max_tokens=1)), 2)
    )


def test_a_step_in_flight_is_waited_for() -> None:
    """Whoever is live, and also if nobody is."""
    assert _waiting(Awaited.RESULT) == classify_standstill(plan_steps(make_state(make_config()), 1))
    assert _waiting(Awaited.RESULT) == classify_standstill(make_outgrown(num_steps=5))


def test_a_grammar_is_waited_for() -> None:
    """By whoever needs one and was not told."""
    state = make_state(make_config(), make_request("g", needs_grammar=True))

    assert _stands_still(run_steps(state, 1))
    assert _waiting(Awaited.GRAMMAR) == classify_standstill(state)


def test_a_grammar_that_failed_is_not_waited_for() -> None:
    """The next update ends its request: if that does not happen, it is stuck."""
    state = make_state(make_config(), make_request("g", needs_grammar=True))
    state, _ = step(state, GrammarFailed("g", "no"))  # type: ignore[arg-type]  # a plain text

    assert not _stands_still(state)
    assert _stuck("g") == classify_standstill(state)


def test_the_end_of_a_pause_is_waited_for() -> None:
    """By everybody while everything is paused; while new requests are, by those only."""
    state = run_step(make_state(make_config(), make_request("a")))[0]
    state, _ = step(state, AddRequest(make_request("b")))
    everything, _ = step(state, SetPauseState(PauseState.PAUSED_ALL))
    new, _ = step(state, SetPauseState(PauseState.PAUSED_NEW))
    new_alone, _ = step(new, FinishRequests("a"))

    assert _stands_still(everything)
    assert _waiting(Awaited.UNPAUSE) == classify_standstill(everything)
    assert _stuck("a") == classify_standstill(new)
    assert _stands_still(run_steps(new_alone, 1))
    assert _waiting(Awaited.UNPAUSE) == classify_standstill(new_alone)


def test_several_things_are_waited_for() -> None:
    """Each is named once, in one order."""
    state = make_state(
        make_config(), make_request("a"), make_request("g", needs_grammar=True), make_request("b")
    )
    state, _ = step(state, SetPauseState(PauseState.PAUSED_ALL))
    found = classify_standstill(state)

    assert _waiting(Awaited.GRAMMAR, Awaited.UNPAUSE) == found
    assert "waiting for a grammar and the end of a pause" == str(found)


def test_a_session_waits_for_input() -> None:
    """It has answered all that it was given."""
    state = _idle_session(make_state(make_config(), _session()))

    assert _stands_still(state)
    assert _waiting(Awaited.INPUT) == classify_standstill(state)


@pytest.mark.parametrize(
    ("config", "prompt"),
    [
        ({"max_num_seqs": 1}, 4),  # the session keeps the only row
        ({"usable_blocks": 4}, 12),  # it keeps 2 of 4 blocks, 3 are needed
    ],
)
def test_others_wait_for_what_a_session_keeps(config: dict[str, int], prompt: int) -> None:
    """Its row, or its blocks; and so does everybody behind the one who is next."""
    state = _idle_session(make_state(make_config(**config), _session()))
    for request_id, num_tokens in (("a", prompt), ("b", 1)):
        state, _ = step(state, AddRequest(make_request(request_id, num_tokens)))
    state = run_steps(state, 1)

    assert len(blocks_of(state, "s")) == 2
    assert _stands_still(state)
    assert _waiting(Awaited.INPUT) == classify_standstill(state)


def test_whoever_fits_beside_a_session_is_stuck() -> None:
    """A session is no excuse for a request that it leaves enough for."""
    state = _idle_session(make_state(make_config(usable_blocks=4), _session()))
    state, _ = step(state, AddRequest(make_request("a", 8)))

    assert not _stands_still(state)
    assert _stuck("a") == classify_standstill(state)


def test_a_request_that_outgrew_the_pool_is_stuck() -> None:
    """It preempted itself, and as a whole it never fits again; nor does anybody behind it get on."""
    config = make_config(num_blocks=3, max_model_len=64, allow_undersized_pool=True)
    state = run_steps(make_state(config, make_request("a", 8), make_request("b", 1)), 3)

    assert _stands_still(state)
    assert _stuck("a", "b") == classify_standstill(state)
    assert "stuck: a, b" == str(classify_standstill(state))


def test_who_runs_waits_for_what_a_session_keeps() -> None:
    """Without the quirk of D-07, and everybody behind it too; once the session has input, nobody may."""
    state, _ = step(make_waiting_for_a_session(has_input=False), AddRequest(make_request("b", 1)))
    with_input = make_waiting_for_a_session(has_input=True)
    paused, _ = step(state, SetPauseState(PauseState.PAUSED_ALL))

    assert _stands_still(state)
    assert _waiting(Awaited.INPUT) == classify_standstill(state)
    assert _waiting(Awaited.INPUT, Awaited.UNPAUSE) == classify_standstill(paused)
    assert not _stands_still(with_input)
    assert _stuck("a", "s") == classify_standstill(with_input)


def test_who_runs_is_stuck_where_no_session_is_in_its_way() -> None:
    """Of the quirks none is followed, but the request is simply larger than the pool."""
    config = make_config(num_blocks=3, max_model_len=64, allow_undersized_pool=True, quirks=())
    state = run_steps(make_state(config, make_request("a", 8)), 2)

    assert _stands_still(state)
    assert _stuck("a") == classify_standstill(state)


def test_a_running_request_waits_for_nothing() -> None:
    """With all quirks, it can always go on, so a state in which it does not has no excuse."""
    state = drain(plan_steps(make_state(make_config(), make_request("a", max_tokens=9)), 1))

    assert not _stands_still(state)
    assert _stuck("a") == classify_standstill(state)
