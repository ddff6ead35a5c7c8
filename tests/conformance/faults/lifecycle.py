"""Faults in how requests are ended from outside, and in resets."""

from vllm.v1.core.sched.scheduler import Scheduler

from .planting import around, inside
from .shapes import is_call_on, is_statement_calling, remove, with_argument

LIFECYCLE = (
    inside(
        "an ended request is not told to the workers",
        Scheduler,
        "_free_request",
        is_statement_calling("finished_req_ids", "add"),
        remove,
    ),
    inside(
        "a reset preempts the first before the last",
        Scheduler,
        "reset_prefix_cache",
        is_call_on("running", "pop"),
        with_argument(0),
    ),
    inside(
        "a reset leaves the last batch known",
        Scheduler,
        "reset_prefix_cache",
        is_statement_calling("prev_step_scheduled_req_ids", "clear"),
        remove,
    ),
    around(
        "output in flight survives a reset",
        Scheduler,
        "_preempt_request",
        lambda original: lambda self, request, timestamp, **_: original(self, request, timestamp),
    ),
)
