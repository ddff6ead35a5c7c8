"""States are equal, and hash alike, wherever nothing tells them apart."""

from collections.abc import Callable, Sequence
from itertools import permutations

import attrs
import pytest

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    PauseState,
    Request,
    ResetPrefixCache,
    Schedule,
    SchedulerConfig,
    SchedulerState,
    SchedulingPolicy,
    SetPauseState,
    Update,
    initial_state,
    step,
)
from kvsched_fp.ids import RequestId
from kvsched_fp.state import live_request_ids
from tests.unit.worlds import make_config, make_request, make_result, make_state, run_steps

from .histories import NUM_HISTORIES, history, make_new_request


def _apply(state: SchedulerState, *events: Event) -> SchedulerState:
    for event in events:
        state, _ = step(state, event)
    return state


def _end(*request_ids: str) -> Event:
    return FinishRequests(tuple(map(RequestId, request_ids)))


def _differing_fields(one: SchedulerState, other: SchedulerState) -> set[str]:
    names = [field.name for field in attrs.fields(SchedulerState)]
    return {name for name in names if getattr(one, name) != getattr(other, name)}


def _is_same(one: SchedulerState, other: SchedulerState) -> bool:
    return one == other and hash(one) == hash(other)


@pytest.mark.parametrize("number", range(NUM_HISTORIES))
def test_equal_histories_give_equal_states(number: int) -> None:
    """[M-STATE-02] Two runs of one history give equal states with equal hashes, which can be keys."""
    first = [moment.after for moment in history(number)]
    second = [moment.after for moment in history(number)]

    assert first == second
    assert list(map(hash, first)) == list(map(hash, second))
    assert set(first) == set(second)


@pytest.mark.parametrize("number", range(NUM_HISTORIES))
def test_a_pause_leaves_no_trace(number: int) -> None:
    """A pause and its end give the state from before."""
    for moment in history(number):
        paused = _apply(moment.before, SetPauseState(PauseState.PAUSED_ALL))
        resumed = _apply(paused, SetPauseState(moment.before.pause_state))

        assert _is_same(moment.before, resumed)


@pytest.mark.parametrize("number", range(NUM_HISTORIES))
def test_a_refused_reset_leaves_no_trace(number: int) -> None:
    """A reset that cannot be done gives the state from before."""
    num_refused = 0
    for moment in history(number):
        after, done = step(moment.before, ResetPrefixCache())
        if not done:
            num_refused += 1

            assert _is_same(moment.before, after)

    assert num_refused


@pytest.mark.parametrize("number", range(NUM_HISTORIES))
def test_independent_events_commute(number: int) -> None:
    """An arrival, an end of somebody else and a pause can come in any order, without a difference."""
    for moment in history(number):
        state = moment.before
        events: list[Event] = [
            AddRequest(make_new_request(state)),
            SetPauseState(PauseState.PAUSED_NEW),
            *(FinishRequests((request_id,)) for request_id in live_request_ids(state)[:1]),
        ]
        states = {_apply(state, *order) for order in permutations(events)}

        assert 1 == len(states)


def test_an_arrival_and_a_result_commute() -> None:
    """A request that arrives before or after a result gives the same state, but for the figures told."""
    state = make_state(make_config(log_stats=False), make_request("a"), make_request("b"))
    state = _apply(state, Schedule())
    arrival = AddRequest(make_request("c"))
    result = Update(make_result(state, state.in_flight[0]))

    assert _is_same(_apply(state, arrival, result), _apply(state, result, arrival))


def test_requests_ended_together_or_one_by_one_give_the_same() -> None:
    """One event that ends two requests is the same as two events in the same order."""
    state = run_steps(make_state(make_config(), *map(make_request, "abc")), 2)
    together = _apply(state, _end("a", "c"))
    one_by_one = _apply(state, _end("a"), _end("c"))

    assert _is_same(together, one_by_one)


def test_the_order_of_ends_shows_only_in_what_is_told() -> None:
    """Waiting requests that are ended in another order leave the same state, but for the finished ids."""
    state = make_state(make_config(), *map(make_request, "abcd"))
    forth = _apply(state, _end("a", "c"))
    back = _apply(state, _end("c", "a"))

    assert {"finished_request_ids"} == _differing_fields(forth, back)


def _orders_of_arrival(config: SchedulerConfig, requests: Sequence[Request]) -> list[SchedulerState]:
    return [make_state(config, *order) for order in permutations(requests)]


def test_by_priority_the_order_of_arrival_shows_only_in_the_add_numbers() -> None:
    """Under priority, requests that came in another order wait in the same one, and run alike."""
    config = make_config(policy=SchedulingPolicy.PRIORITY)
    requests = [make_request(name, 6, priority=number % 2) for number, name in enumerate("abcd")]
    first, *others = _orders_of_arrival(config, requests)
    ran = run_steps(first, 3)

    for other in others:
        assert {"add_numbers"} == _differing_fields(first, other)
        assert {"add_numbers"} == _differing_fields(ran, run_steps(other, 3))


@pytest.mark.parametrize(
    "make_order", [sorted, lambda ids: sorted(ids, reverse=True)], ids=["forth", "back"]
)
def test_maps_forget_how_they_were_filled(make_order: Callable[[list[str]], list[str]]) -> None:
    """A request among many that came and went is in the same maps as one that was always alone."""
    names = [f"r{number:02}" for number in range(40)]
    crowd = [name for name in make_order(names) if name != "r20"]
    config = make_config()
    alone = _apply(make_state(config, make_request("r20")), Schedule())
    crowded = make_state(config, *map(make_request, crowd))
    crowded = _apply(crowded, _end(*crowd), AddRequest(make_request("r20")))
    # The ends are told with the step.
    crowded = _apply(crowded, Schedule())

    assert {"add_numbers", "num_added", "in_flight"} == _differing_fields(alone, crowded)
    assert hash(alone.requests) == hash(crowded.requests)
    assert hash(alone.progress) == hash(crowded.progress)
    assert hash(alone.kv) == hash(crowded.kv)


def test_a_request_that_never_ran_leaves_only_counters() -> None:
    """A request that is ended while it waits shows in counters and finished ids alone."""
    state = run_steps(make_state(make_config(), make_request("a")), 2)
    came_and_went = _apply(state, AddRequest(make_request("b")), _end("b"))

    assert {"num_added", "finished_request_ids"} == _differing_fields(state, came_and_went)


def test_a_new_scheduler_is_the_same_value_everywhere() -> None:
    """Two empty schedulers of equal configurations are one value; of different ones, two."""
    assert _is_same(initial_state(make_config()), initial_state(make_config()))
    assert initial_state(make_config()) != initial_state(make_config(num_blocks=20))
