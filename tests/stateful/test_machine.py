"""Run the machine, and see that nothing worth reaching was missed.

The runs come in small batches, each a search of its own: after ten runs Hypothesis spends most of its time
on variations of runs that it has seen, which find repetition but few new situations.
"""

import os

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from .machine import SchedulerMachine
from .situations import SITUATIONS

BATCH_SIZE = 9
"""Runs per batch; with fewer than ten, all but the first are drawn freely."""

NUM_BATCHES = {"dev": (10, 100), "ci": (30, 100), "deep": (1000, 1000)}
"""Per Hypothesis profile: the fewest batches, and the most for as long as a situation is missing."""


def test_random_histories_keep_every_invariant_and_reach_every_situation() -> None:
    """Random histories keep every invariant, and each situation comes up."""
    profile = os.environ.get("HYPOTHESIS_PROFILE", "dev")
    fewest, most = NUM_BATCHES[profile]
    SchedulerMachine.reached.clear()
    for batch in range(most):
        if batch >= fewest and not _missing():
            break
        _run(batch, always_the_same=profile == "ci")

    assert not _missing()


def _missing() -> list[str]:
    return [name for name in SITUATIONS if not SchedulerMachine.reached[name]]


def _run(batch: int, *, always_the_same: bool) -> None:
    # A class per batch, for its own seed; `derandomize` would give every batch the same one.
    machine = type(f"Batch{batch}", (SchedulerMachine,), {})
    config = settings(
        max_examples=BATCH_SIZE,
        stateful_step_count=12,
        deadline=None,
        derandomize=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    if always_the_same:
        machine, config = seed(batch)(machine), settings(config, database=None)
    run_state_machine_as_test(machine, settings=config)
