"""Events that make no sense in a state, and the field that the refusal names."""

from collections.abc import Callable
from typing import Any

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    Request,
    RequestStatus,
    SamplingParams,
    SchedulerState,
    SetPauseState,
    StepResult,
    Update,
)
from kvsched_fp.ids import RequestId, StepId

STRANGER = RequestId("nobody")


def wrong_events(state: SchedulerState) -> list[tuple[str, Callable[[], Event]]]:
    """List the field to be named, and how to make the event; some cannot even be made."""
    oldest = state.in_flight[0].step_id if state.in_flight else state.current_step
    too_long = [0] * (state.config.max_model_len + 1)
    wrong: list[tuple[str, Callable[[], Event]]] = [
        ("prompt_token_ids", lambda: AddRequest(_request("long", too_long))),
        ("prompt_token_ids", lambda: AddRequest(_request("negative", [0, -1]))),
        ("prompt_token_ids", lambda: AddRequest(_request("empty", []))),
        ("request_ids", lambda: FinishRequests((STRANGER,))),
        ("request_ids", lambda: FinishRequests((*state.requests, STRANGER))),
        ("status", lambda: FinishRequests(None, RequestStatus.RUNNING)),
        ("step_id", lambda: _update(oldest + 1)),
        ("step_id", lambda: _update(oldest - 1)),
        ("pause_state", lambda: SetPauseState("paused")),  # type: ignore[arg-type]
        ("event", lambda: "schedule"),  # type: ignore[arg-type,return-value]
    ]
    for request_id in state.requests:
        wrong.append(("request_id", lambda twice=request_id: AddRequest(_request(twice, [0]))))
        break
    if state.in_flight:
        wrong.append(("sampled_token_ids", lambda: _update(oldest, {STRANGER: [0]})))
        for request_id in state.in_flight[0].num_scheduled_tokens:
            wrong.append(("sampled_token_ids", lambda row=request_id: _update(oldest, {row: [0, -1]})))
            wrong.append(("sampled_token_ids", lambda row=request_id: _update(oldest, {row: [1.5]})))
    return wrong


def _request(request_id: str, prompt_token_ids: list[int]) -> Request:
    return Request(
        request_id=RequestId(request_id),
        prompt_token_ids=prompt_token_ids,
        sampling_params=SamplingParams(max_tokens=1),
    )


def _update(step_id: int, sampled: dict[Any, list[Any]] | None = None) -> Update:
    return Update(StepResult(step_id=StepId(step_id), sampled_token_ids=sampled or {}))
