"""What must always hold, whatever happens: the invariants of a state and of a step.

    check_cheap(before, event, after, outcome)  # after every step
    check_full(state)                           # now and then, in tests and in model checking

`CATALOGUE` is the index in plain English. The predicates read values and call nothing of what they check.
"""

from kvsched_fp.invariants.catalogue import CATALOGUE, check_cheap, check_full, check_full_step
from kvsched_fp.invariants.entry import (
    Cost,
    Invariant,
    Scope,
    StateInvariant,
    Step,
    StepInvariant,
    observe,
)

__all__ = [
    "CATALOGUE",
    "Cost",
    "Invariant",
    "Scope",
    "StateInvariant",
    "Step",
    "StepInvariant",
    "check_cheap",
    "check_full",
    "check_full_step",
    "observe",
]
