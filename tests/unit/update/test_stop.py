"""When an output ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp import RepetitionDetection, RequestStatus, SamplingParams
from kvsched_fp.update.stop import Stop, check_stop, has_repeating_tail

STOPPED = Stop(RequestStatus.FINISHED_STOPPED, None)
STOPPED_BY_7 = Stop(RequestStatus.FINISHED_STOPPED, 7)
CAPPED = Stop(RequestStatus.FINISHED_LENGTH_CAPPED, None)
REPEATED = Stop(RequestStatus.FINISHED_REPETITION, "repetition_detected")
PAIRS = RepetitionDetection(max_pattern_size=1)


@pytest.mark.parametrize(
    ("fields", "output", "num_tokens", "expected"),
    [
        # Everything holds: end of sequence wins; then the stop token, the length, the repetition.
        (
            {"eos_token_id": 7, "stop_token_ids": [7], "max_tokens": 2, "repetition_detection": PAIRS},
            (7, 7),
            64,
            STOPPED,
        ),
        (
            {"stop_token_ids": [7], "max_tokens": 2, "repetition_detection": PAIRS},
            (7, 7),
            64,
            STOPPED_BY_7,
        ),
        ({"max_tokens": 2, "repetition_detection": PAIRS}, (7, 7), 5, CAPPED),
        ({"max_tokens": 9, "repetition_detection": PAIRS}, (7, 7), 64, CAPPED),
        ({"max_tokens": 9, "repetition_detection": PAIRS}, (7, 7), 5, REPEATED),
        # Nothing holds.
        ({"max_tokens": 9, "eos_token_id": 1, "stop_token_ids": [2]}, (7, 7), 63, None),
        # Only the last token can end the output by itself.
        ({"max_tokens": 9, "eos_token_id": 7, "stop_token_ids": [8]}, (7, 8, 1), 5, None),
        # Without an end-of-sequence token there is none.
        ({"max_tokens": 9}, (0,), 5, None),
        # The lengths are exact.
        ({"max_tokens": 3}, (1, 2), 5, None),
        ({"max_tokens": 3}, (1, 2, 3), 5, CAPPED),
        ({"max_tokens": 9}, (1, 2), 64, CAPPED),
    ],
)
def test_first_check_that_holds_gives_the_reason(
    fields: dict[str, Any], output: tuple[int, ...], num_tokens: int, expected: Stop | None
) -> None:
    """[U-STOP-01, U-STOP-03] The order is end of sequence, stop tokens, length, repetition."""
    assert expected == check_stop(SamplingParams(**fields), output, num_tokens, 64)


@pytest.mark.parametrize(("min_tokens", "expected"), [(2, REPEATED), (3, None)])
def test_min_tokens_holds_repetition_back(min_tokens: int, expected: Stop | None) -> None:
    """[U-STOP-02] Repetition counts from the `min_tokens`-th output token on."""
    params = SamplingParams(max_tokens=9, min_tokens=min_tokens, repetition_detection=PAIRS)

    assert expected == check_stop(params, (5, 5), 9, 64)


@pytest.mark.parametrize(
    ("fields", "num_tokens", "expected"),
    [
        ({"eos_token_id": 5}, 9, STOPPED),
        ({"stop_token_ids": [5]}, 9, Stop(RequestStatus.FINISHED_STOPPED, 5)),
        ({}, 64, CAPPED),
    ],
)
def test_min_tokens_holds_nothing_else_back(
    fields: dict[str, Any], num_tokens: int, expected: Stop
) -> None:
    """[U-STOP-02] The other checks are made from the first token on."""
    params = SamplingParams(max_tokens=9, min_tokens=8, **fields)

    assert expected == check_stop(params, (5, 5), num_tokens, 64)


DETECTIONS = st.builds(
    lambda sizes, count: RepetitionDetection(
        max_pattern_size=max(sizes), min_pattern_size=min(sizes), min_count=count
    ),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.integers(2, 4),
)


@given(st.lists(st.integers(0, 1), max_size=14), DETECTIONS)
def test_repeating_tail_is_what_the_definition_says(
    token_ids: list[int], detection: RepetitionDetection
) -> None:
    """The tail repeats if it is some pattern of an allowed size, `min_count` times in a row."""
    sizes = range(max(detection.min_pattern_size, 1), detection.max_pattern_size + 1)
    count = detection.min_count
    by_definition = any(
        len(token_ids) >= size * count and token_ids[-size * count :] == token_ids[-size:] * count
        for size in sizes
    )

    assert by_definition == has_repeating_tail(token_ids, detection)


def test_detection_of_size_zero_is_off() -> None:
    """A longest pattern of 0 tokens turns the check off."""
    assert not has_repeating_tail([5] * 9, RepetitionDetection(max_pattern_size=0))
