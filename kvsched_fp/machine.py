"""`step()`: the whole scheduler as one total function over the event alphabet.

Rules
-----
[M-STEP-01] Every event is one pure function of the state. An event that makes no sense in the state raises
    `InvalidEvent`, and the state that the caller holds is what it was.
[M-STEP-02] Equal states and equal events give equal results.
"""

from typing import TypeAlias, assert_never

from kvsched_fp.drafting import update_drafts, update_drafts_in_flight
from kvsched_fp.errors import InvalidEvent
from kvsched_fp.events import (
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
)
from kvsched_fp.lifecycle import (
    add_request,
    fail_grammar,
    finish_requests,
    reset_prefix_cache,
    set_grammar,
    set_pause_state,
)
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.schedule import schedule
from kvsched_fp.state import SchedulerState
from kvsched_fp.update import update

Outcome: TypeAlias = SchedulerOutput | bool | None
"""What comes of an event besides the new state: the output of `Schedule`, whether `ResetPrefixCache` was
done, else None. What `Update` tells the clients is in the state, as `emitted`."""


def step(state: SchedulerState, event: Event) -> tuple[SchedulerState, Outcome]:
    """Apply one event [M-STEP-01, M-STEP-02].

    Raises `InvalidEvent` for what is no event, and where the function of the event does.
    """
    outcome: Outcome = None
    match event:
        case Schedule(throttle_prefills, time):
            state, outcome = schedule(state, throttle_prefills=throttle_prefills, time=time)
        case Update(result, time):
            state = update(state, result, time=time)
        case UpdateDrafts(draft_token_ids):
            state = update_drafts(state, draft_token_ids)
        case UpdateDraftsInFlight(step_id, draft_token_ids):
            state = update_drafts_in_flight(state, step_id, draft_token_ids)
        case AddRequest(request, time):
            state = add_request(state, request, time=time)
        case GrammarReady(request_id, grammar):
            state = set_grammar(state, request_id, grammar)
        case GrammarFailed(request_id, message):
            state = fail_grammar(state, request_id, message)
        case FinishRequests(request_ids, status):
            state = finish_requests(state, request_ids, status)
        case SetPauseState(pause_state):
            state = set_pause_state(state, pause_state)
        case ResetPrefixCache(reset_running_requests, time):
            state, outcome = reset_prefix_cache(
                state, reset_running_requests=reset_running_requests, time=time
            )
        case _:
            _refuse(event)
            assert_never(event)
    return state, outcome


def _refuse(event: object) -> None:
    raise InvalidEvent("event", event, "an event of kvsched_fp.events.Event")
