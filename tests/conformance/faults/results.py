"""Faults in taking in what the model runner returned."""

from vllm.v1.core.sched.scheduler import Scheduler

from .planting import inside
from .shapes import first_condition_only, is_deletion_in, is_if_about, remove

RESULTS = (
    inside(
        "stale output that was to be dropped is delivered",
        Scheduler,
        "update_from_output",
        is_if_about("drop_stale_output"),
        remove,
    ),
    inside(
        "stale output that was to be delivered is dropped",
        Scheduler,
        "update_from_output",
        is_if_about("drop_stale_output"),
        first_condition_only,
    ),
    inside(
        "tokens behind the stop are delivered",
        Scheduler,
        "_update_request_with_output",
        is_deletion_in("new_token_ids"),
        remove,
    ),
)
