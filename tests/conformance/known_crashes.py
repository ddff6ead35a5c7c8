"""Where the reference itself gives up, on events that it accepted: there is nothing to compare then.

The history ends there, and is counted. Nearly all come of an id that is used again while its old step is in
flight (deviation D-05), which no engine does.

| case | the reference raises | here |
|---|---|---|
| `KNOWN_CRASH`, `LATE_TOKENS`, `LATE_STOP` | AssertionError | the result is refused |
| `NO_GRAMMAR_YET` | AttributeError | the result is refused |
| `DRAFTS_IN_FLIGHT` | AssertionError | the event is refused (D-14) |
| `OVERGROWN_SESSION`, `LATE_RESULT` | IndexError | the blocks that there are are reported (D-11, D-05) |
| `AFTER_A_LATE_RESULT` | AssertionError | the session goes on (D-05) |
"""

from collections.abc import Iterator

from kvsched_fp import Event, Schedule, SchedulerState, Update
from kvsched_fp.progress import Progress

KNOWN_CRASH = "the reference gave up: a late result exceeds the stale share of the next request of that id"
"""An id was used again while its old step was in flight, and the new request was preempted.

The late result of the old request is charged to the new one, whose stale share is smaller, and the
reference asserts that a stale share never goes below zero.
"""


OVERGROWN_SESSION = "the reference gave up: blocks of a session beyond max_model_len are reported"
"""A session may take input beyond `max_model_len`; there are no blocks for it, but they count as full.

Reporting them to the outside, the reference reads past the end of the block table (deviation D-11).
"""

DRAFTS_IN_FLIGHT = "the reference gave up: a session went on with drafts in flight"
"""A session stopped while a later step of it, which only drafts had made possible, was in flight.

No engine drafts for a request before its step has come back. What that step counted as computed is not
known, and the reference asserts that it is; ours refuses the event.
"""

NO_GRAMMAR_YET = "the reference gave up: a late result for the next request of that id, without its grammar"
"""As with `KNOWN_CRASH`, a late result is charged to the next request of its id; ours refuses it."""

LATE_RESULT = "the reference gave up: blocks beyond the table are reported, for a late result of a used id"
"""As with `KNOWN_CRASH`, but the new request was not preempted: less than nothing is in flight for it.

More blocks count as full than it has; reporting them to the outside, the reference reads past the end of
the block table (deviation D-05).
"""

LATE_TOKENS = "the reference gave up: a late result exceeds the placeholders of the next request of that id"
"""As with `KNOWN_CRASH`, with placeholders: the reference asserts that their number stays above zero."""

LATE_STOP = "the reference gave up: a late result stops the next session of that id before it has begun"
"""As with `KNOWN_CRASH`: what it cuts off was never computed, and the reference asserts that it was."""

AFTER_A_LATE_RESULT = "the reference gave up: a request that an earlier request's result was charged to"
"""Some events later: a session that it stopped is admitted, and holds blocks without computed tokens.

What the reference asserts then does not hold; ours goes on (deviation D-05).
"""

KNOWN_CRASHES = (
    KNOWN_CRASH,
    OVERGROWN_SESSION,
    DRAFTS_IN_FLIGHT,
    NO_GRAMMAR_YET,
    LATE_RESULT,
    LATE_TOKENS,
    LATE_STOP,
    AFTER_A_LATE_RESULT,
)


def is_known_crash(before: SchedulerState, event: Event, raised: str, refused: str = "") -> str | None:
    """Give which of the known crashes the reference suffered when it raised `raised` at `event`, or None.

    `refused` is what our side raised.
    """
    by_kind = {
        "AssertionError": _failed_assertion,
        "AttributeError": _without_grammar,
        "IndexError": _past_the_table,
    }
    judge = by_kind.get(raised.partition(":")[0])
    return None if judge is None else judge(before, event, refused)


def _failed_assertion(before: SchedulerState, event: Event, refused: str) -> str | None:
    if "a session with at most" in refused:
        return DRAFTS_IN_FLIGHT
    if "so many placeholders are left for it" in refused:
        return LATE_TOKENS if _has_late_row(before, event) else None
    if "no more tokens behind the stop of a session" in refused:
        return LATE_STOP if _has_late_row(before, event) else None
    is_stale = any(
        0 < progress.num_stale_output_tokens < num_tokens
        for progress, num_tokens in _rows_that_come_back(before, event)
    )
    if is_stale and refused.startswith("InvalidEvent: step_id: "):
        return KNOWN_CRASH
    is_aftermath = isinstance(event, Schedule) and not refused and _was_charged_late(before)
    return AFTER_A_LATE_RESULT if is_aftermath else None


def _without_grammar(_before: SchedulerState, _event: Event, refused: str) -> str | None:
    return NO_GRAMMAR_YET if "requests that have their grammar" in refused else None


def _past_the_table(before: SchedulerState, event: Event, _refused: str) -> str | None:
    if not before.config.enable_kv_cache_events:
        return None
    longest = max((request.num_prompt_tokens for request in before.requests.values()), default=0)
    if longest > before.config.max_model_len:
        return OVERGROWN_SESSION
    return LATE_RESULT if _has_late_row(before, event) else None


def _has_late_row(before: SchedulerState, event: Event) -> bool:
    """Tell whether tokens come back that are not in flight for the request of that id."""
    return isinstance(event, Update) and _was_charged_late(before)


def _was_charged_late(before: SchedulerState) -> bool:
    """Tell whether less is in flight for some request than its id has in the steps in flight."""
    return any(
        progress.num_in_flight_tokens
        < sum(output.num_scheduled_tokens.get(request_id, 0) for output in before.in_flight)
        for request_id, progress in before.progress.items()
    )


def _rows_that_come_back(before: SchedulerState, event: Event) -> Iterator[tuple[Progress, int]]:
    if not isinstance(event, Update):
        return
    for request_id, num_tokens in before.in_flight[0].num_scheduled_tokens.items():
        progress = before.progress.get(request_id)
        if progress is not None:
            yield progress, num_tokens
