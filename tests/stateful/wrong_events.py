"""Events that make no sense in a state, and the field that the refusal names."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kvsched_fp import (
    AddRequest,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    Request,
    RequestStatus,
    SamplingParams,
    SchedulerState,
    SetPauseState,
    StepResult,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.grammar import AutomatonGrammar
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.state import live_request_ids

STRANGER = RequestId("nobody")


def wrong_events(state: SchedulerState) -> list[tuple[str, Callable[[], Any]]]:
    """List the field to be named, and how to make the event; some cannot even be made."""
    oldest = state.in_flight[0].step_id if state.in_flight else state.current_step
    too_long = [0] * (state.config.max_model_len + 1)
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("prompt_token_ids", partial(_add, "long", too_long)),
        ("prompt_token_ids", partial(_add, "negative", [0, -1])),
        ("prompt_token_ids", partial(_add, "empty", [])),
        ("request_ids", partial(FinishRequests, (STRANGER,))),
        ("request_ids", partial(FinishRequests, (*live_request_ids(state), STRANGER))),
        ("status", partial(FinishRequests, None, RequestStatus.RUNNING)),
        ("step_id", partial(_update, oldest + 1)),
        ("step_id", partial(_update, oldest - 1)),
        ("pause_state", partial(SetPauseState, "paused")),  # type: ignore[arg-type]
        ("event", partial(str, "schedule")),
    ]
    wrong += _wrong_about_requests(state)
    if state.in_flight:
        for row in (STRANGER, *state.in_flight[0].num_scheduled_tokens):
            bad_tokens: list[Any] = [0] if row == STRANGER else [0, -1]
            wrong.append(("sampled_token_ids", partial(_update, oldest, {row: bad_tokens})))
            wrong.append(("sampled_token_ids", partial(_update, oldest, {row: [1.5]})))
    return wrong


def _wrong_about_requests(state: SchedulerState) -> list[tuple[str, Callable[[], Any]]]:
    """List events that name the wrong requests, or say too much of them."""
    config, oldest = state.config, state.in_flight[0] if state.in_flight else None
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("request_id", partial(GrammarFailed, STRANGER, "no such grammar")),
        ("draft_token_ids", partial(UpdateDrafts, {STRANGER: ()})),
        ("step_id", partial(UpdateDraftsInFlight, StepId(state.current_step + 1), {})),
    ]
    for request_id in live_request_ids(state):
        request, progress = state.requests[request_id], state.progress[request_id]
        too_many = [0] * (config.num_spec_tokens + 1)
        wrong.append(("draft_token_ids", partial(UpdateDrafts, {request_id: too_many})))
        wrong.append(("draft_token_ids", partial(UpdateDrafts, {request_id: [-2]})))
        if not request.resumable or progress.chunks[-1:] == (None,):
            wrong.append(("request_id", partial(_add, request_id, [0], pooling=request.pooling)))
        if progress.status is not RequestStatus.WAITING_FOR_GRAMMAR or progress.grammar is not None:
            wrong.append(("request_id", partial(GrammarReady, request_id, AutomatonGrammar(((),)))))
        if oldest and request_id in oldest.num_scheduled_tokens and not request.pooling:
            wrong.append(("pooled_request_ids", partial(_update, oldest.step_id, pooled=[request_id])))
    for request_id, drafts in oldest.scheduled_spec_token_ids.items() if oldest else ():
        too_many = [0] * (len(drafts) + config.num_sampled_tokens_per_step + 1)
        wrong.append(("sampled_token_ids", partial(_update, oldest.step_id, {request_id: too_many})))
    return wrong


def _add(request_id: str, prompt_token_ids: list[int], *, pooling: bool = False) -> AddRequest:
    return AddRequest(
        Request(
            request_id=RequestId(request_id),
            prompt_token_ids=prompt_token_ids,
            sampling_params=SamplingParams(max_tokens=1),
            pooling=pooling,
        )
    )


def _update(
    step_id: int, sampled: dict[Any, list[Any]] | None = None, pooled: Sequence[RequestId] = ()
) -> Update:
    result = StepResult(
        step_id=StepId(step_id), sampled_token_ids=sampled or {}, pooled_request_ids=tuple(pooled)
    )
    return Update(result)
