"""Drafts that come from outside, between the steps.

Rules
-----
[D-NEXT-01] Drafts are kept for the request's next step, up to the first that its grammar does not
    allow. In the middle of a prompt they are thrown away, older ones included: they continue what is
    not the end. Without asynchronous scheduling, those that come while a step of the request is in flight,
    or while it waits, are kept, too, behind a token that nobody knows yet (deviation D-14); without the
    quirk they are not.
[D-FLIGHT-01] Drafts for a step in flight take the place of its placeholders: as many as there are
    placeholders, up to the first that the grammar does not allow, padded to the old number. The output
    counts the padding.

Upstream: `v1/core/sched/scheduler.py::Scheduler.update_draft_token_ids`,
`update_draft_token_ids_in_output`; `v1/core/sched/diffusion_scheduler.py` cuts to the canvas.
"""

from collections.abc import Iterable, Mapping

import attrs

from kvsched_fp.config import Quirk, RunnerType, SchedulerConfig
from kvsched_fp.errors import InvalidEvent
from kvsched_fp.events import UpdateDrafts, UpdateDraftsInFlight
from kvsched_fp.grammar import GrammarError, strip_padding
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.progress import Progress, evolve_progress
from kvsched_fp.request import MAX_TOKEN_ID, Request, RequestStatus, canvas_width
from kvsched_fp.state import SchedulerState, evolve_state

PADDING = -1
"""Stands where there is no draft."""


def update_drafts(
    state: SchedulerState, draft_token_ids: Mapping[RequestId, Iterable[int]]
) -> SchedulerState:
    """Keep drafts for the next step of each request [D-NEXT-01].

    Raises `InvalidEvent` for a request that is not live or has no grammar yet, more than
    `num_spec_tokens` drafts, or what is neither a token id nor -1.
    """
    event = UpdateDrafts(draft_token_ids)
    _check_drafts(state, event.draft_token_ids)
    config, most = state.config, state.config.num_spec_tokens
    keeps_ahead = config.async_scheduling or Quirk.DRAFTS_BEHIND_UNKNOWN_TOKEN in config.quirks
    progress_of = state.progress.mutate()
    for request_id, drafts in event.draft_token_ids.items():
        if len(drafts) > most:
            raise InvalidEvent(
                "draft_token_ids",
                f"{len(drafts)} drafts for {request_id}",
                f"at most num_spec_tokens = {most}",
            )
        request, progress = state.requests[request_id], progress_of[request_id]
        kept: tuple[int, ...] = ()
        if keeps_ahead or _has_its_last_token(progress):
            kept = _kept_for_next_step(config, request, progress, drafts)
        progress_of[request_id] = evolve_progress(progress, spec_token_ids=kept)
    return evolve_state(state, progress=progress_of.finish())


def _has_its_last_token(progress: Progress) -> bool:
    """Tell whether a request runs and all that it computed has come back: drafts continue what is known."""
    is_ahead = progress.num_in_flight_tokens > progress.num_stale_output_tokens
    return progress.status is RequestStatus.RUNNING and not is_ahead


def _kept_for_next_step(
    config: SchedulerConfig, request: Request, progress: Progress, drafts: tuple[int, ...]
) -> tuple[int, ...]:
    if progress.is_prefill_chunk:
        return ()
    if config.runner_type is RunnerType.DIFFUSION:
        drafts = drafts[: canvas_width(request, config.num_spec_tokens)]
    return _allowed(request, progress, drafts)


def update_drafts_in_flight(
    state: SchedulerState, step_id: StepId, draft_token_ids: Mapping[RequestId, Iterable[int]]
) -> SchedulerState:
    """Put drafts into a step that is in flight [D-FLIGHT-01].

    Raises `InvalidEvent` for a step that is not in flight, a request that is not live or has no grammar
    yet, or what is neither a token id nor -1.
    """
    event = UpdateDraftsInFlight(step_id, draft_token_ids)
    _check_drafts(state, event.draft_token_ids)
    index = _find_in_flight(state, step_id)
    output = state.in_flight[index]
    scheduled = dict(output.scheduled_spec_token_ids)
    num_invalid = {}
    for request_id, drafts in event.draft_token_ids.items():
        num_placeholders = len(scheduled.get(request_id, ()))
        if num_placeholders == 0:
            continue
        request, progress = state.requests[request_id], state.progress[request_id]
        kept = _allowed(request, progress, drafts[:num_placeholders])
        num_missing = num_placeholders - len(kept)
        if num_missing:
            num_invalid[request_id] = num_missing
        scheduled[request_id] = (*kept, *(PADDING,) * num_missing)
    replaced = attrs.evolve(
        output,
        scheduled_spec_token_ids=OrderedMap.adopt(scheduled),
        num_invalid_spec_tokens=OrderedMap.adopt(num_invalid),
    )
    in_flight = (*state.in_flight[:index], replaced, *state.in_flight[index + 1 :])
    return evolve_state(state, in_flight=in_flight)


def _find_in_flight(state: SchedulerState, step_id: StepId) -> int:
    """Give the index of a step among those in flight, or refuse it."""
    step_ids = [output.step_id for output in state.in_flight]
    if step_id not in step_ids:
        allowed = ", ".join(map(str, step_ids)) or "nothing: no step is in flight"
        raise InvalidEvent("step_id", step_id, allowed)
    return step_ids.index(step_id)


def _check_drafts(state: SchedulerState, draft_token_ids: Mapping[RequestId, tuple[int, ...]]) -> None:
    for request_id, drafts in draft_token_ids.items():
        if request_id not in state.requests:
            raise InvalidEvent("draft_token_ids", request_id, "ids of live requests")
        for token_id in drafts:
            if type(token_id) is not int or not PADDING <= token_id <= MAX_TOKEN_ID:
                raise InvalidEvent("draft_token_ids", token_id, f"integers from -1 to {MAX_TOKEN_ID}")


def _allowed(request: Request, progress: Progress, drafts: tuple[int, ...]) -> tuple[int, ...]:
    """Give the drafts in front of the first that the grammar does not allow."""
    if not request.needs_grammar:
        return drafts
    drafts = strip_padding(drafts)
    if not drafts:
        return ()
    grammar = progress.grammar
    if grammar is None or isinstance(grammar, GrammarError):
        raise InvalidEvent("draft_token_ids", request.request_id, "requests that have their grammar")
    return drafts[: grammar.count_valid_tokens(drafts)]
