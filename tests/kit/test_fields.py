"""Every field of a request decides something in the runs of the profile `ci`: who ignores it is found."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kvsched_fp import AddRequest, Event, RepetitionDetection, Request, SamplingParams
from kvsched_fp.testing import PureAdapter, SchedulersDiffer, scheduler_machine
from kvsched_fp.testing.checking import run_machine
from kvsched_fp.trace.codec import Told

Change = Callable[[Request], Request]


def fields_to(**values: Any) -> Change:
    """Give all requests these values."""
    return lambda request: attrs.evolve(request, **values)


def params_to(**values: Any) -> Change:
    """Give their sampling parameters these values."""
    return lambda request: attrs.evolve(
        request, sampling_params=attrs.evolve(request.sampling_params, **values)
    )


def detection_to(**values: Any) -> Change:
    """Give what detects repetitions these values, where it is there."""

    def change(request: Request) -> Request:
        detection = request.sampling_params.repetition_detection
        if detection is None:
            return request
        return params_to(repetition_detection=attrs.evolve(detection, **values))(request)

    return change


def hold_back_ends(request: Request) -> Request:
    """Ignore what ends the output where there is a minimum."""
    if request.sampling_params.min_tokens == 0:
        return request
    return params_to(eos_token_id=None, stop_token_ids=())(request)


REQUESTS: dict[str, Change] = {
    "arrival_time": fields_to(arrival_time=0.0),
    "cache_salt": fields_to(cache_salt=None),
    "canvas_length": fields_to(canvas_length=None),
    "client_index": fields_to(client_index=0),
    "lora": fields_to(lora=None),
    "max_denoise_steps": fields_to(max_denoise_steps=None),
    "needs_grammar": fields_to(needs_grammar=False),
    "pooling": fields_to(pooling=False),
    "priority": fields_to(priority=0),
    "resumable": fields_to(resumable=False),
}
PARAMS: dict[str, Change] = {
    "eos_token_id": params_to(eos_token_id=None),
    "max_tokens": params_to(max_tokens=99),
    "min_tokens": params_to(min_tokens=0),
    "repetition_detection": params_to(repetition_detection=None),
    "skip_reading_prefix_cache": params_to(skip_reading_prefix_cache=False),
    "stop_token_ids": params_to(stop_token_ids=()),
}
DETECTIONS: dict[str, Change] = {
    "max_pattern_size": detection_to(max_pattern_size=3),
    "min_count": detection_to(min_count=2),
    "min_pattern_size": detection_to(min_pattern_size=0),
}


class Changes(PureAdapter):
    """A scheduler that reads its requests in another way."""

    def __init__(self, change: Change) -> None:
        self._change = change

    def happen(self, event: Event) -> Told:
        """Do what is right with another request."""
        if isinstance(event, AddRequest):
            event = attrs.evolve(event, request=self._change(event.request))
        return super().happen(event)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [(Request, REQUESTS), (SamplingParams, PARAMS), (RepetitionDetection, DETECTIONS)],
)
def test_no_field_is_left_out(kind: type[Any], changes: dict[str, Change]) -> None:
    """Each field is ignored by somebody, but for those without which there is no request."""
    needed = {"request_id", "prompt_token_ids", "sampling_params"}
    names = {field.name for field in attrs.fields(kind)}

    assert names - needed == set(changes)


@pytest.mark.parametrize(
    "change",
    [
        *(pytest.param(change, id=name) for name, change in {**REQUESTS, **PARAMS, **DETECTIONS}.items()),
        hold_back_ends,
    ],
)
def test_who_ignores_a_field_is_found(change: Change) -> None:
    """A scheduler that does not look at a field of a request parts from the machine."""
    with pytest.raises(SchedulersDiffer):
        run_machine(scheduler_machine(Changes(change), trace_dir=None), max_seconds=0.0)
