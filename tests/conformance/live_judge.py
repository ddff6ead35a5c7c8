"""Judging a history by playing it through the real scheduler: for `kvsched_fp.trace.shrink`.

Two questions can be asked of it: whether an *outcome* differs, which is what a trace can tell, or whether
*anything* does, as the suite compares it, the whole state included.

Importing this module imports vLLM.
"""

from collections.abc import Callable, Sequence

from kvsched_fp import Event, FinishRequests, SchedulerConfig, initial_state, step
from kvsched_fp.trace.codec import encode_told, what_was_told
from kvsched_fp.trace.shrink import Judge
from tests.traces.recorder import RecordedScheduler

from .duel import play_event
from .known_crashes import is_known_crash
from .oracle import OracleScheduler
from .set_order import in_set_order

JudgeOf = Callable[[SchedulerConfig], Judge]
"""Makes the judge of histories under a configuration."""


def judge_outcomes(config: SchedulerConfig) -> Judge:
    """Judge by outcomes alone: what a trace shows. A crash of the reference is none."""

    def judge(events: Sequence[Event]) -> int | None:
        recorded = _build(config)
        if recorded is None or not _keeps_order(events):
            return None
        after = initial_state(config)
        for number, event in enumerate(events, start=1):
            after, outcome = step(after, event)
            try:
                told = recorded.happen(event)
            except Exception:  # whatever the reference raises, no record can tell
                return None
            if encode_told(told) != encode_told(what_was_told(event, after, outcome)):
                return number
        return None

    return judge


def judge_everything(config: SchedulerConfig) -> Judge:
    """Judge by outcome and state, as the suite does; a crash of the reference alone is a difference."""

    def judge(events: Sequence[Event]) -> int | None:
        reference = _build(config)
        if reference is None or not _keeps_order(events):
            return None
        oracle = OracleScheduler(config)
        for number, event in enumerate(events, start=1):
            before = oracle.state
            left, right = play_event(reference, event), play_event(oracle, event)
            if is_known_crash(before, event, left.get("raised", ""), right.get("raised", "")):
                return None
            if repr(left) != repr(right):
                return number
            if "raised" in left:
                return None
        return None

    return judge


def _build(config: SchedulerConfig) -> RecordedScheduler | None:
    """Build the real scheduler, unless it refuses the configuration."""
    try:
        return RecordedScheduler(config)
    except ValueError:
        return None


def _keeps_order(events: Sequence[Event]) -> bool:
    """Tell whether the reference ends several requests in the order that the events say: `set_order.py`."""
    return all(
        event.request_ids is None or in_set_order(event.request_ids) == event.request_ids
        for event in events
        if isinstance(event, FinishRequests)
    )
