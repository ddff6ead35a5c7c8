"""Faults in who is preempted, and in what comes of it for the rest of the step."""

import ast

from vllm.v1.core.sched.scheduler import Scheduler

from .planting import inside
from .shapes import call_instead, is_augmented, is_call_of, is_if_about, last_condition_only, remove

PREEMPTION = (
    inside(
        "a victim's tokens are not given back",
        Scheduler,
        "schedule",
        is_augmented(ast.Add, "token_budget"),
        remove,
    ),
    inside(
        "a victim's input positions are not given back",
        Scheduler,
        "schedule",
        is_augmented(ast.Add, "input_budget"),
        remove,
    ),
    inside(
        "a victim ahead of the cursor does not move it",
        Scheduler,
        "schedule",
        is_augmented(ast.Sub, "req_index"),
        remove,
    ),
    inside(
        "the victim is the most important one",
        Scheduler,
        "schedule",
        is_call_of("max"),
        call_instead("min"),
    ),
    inside(
        "requests are admitted in a step that preempted",
        Scheduler,
        "schedule",
        is_if_about("preempted_reqs"),
        last_condition_only,
    ),
)
