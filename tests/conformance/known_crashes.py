"""Where the reference itself gives up: an assertion of its own fails on events that it accepted.

We refuse such an event [U-TOK-08]. There is nothing to compare then, and no engine would go on. The history
ends there, and is counted.
"""

from kvsched_fp import Event, SchedulerState, Update

KNOWN_CRASH = "the reference gave up: a late result exceeds the stale share of the next request of that id"
"""An id was used again while its old step was in flight, and the new request was preempted.

The late result of the old request is charged to the new one, whose stale share is smaller, and the
reference asserts that a stale share never goes below zero.
"""


def is_known_crash(before: SchedulerState, event: Event, theirs: str, ours: str) -> bool:
    """Tell whether the reference is known to raise `theirs` at `event`, where we refuse it with `ours`."""
    if not isinstance(event, Update) or not theirs.startswith("AssertionError"):
        return False
    if not ours.startswith("InvalidEvent: step_id: "):
        return False
    return any(
        0 < before.progress[request_id].num_stale_output_tokens < num_tokens
        for request_id, num_tokens in before.in_flight[0].num_scheduled_tokens.items()
        if request_id in before.progress
    )
