"""What may happen next: everything that the world allows, and nothing that the machine refuses."""

import attrs

from kvsched_fp import (
    MINIMAL,
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
    step,
)
from kvsched_fp.events import PauseState
from kvsched_fp.explore import RequestKind, World
from kvsched_fp.explore.moves import Moves
from kvsched_fp.explore.situation import Situation, initial_situation
from kvsched_fp.explore.world import PLAIN, STOP

A = RequestKind(name="a", num_prompt_tokens=3, max_tokens=3)


def _world(*kinds: RequestKind, **changes: object) -> World:
    fields = {name: changes.pop(name) for name in list(changes) if hasattr(World, name)}
    return World(name="w", config=attrs.evolve(MINIMAL, **changes), kinds=kinds or (A,), **fields)  # type: ignore[arg-type]


def _play(moves: Moves, *kinds: type[Event]) -> Situation:
    """Make the first move of each kind, one after another."""
    situation = initial_situation(moves.world)
    for kind in kinds:
        event = next(event for event in moves.enabled(situation) if isinstance(event, kind))
        situation, _ = moves.follow(situation, event, step)
    return situation


def _kinds(moves: Moves, situation: Situation) -> list[str]:
    return [type(event).__name__ for event in moves.enabled(situation)]


def _answers(moves: Moves, situation: Situation) -> list[dict[str, tuple[int, ...]]]:
    """Give the answers to the oldest step."""
    return [
        dict(event.result.sampled_token_ids)
        for event in moves.enabled(situation)
        if isinstance(event, Update)
    ]


def test_at_first_only_requests_come() -> None:
    """The engine may also plan an empty step."""
    moves = Moves(_world())

    assert ["Schedule", "AddRequest"] == _kinds(moves, initial_situation(moves.world))


def test_each_request_comes_once() -> None:
    """When all are there, no more come, not even when they have left."""
    moves = Moves(_world(attrs.evolve(A, count=2), aborts=True))
    situation = _play(moves, AddRequest, AddRequest, FinishRequests)

    assert (0,) == situation.num_to_come
    assert ["2a"] == list(situation.state.requests)
    assert ["Schedule", "FinishRequests"] == _kinds(moves, situation)


def test_kinds_come_in_any_order() -> None:
    """Each kind that is left may be next, with the next number."""
    moves = Moves(_world(A, attrs.evolve(A, name="b", count=2)))
    situation = _play(moves, AddRequest)
    ids = [event.request.request_id for event in moves.enabled(situation) if isinstance(event, AddRequest)]

    assert ["2b"] == ids
    assert (0, 2) == situation.num_to_come


def test_steps_in_flight_are_bounded() -> None:
    """At the limit, the oldest has to be answered first."""
    moves = Moves(_world(max_in_flight=2, async_scheduling=True))

    assert "Schedule" in _kinds(moves, _play(moves, AddRequest, Schedule))
    assert "Schedule" not in _kinds(moves, _play(moves, AddRequest, Schedule, Schedule))


def test_a_row_that_ends_its_prompt_samples() -> None:
    """It brings one token, which may be the end if the world has stops."""
    for stops, expected in ((False, [{"1a": (PLAIN,)}]), (True, [{"1a": (PLAIN,)}, {"1a": (STOP,)}])):
        moves = Moves(_world(stops=stops))

        assert expected == _answers(moves, _play(moves, AddRequest, Schedule))


def test_a_piece_of_prompt_samples_nothing() -> None:
    """Its answer is empty."""
    moves = Moves(_world(attrs.evolve(A, num_prompt_tokens=6)))

    assert [{}] == _answers(moves, _play(moves, AddRequest, Schedule))


def test_a_row_that_has_left_brings_nothing() -> None:
    """Its step is answered all the same."""
    moves = Moves(_world(aborts=True))

    assert [{}] == _answers(moves, _play(moves, AddRequest, Schedule, FinishRequests))


def test_any_number_of_drafts_is_accepted() -> None:
    """From none to all; and the last token comes on top."""
    moves = Moves(_world(num_spec_tokens=2))
    situation = _play(moves, AddRequest, Schedule, Update, UpdateDrafts, Schedule)

    assert [{"1a": (PLAIN,) * count} for count in (1, 2, 3)] == _answers(moves, situation)


def test_drafts_come_once_between_the_steps() -> None:
    """For who decodes, and has none."""
    moves = Moves(_world(num_spec_tokens=2))

    assert "UpdateDrafts" not in _kinds(moves, _play(moves, AddRequest, Schedule))
    assert "UpdateDrafts" in _kinds(moves, _play(moves, AddRequest, Schedule, Update))
    assert "UpdateDrafts" not in _kinds(moves, _play(moves, AddRequest, Schedule, Update, UpdateDrafts))


def test_drafts_in_flight_come_once() -> None:
    """For the last step, while nobody has told them."""
    moves = Moves(_world(num_spec_tokens=1, async_scheduling=True, max_in_flight=2))
    planned = _play(moves, AddRequest, Schedule, Schedule)
    told = _play(moves, AddRequest, Schedule, Schedule, UpdateDraftsInFlight)

    assert "UpdateDraftsInFlight" in _kinds(moves, planned)
    assert "UpdateDraftsInFlight" not in _kinds(moves, told)


def test_a_grammar_comes_or_fails_once() -> None:
    """While it is waited for, and not after."""
    moves = Moves(_world(attrs.evolve(A, needs_grammar=True)))

    assert ["Schedule", "GrammarReady", "GrammarFailed"] == _kinds(moves, _play(moves, AddRequest))
    for answer in (GrammarReady, GrammarFailed):
        assert ["Schedule"] == _kinds(moves, _play(moves, AddRequest, answer))


def test_a_session_gets_its_inputs_and_its_end() -> None:
    """One by one, whatever it is doing; then no more."""
    moves = Moves(_world(attrs.evolve(A, num_inputs=1)))
    situation = _play(moves, AddRequest)

    assert (("1a", 2),) == situation.inputs_left

    situation = _play(moves, AddRequest, AddRequest)
    (end,) = (event for event in moves.enabled(situation) if isinstance(event, AddRequest))

    assert not end.request.resumable

    situation = _play(moves, AddRequest, AddRequest, AddRequest)

    assert () == situation.inputs_left
    assert ["Schedule"] == _kinds(moves, situation)


def test_pauses_resets_and_throttles_are_the_worlds() -> None:
    """From each pause the engine may go on or go over to the other one."""
    pauses = (PauseState.PAUSED_NEW, PauseState.PAUSED_ALL)
    moves = Moves(_world(pauses=pauses, resets=(False, True), throttles=True))
    situation = _play(moves, SetPauseState)
    enabled = moves.enabled(situation)

    assert PauseState.PAUSED_NEW is situation.state.pause_state
    assert [SetPauseState(PauseState.UNPAUSED), SetPauseState(PauseState.PAUSED_ALL)] == [
        event for event in enabled if isinstance(event, SetPauseState)
    ]
    assert {Schedule(), Schedule(throttle_prefills=True)} <= set(enabled)
    assert {ResetPrefixCache(False), ResetPrefixCache(True)} <= set(enabled)
