"""`step()`: the whole scheduler as one total function over the event alphabet.

Rules
-----
[M-STEP-01] Every event is one pure function of the state. An event that makes no sense in the state raises
    `InvalidEvent`, and the state that the caller holds is what it was.
[M-STEP-02] Equal states and equal events give equal results.
"""

from typing import TypeAlias, assert_never

from kvsched_fp.errors import InvalidEvent
from kvsched_fp.events import (
    AddRequest,
    Event,
    FinishRequests,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    Update,
)
from kvsched_fp.lifecycle import add_request, finish_requests, reset_prefix_cache, set_pause_state
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.schedule import schedule
from kvsched_fp.state import SchedulerState
from kvsched_fp.update import update

Outcome: TypeAlias = SchedulerOutput | bool | None
"""What comes of an event besides the new state: the output of `Schedule`, whether `ResetPrefixCache` was
done, else None. What `Update` tells the clients is in the state, as `emitted`."""


def step(state: SchedulerState, event: Event) -> tuple[SchedulerState, Outcome]:
    """Apply one event [M-STEP-01, M-STEP-02]."""
    match event:
        case Schedule(throttle_prefills):
            return schedule(state, throttle_prefills=throttle_prefills)
        case Update(result):
            return update(state, result), None
        case AddRequest(request):
            return add_request(state, request), None
        case FinishRequests(request_ids, status):
            return finish_requests(state, request_ids, status), None
        case SetPauseState(pause_state):
            return set_pause_state(state, pause_state), None
        case ResetPrefixCache(reset_running_requests):
            return reset_prefix_cache(state, reset_running_requests=reset_running_requests)
        case _:
            _refuse(event)
            assert_never(event)


def _refuse(event: object) -> None:
    raise InvalidEvent("event", event, "an event of kvsched_fp.events.Event")
