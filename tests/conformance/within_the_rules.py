"""Turning events that the invariants do not speak of into ones that they do.

The histories of this suite go to the edge of what the reference takes without falling over. Three things
there are outside of what the catalogue says (`specs/invariants.md`, deviations D-05 and D-14): an id that
is used again while something of it is pending, drafts behind a step that nobody planned ahead, and a row
that samples and brings nothing. Without the quirks of those two
deviations, the machine keeps the rules by itself.
"""

import attrs

from kvsched_fp import (
    AddRequest,
    Event,
    RequestStatus,
    Schedule,
    SchedulerState,
    Update,
    UpdateDrafts,
)
from kvsched_fp.config import Quirk, RunnerType
from kvsched_fp.ids import RequestId, StepId


class WithinTheRules:
    """Keeps one history within the rules. `observe` must be told of every event."""

    def __init__(self) -> None:
        self._sampling: dict[StepId, list[RequestId]] = {}

    def turn(self, state: SchedulerState, event: Event) -> Event:
        """Give an event that the invariants speak of in place of one that they do not."""
        match event:
            case AddRequest() if Quirk.CHARGES_REUSED_ID in state.config.quirks:
                return _with_free_id(state, event)
            case UpdateDrafts(draft_token_ids=drafts) if (
                Quirk.DRAFTS_BEHIND_UNKNOWN_TOKEN in state.config.quirks
            ):
                return UpdateDrafts({name: drafts[name] for name in drafts if _can_be_drafted(state, name)})
            case Update():
                return self._with_tokens(state, event)
        return event

    def observe(self, event: Event, after: SchedulerState) -> None:
        """Note which rows of a planned step sample."""
        if isinstance(event, Schedule):
            output = after.in_flight[-1]
            self._sampling[output.step_id] = [
                request_id
                for request_id in output.num_scheduled_tokens
                if not after.progress[request_id].is_prefill_chunk
            ]

    def _with_tokens(self, state: SchedulerState, event: Update) -> Update:
        """Let every row that samples under placeholders or drafts bring something."""
        result = event.result
        sampled = dict(result.sampled_token_ids)
        rows = self._sampling.pop(result.step_id)
        if state.config.runner_type is RunnerType.GENERATE:
            drafts = state.in_flight[0].scheduled_spec_token_ids
            for request_id in rows:
                if state.config.async_scheduling or request_id in drafts:
                    sampled[request_id] = sampled.get(request_id) or (0,)
        return attrs.evolve(event, result=attrs.evolve(result, sampled_token_ids=sampled))


def _with_free_id(state: SchedulerState, event: AddRequest) -> AddRequest:
    """Take another id than one that something is pending of (deviation D-05)."""
    request_id = event.request.request_id
    is_pending = request_id in state.grammar_errors or any(
        request_id in output.num_scheduled_tokens for output in state.in_flight
    )
    if request_id in state.requests or not is_pending:
        return event
    new_id = RequestId(f"{request_id} again {state.num_added}")
    return attrs.evolve(event, request=attrs.evolve(event.request, request_id=new_id))


def _can_be_drafted(state: SchedulerState, request_id: RequestId) -> bool:
    """Tell whether somebody may draft: not behind a step in flight, unless it is planned ahead."""
    progress = state.progress[request_id]
    if state.config.async_scheduling:
        return True
    if state.requests[request_id].resumable and progress.status is not RequestStatus.RUNNING:
        return False
    return progress.num_in_flight_tokens == progress.num_stale_output_tokens
