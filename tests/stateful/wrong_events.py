"""Events that make no sense in a state, and the field that the refusal names."""

from collections.abc import Callable
from functools import partial
from typing import Any

from kvsched_fp import (
    AddRequest,
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
    for request_id in live_request_ids(state)[:1]:
        wrong.append(("request_id", partial(_add, request_id, [0])))
    if state.in_flight:
        for row in (STRANGER, *state.in_flight[0].num_scheduled_tokens):
            bad_tokens: list[Any] = [0] if row == STRANGER else [0, -1]
            wrong.append(("sampled_token_ids", partial(_update, oldest, {row: bad_tokens})))
            wrong.append(("sampled_token_ids", partial(_update, oldest, {row: [1.5]})))
    return wrong


def _add(request_id: str, prompt_token_ids: list[int]) -> AddRequest:
    return AddRequest(
        Request(
            request_id=RequestId(request_id),
            prompt_token_ids=prompt_token_ids,
            sampling_params=SamplingParams(max_tokens=1),
        )
    )


def _update(step_id: int, sampled: dict[Any, list[Any]] | None = None) -> Update:
    return Update(StepResult(step_id=StepId(step_id), sampled_token_ids=sampled or {}))
