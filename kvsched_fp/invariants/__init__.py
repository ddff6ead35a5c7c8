"""What must always hold, whatever happens: the invariants of a state, of a step and of a whole run.

    check_cheap(before, event, after, outcome)  # after every step
    check_full(state)                           # now and then, in tests and in model checking

    run = RunChecker(state)                     # where a run begins
    run.check(before, event, after, outcome)    # after every step of it

All of them raise `InvariantViolation` for what is broken, and `InvalidInputError` for a wrong argument and
for a step that does not begin where the one before ended.

`CATALOGUE` is the index in plain English. The predicates read values and call nothing of what they check.
"""

from kvsched_fp.invariants.catalogue import (
    CATALOGUE,
    check_cheap,
    check_full,
    check_full_step,
    check_observed_cheap,
    check_observed_full,
)
from kvsched_fp.invariants.entry import (
    Cost,
    Invariant,
    RunInvariant,
    Scope,
    StateInvariant,
    Step,
    StepInvariant,
    observe,
)
from kvsched_fp.invariants.run_checker import RunChecker

__all__ = [
    "CATALOGUE",
    "Cost",
    "Invariant",
    "RunChecker",
    "RunInvariant",
    "Scope",
    "StateInvariant",
    "Step",
    "StepInvariant",
    "check_cheap",
    "check_full",
    "check_full_step",
    "check_observed_cheap",
    "check_observed_full",
    "observe",
]
