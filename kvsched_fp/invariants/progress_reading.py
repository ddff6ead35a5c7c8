"""What the progress of a request says, as several predicates read it."""

from collections.abc import Sequence

from kvsched_fp.progress import Progress
from kvsched_fp.request import RepetitionDetection


def has_answered(progress: Progress) -> bool:
    """Tell whether a request has told its client something: the first output takes the statistics away."""
    return progress.prefill_stats is None


def repeats_itself(token_ids: Sequence[int], detection: RepetitionDetection) -> bool:
    """Tell whether an output ends with a pattern, written down as often as `detection` asks."""
    count, longest = detection.min_count, detection.max_pattern_size
    tail = list(token_ids)[-longest * count :] if longest else []
    return any(
        tail[-size * count :] == tail[-size:] * count
        for size in range(max(detection.min_pattern_size, 1), longest + 1)
    )
