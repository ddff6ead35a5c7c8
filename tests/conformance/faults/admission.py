"""Faults in which waiting requests are admitted."""

from vllm.v1.core.sched.scheduler import Scheduler

from .planting import after_init, inside
from .shapes import is_if_about, remove


def _allow_one_less(scheduler: Scheduler) -> None:
    scheduler.max_num_active_reqs = max(1, scheduler.max_num_active_reqs - 1)


ADMISSION = (
    inside(
        "stale output is not waited for",
        Scheduler,
        "schedule",
        is_if_about("num_stale_output_tokens"),
        remove,
    ),
    after_init("one request less may be active", Scheduler, _allow_one_less),
    inside(
        "a prompt that must stay whole is cut",
        Scheduler,
        "schedule",
        is_if_about("enable_chunked_prefill"),
        remove,
    ),
)
