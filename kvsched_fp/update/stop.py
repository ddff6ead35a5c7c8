"""When an output ends.

Rules
-----
[U-STOP-01] The checks come in this order, after every single token: end of sequence, stop tokens, length
    (`max_tokens` or `max_model_len`), repetition. The first that holds gives the status.
[U-STOP-02] `min_tokens` holds back the repetition check only.
[U-STOP-03] A stop token that is not the end of sequence is the stop reason.

Upstream: `v1/core/sched/utils.py::check_stop`, `check_sequence_repetition`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvsched_fp.request import RepetitionDetection, RequestStatus, SamplingParams


class Stop(NamedTuple):
    """How an output ended."""

    status: RequestStatus
    """A final status."""
    reason: int | str | None
    """The stop token, or "repetition_detected", or None."""


def check_stop(
    params: SamplingParams, output_token_ids: Sequence[int], num_tokens: int, max_model_len: int
) -> Stop | None:
    """Tell whether the last of `output_token_ids` ends the output [U-STOP-01].

    `num_tokens` are known with it.
    """
    last_token_id = output_token_ids[-1]
    if last_token_id == params.eos_token_id:
        return Stop(RequestStatus.FINISHED_STOPPED, None)
    if last_token_id in params.stop_token_ids:
        return Stop(RequestStatus.FINISHED_STOPPED, last_token_id)  # [U-STOP-03]
    if num_tokens >= max_model_len or len(output_token_ids) >= params.max_tokens:
        return Stop(RequestStatus.FINISHED_LENGTH_CAPPED, None)
    detection = params.repetition_detection
    if (
        detection is not None
        and len(output_token_ids) >= params.min_tokens  # [U-STOP-02]
        and has_repeating_tail(output_token_ids, detection)
    ):
        return Stop(RequestStatus.FINISHED_REPETITION, "repetition_detected")
    return None


def has_repeating_tail(token_ids: Sequence[int], detection: RepetitionDetection) -> bool:
    """Tell whether some pattern stands `min_count` times in a row at the end of `token_ids`."""
    if detection.max_pattern_size == 0:
        return False
    count = detection.min_count
    longest = min(detection.max_pattern_size, len(token_ids) // count)
    return any(
        _repeats(token_ids, size, count) for size in range(max(detection.min_pattern_size, 1), longest + 1)
    )


def _repeats(token_ids: Sequence[int], size: int, count: int) -> bool:
    """Tell whether the last `size * count` tokens have the period `size`."""
    end = len(token_ids)
    start = end - size * count
    return all(token_ids[index] == token_ids[index + size] for index in range(start, end - size))
