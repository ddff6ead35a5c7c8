"""What a client may ask for, and the life of a request."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp import (
    FinishReason,
    InvalidEvent,
    LoRA,
    OracleBug,
    RepetitionDetection,
    Request,
    RequestStatus,
    SamplingParams,
)
from kvsched_fp.request import (
    FINISH_REASONS,
    LEGAL_MOVES,
    MAX_TOKEN_ID,
    canvas_width,
    check_token_ids,
    is_finished,
    move,
)
from tests.unit.refusal import refused

PARAMS = SamplingParams(max_tokens=1)
TWO = SamplingParams(max_tokens=2)
STARTED = [RequestStatus.RUNNING, RequestStatus.PREEMPTED]
HELD = [RequestStatus.WAITING_FOR_GRAMMAR, RequestStatus.WAITING_FOR_INPUT]
LIVE = [RequestStatus.WAITING, *HELD, *STARTED]


def make(**fields: Any) -> Request:
    """Make a request from plain fields."""
    return Request(**{"request_id": "a", "prompt_token_ids": (1,), "sampling_params": PARAMS} | fields)


BAD = [
    (lambda: make(request_id=""), "request_id", "", "non-empty"),
    (lambda: make(request_id=7), "request_id", 7, "non-empty string"),
    (lambda: make(prompt_token_ids=()), "prompt_token_ids", (), "at least one"),
    (lambda: make(prompt_token_ids=[1, -1]), "prompt_token_ids", -1, "from 0 to"),
    (lambda: make(prompt_token_ids=[2**63]), "prompt_token_ids", 2**63, f"to {2**63 - 1}"),
    (lambda: make(prompt_token_ids=[1.0]), "prompt_token_ids", 1.0, "integers"),
    (lambda: make(prompt_token_ids=["1"]), "prompt_token_ids", "1", "integers"),
    (lambda: make(prompt_token_ids=[True]), "prompt_token_ids", True, "integers"),
    (lambda: make(prompt_token_ids=[None]), "prompt_token_ids", None, "integers"),
    (lambda: make(prompt_token_ids=5), "prompt_token_ids", 5, "one after another"),
    (lambda: make(prompt_token_ids="ab"), "prompt_token_ids", "a", "integers"),
    (lambda: make(sampling_params=None), "sampling_params", None, "a SamplingParams"),
    (lambda: make(arrival_time="now"), "arrival_time", "now", "a finite number"),
    (lambda: make(arrival_time=float("inf")), "arrival_time", float("inf"), "a finite number"),
    (lambda: make(arrival_time=10**400), "arrival_time", 10**400, "a finite number"),
    (lambda: make(priority=0.5), "priority", 0.5, "an integer"),
    (lambda: make(priority=None), "priority", None, "an integer"),
    (lambda: make(client_index=-1), "client_index", -1, ">= 0"),
    (lambda: make(client_index="0"), "client_index", "0", ">= 0"),
    (lambda: make(cache_salt=7), "cache_salt", 7, "a string or None"),
    (lambda: make(lora="fine"), "lora", "fine", "a LoRA or None"),
    (lambda: LoRA("", 1), "lora.name", "", "non-empty"),
    (lambda: LoRA("fine", 0), "lora.lora_id", 0, ">= 1"),
    (lambda: LoRA("fine", True), "lora.lora_id", True, ">= 1"),
    (lambda: LoRA("fine", 1, None), "lora.path", None, "a string"),
    (lambda: make(pooling=1), "pooling", 1, "True or False"),
    (lambda: make(pooling=True, sampling_params=TWO), "max_tokens", 2, "1, for a pooling request"),
    (lambda: make(needs_grammar=None), "needs_grammar", None, "True or False"),
    (lambda: make(resumable="no"), "resumable", "no", "True or False"),
    (lambda: make(canvas_length=0), "canvas_length", 0, ">= 1 or None"),
    (lambda: make(max_denoise_steps=1.5), "max_denoise_steps", 1.5, ">= 1 or None"),
    (lambda: SamplingParams(max_tokens=0), "max_tokens", 0, ">= 1"),
    (lambda: SamplingParams(max_tokens=1, eos_token_id=-1), "eos_token_id", -1, "from 0 to"),
    (lambda: SamplingParams(max_tokens=1, eos_token_id="</s>"), "eos_token_id", "</s>", "integers"),
    (lambda: SamplingParams(max_tokens=1, stop_token_ids=7), "stop_token_ids", 7, "one after another"),
    (lambda: SamplingParams(max_tokens=1, stop_token_ids=[-7]), "stop_token_ids", -7, "from 0 to"),
    (lambda: SamplingParams(max_tokens=1.5), "max_tokens", 1.5, ">= 1"),
    (lambda: SamplingParams(max_tokens=True), "max_tokens", True, ">= 1"),
    (lambda: SamplingParams(max_tokens=None), "max_tokens", None, ">= 1"),
    (lambda: SamplingParams(max_tokens=1, min_tokens=-1), "min_tokens", -1, ">= 0"),
    (lambda: SamplingParams(max_tokens=1, min_tokens="0"), "min_tokens", "0", ">= 0"),
    (lambda: SamplingParams(max_tokens=3, min_tokens=4), "min_tokens", 4, "at most max_tokens = 3"),
    (lambda: SamplingParams(max_tokens=1, repetition_detection=5), "repetition_detection", 5, "or None"),
    (
        lambda: SamplingParams(max_tokens=1, skip_reading_prefix_cache="x"),
        "skip_reading_prefix_cache",
        "x",
        "True or False",
    ),
    (lambda: RepetitionDetection(max_pattern_size=-1), "max_pattern_size", -1, ">= 0"),
    (lambda: RepetitionDetection(max_pattern_size="1"), "max_pattern_size", "1", "an integer"),
    (lambda: RepetitionDetection(max_pattern_size=1, min_count=2.0), "min_count", 2.0, "an integer"),
    (
        lambda: RepetitionDetection(max_pattern_size=2, min_pattern_size=3),
        "min_pattern_size",
        3,
        "<= max_pattern_size = 2",
    ),
    (lambda: RepetitionDetection(max_pattern_size=2, min_pattern_size=-1), "min_pattern_size", -1, "0 <="),
    (lambda: RepetitionDetection(max_pattern_size=2, min_count=1), "min_count", 1, ">= 2"),
]


@pytest.mark.parametrize(("build", "field", "value", "allowed"), BAD)
def test_bad_field_is_refused(build: Callable[[], object], field: str, value: object, allowed: str) -> None:
    """A field that makes no sense raises InvalidEvent with its name, its value and what is allowed."""
    with refused(InvalidEvent, field, value, allowed):
        build()


def test_arrival_that_is_not_a_number_is_refused() -> None:
    """NaN would be in no place of an order."""
    with pytest.raises(InvalidEvent, match="arrival_time: got nan"):
        make(arrival_time=float("nan"))


def test_extreme_values_are_accepted() -> None:
    """The least and the greatest values of each field are allowed."""
    request = make(prompt_token_ids=[0, MAX_TOKEN_ID])
    off = RepetitionDetection(max_pattern_size=0, min_count=0)

    assert 2 == request.num_prompt_tokens
    assert 0 == off.max_pattern_size


@pytest.mark.parametrize(("canvas_length", "expected"), [(None, 8), (3, 3), (9, 9)])
def test_canvas_is_as_wide_as_asked_for(canvas_length: int | None, expected: int) -> None:
    """A request without a wish gets the canvas of the configuration."""
    assert expected == canvas_width(make(canvas_length=canvas_length), 8)


def test_request_never_changes() -> None:
    """[M-REQ-01] A request is frozen, and keeps a copy of the prompt that it was made from."""
    prompt = [1, 2, 3]
    request = make(prompt_token_ids=prompt)
    prompt.append(4)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        request.priority = 1

    assert (1, 2, 3) == request.prompt_token_ids
    assert hash(make(prompt_token_ids=(1, 2, 3))) == hash(request)


@pytest.mark.parametrize("to", list(RequestStatus))
@pytest.mark.parametrize("status", list(RequestStatus))
def test_only_moves_in_the_table_are_made(status: RequestStatus, to: RequestStatus) -> None:
    """[M-REQ-02] A legal move gives the new status; any other is our bug."""
    if to in LEGAL_MOVES[status]:
        assert to is move(status, to)
    else:
        with pytest.raises(OracleBug, match=f"{status.name} -> {to.name}"):
            move(status, to)


def test_table_of_moves_is_the_life_of_a_request() -> None:
    """[M-REQ-02] A request waits, runs, is preempted and runs again, and may end at any time, once.

    A session that stopped waits again, for its turn or for input; so does what was held back, which a late
    result may stop (deviation D-05).
    """
    final = set(RequestStatus) - set(LIVE)
    stopped = {RequestStatus.WAITING, RequestStatus.WAITING_FOR_INPUT}

    assert set(RequestStatus) == set(LEGAL_MOVES)
    assert final | {RequestStatus.RUNNING} | stopped == LEGAL_MOVES[RequestStatus.WAITING]
    assert final | {RequestStatus.PREEMPTED} | stopped == LEGAL_MOVES[RequestStatus.RUNNING]
    assert final | {RequestStatus.RUNNING} | stopped == LEGAL_MOVES[RequestStatus.PREEMPTED]
    assert all(final | stopped == LEGAL_MOVES[status] for status in HELD)
    assert all(frozenset() == LEGAL_MOVES[status] for status in final)


def test_every_final_status_has_a_reason() -> None:
    """A final status is one with a reason; an ignored request is told as one cut by length."""
    assert {status for status in RequestStatus if is_finished(status)} == set(FINISH_REASONS)
    assert not any(map(is_finished, LIVE))
    assert FinishReason.LENGTH is FINISH_REASONS[RequestStatus.FINISHED_IGNORED]
    assert set(FinishReason) == set(FINISH_REASONS.values())


@given(st.lists(st.one_of(st.integers(-2, 2), st.integers(2**63 - 2, 2**63 + 1), st.booleans(), st.none())))
def test_token_ids_are_checked_one_by_one(token_ids: list[Any]) -> None:
    """The check refuses exactly the lists with something that is no integer in range, naming the first."""
    bad = [item for item in token_ids if type(item) is not int or not 0 <= item <= MAX_TOKEN_ID]
    if not bad:
        check_token_ids("field", token_ids)
        return
    with pytest.raises(InvalidEvent) as caught:
        check_token_ids("field", token_ids)

    assert (bad[0], type(bad[0])) == (caught.value.value, type(caught.value.value))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("repetition_detection", 5),
        ("skip_reading_prefix_cache", "x"),
        ("stop_token_ids", [[7]]),
        ("stop_token_ids", 7),
        ("eos_token_id", -1),
        ("min_tokens", 4),
    ],
)
def test_sampling_fields_of_another_type_are_refused(field: str, value: Any) -> None:
    """A wrong value is named at once, not in a later update."""
    fields: dict[str, Any] = {field: value}
    with pytest.raises(InvalidEvent) as caught:
        SamplingParams(max_tokens=3, **fields)

    assert field == caught.value.field
