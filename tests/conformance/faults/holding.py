"""Faults in when prompts are held back, and in what a pause stops."""

from vllm.v1.core.sched.scheduler import Scheduler

from .planting import after_init, inside
from .shapes import always, is_assignment_to, is_comparison_with, is_if_about, remove


def _shorten_interval(scheduler: Scheduler) -> None:
    scheduler.local_prefill_interval = max(1, scheduler.local_prefill_interval - 1)


HOLDING = (
    inside(
        "lack of capacity is not noted",
        Scheduler,
        "schedule",
        is_assignment_to("prefill_capacity_bound"),
        remove,
    ),
    after_init("the prefill interval is one step short", Scheduler, _shorten_interval),
    inside(
        "requests are admitted while new ones are paused",
        Scheduler,
        "schedule",
        is_comparison_with("UNPAUSED"),
        always,
    ),
    inside(
        "running requests go on while everything is paused",
        Scheduler,
        "schedule",
        is_if_about("PAUSED_ALL"),
        remove,
        of_places=2,
    ),
)
