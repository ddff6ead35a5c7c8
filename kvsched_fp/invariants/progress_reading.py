"""What the progress of a request says, as several predicates read it."""

from kvsched_fp.progress import Progress


def has_answered(progress: Progress) -> bool:
    """Tell whether a request has told its client something: the first output takes the statistics away."""
    return progress.prefill_stats is None
