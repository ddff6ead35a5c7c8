"""The world outside offers a session no input that the machine refuses, or that the reference fails on."""

import attrs
import pytest

from kvsched_fp import InvalidEvent, Request, SchedulerConfig, SchedulerState, add_request
from kvsched_fp.config import ALL_QUIRKS, Quirk
from kvsched_fp.testing.strategies.outside import has_room, next_input
from tests.unit.worlds import make_config, make_request, make_state, plan_steps, run_step

STRICT = tuple(quirk for quirk in ALL_QUIRKS if quirk is not Quirk.OUTGROWS_MODEL_LEN)
WORLDS = {
    "refused": make_config(max_model_len=16, quirks=STRICT),
    "reported": make_config(max_model_len=16, enable_kv_cache_events=True),
}


def more(length: int) -> Request:
    """Make input of so many tokens."""
    return make_request("a", length, resumable=True)


def is_taken(state: SchedulerState, request: Request) -> bool:
    """Tell whether the machine takes input that may not outgrow the longest length."""
    state = attrs.evolve(state, config=attrs.evolve(state.config, quirks=STRICT))
    try:
        add_request(state, request)
    except InvalidEvent:
        return False
    return True


@pytest.mark.parametrize("config", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("max_tokens", [1, 3, 100])
@pytest.mark.parametrize("moment", ["waits", "busy", "has input"])
def test_room_is_what_the_machine_says(config: SchedulerConfig, max_tokens: int, moment: str) -> None:
    """What is offered to a session that waits, or answers, or has input in store, is what fits."""
    first = make_request("a", 5, resumable=True, max_tokens=max_tokens)
    state = make_state(config, first)
    if moment == "waits":
        while not state.num_waiting_for_input:
            state, _ = run_step(state)
    else:
        state = plan_steps(state, 1)
    if moment == "has input":
        state = add_request(state, make_request("a", 1, resumable=True, max_tokens=2))
    offered = [more(length) for length in range(1, 17)]
    fitting = [request for request in offered if is_taken(state, request)]

    assert fitting == [request for request in offered if has_room(state, request)]
    assert has_room(state, make_request("a"))  # its end
    assert not has_room(state, more(16))


def test_a_session_may_outgrow_where_nobody_fails() -> None:
    """With the quirk, and no blocks reported, any input is offered."""
    state = make_state(make_config(max_model_len=16), make_request("a", 16, resumable=True))

    assert has_room(state, more(16))


def test_nothing_comes_behind_the_end() -> None:
    """A session that got its end is offered nothing."""
    state = make_state(make_config(quirks=STRICT), make_request("a", resumable=True))
    state = add_request(state, make_request("a"))

    assert not has_room(state, more(1))
    assert not has_room(state, make_request("a"))


@pytest.mark.parametrize(
    ("policy", "moment", "arrival_time"),
    [("fcfs", "waits", 9.0), ("fcfs", "busy", 9.0), ("priority", "waits", 0.0), ("priority", "busy", 9.0)],
)
def test_an_arrival_time_changes_in_no_queue(policy: str, moment: str, arrival_time: float) -> None:
    """By priority, input for a session that waits for it comes with the time of the session (D-13)."""
    state = make_state(make_config(policy=policy), make_request("a", 5, resumable=True, max_tokens=1))
    state = run_step(state)[0] if moment == "waits" else plan_steps(state, 1)
    asked = attrs.evolve(more(2), arrival_time=9.0)
    offered = next_input(state, "a", asked, is_end=False)

    assert (moment == "waits") == (state.num_waiting_for_input > 0)
    assert arrival_time == offered.arrival_time
