"""Faults in what a step may compute, and in the phase of the running requests."""

from vllm.v1.core.sched.scheduler import Scheduler

from .planting import after_init, inside
from .shapes import (
    compare_with,
    is_assignment_to,
    is_comparison_with,
    is_if_zero,
    leave_the_loop,
    left_side_only,
)


def _forget_sampled_token(scheduler: Scheduler) -> None:
    scheduler.num_sampled_tokens_per_step = 0


BUDGETS = (
    after_init("no room is kept for the sampled token", Scheduler, _forget_sampled_token),
    inside(
        "a lone request is cut by the threshold",
        Scheduler,
        "schedule",
        is_comparison_with("num_eligible_reqs"),
        compare_with(0),
    ),
    inside(
        "waiting requests have no share of the adaptive threshold",
        Scheduler,
        "schedule",
        is_assignment_to("num_eligible_reqs"),
        left_side_only,
    ),
    inside(
        "a request with nothing to compute ends the running phase",
        Scheduler,
        "schedule",
        is_if_zero("num_new_tokens"),
        leave_the_loop,
        of_places=3,
    ),
)
