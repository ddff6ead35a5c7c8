"""Run the machine, and see that nothing worth reaching was missed.

The runs come in small batches, each a search of its own: after ten runs Hypothesis spends most of its time
on variations of runs that it has seen, which find repetition but few new situations.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from .machine import STRICT_RULES, SchedulerMachine, StrictMachine
from .situations import SITUATIONS

BATCH_SIZE = 9
"""Runs per batch; with fewer than ten, all but the first are drawn freely."""

EXAMPLES_PER_BATCH = 4
"""So many examples of the Hypothesis profile, however it was chosen, ask for one batch."""

FIRST_BATCHES = {"S-PRE-07": 0, "S-PRE-08": 13, "S-PRE-09": 26}
"""Where to look first for a history in which a rule decides; other versions of Hypothesis draw others."""

MOST_BATCHES = 100
"""Batches to go on for as long as a situation is missing."""


def test_random_histories_keep_every_invariant_and_reach_every_situation() -> None:
    """Random histories keep every invariant, and each situation comes up."""
    fewest = num_batches(settings())
    SchedulerMachine.reached.clear()
    for batch in range(max(fewest, MOST_BATCHES)):
        if batch >= fewest and not _missing():
            break
        _run(batch, SchedulerMachine, always_the_same=settings().derandomize)

    assert not _missing()


def test_random_histories_without_quirks_keep_every_invariant_and_end() -> None:
    """Without the quirks, whatever was asked for ends, and requests wait for blocks and give way."""
    StrictMachine.reached.clear()
    for batch in range(num_batches(settings())):
        _run(batch, StrictMachine, always_the_same=settings().derandomize)


@pytest.mark.parametrize("rule_id", sorted(STRICT_RULES))
def test_each_rule_without_quirks_is_reached(rule_id: str) -> None:
    """The rules that only come up without the quirks do so in the same histories each time."""
    StrictMachine.reached.clear()
    for batch in (FIRST_BATCHES[rule_id], *range(MOST_BATCHES)):
        _run(batch, StrictMachine, always_the_same=True)
        if StrictMachine.reached[rule_id]:
            break

    assert StrictMachine.reached[rule_id]


@pytest.mark.parametrize(
    ("profile", "expected"), [("dev", 10), ("landing", 10), ("ci", 50), ("deep", 1250)]
)
def test_each_profile_asks_for_its_number_of_batches(profile: str, expected: int) -> None:
    """The number follows from the profile's own settings."""
    assert expected == num_batches(settings.get_profile(profile))


PROBE = """
from hypothesis import settings
from tests.stateful.test_machine import num_batches
def test_probe(): print(f"<{num_batches(settings())}>")
"""


@pytest.mark.parametrize(("option", "variable"), [("--hypothesis-profile=ci", "dev"), ("-q", "ci")])
def test_a_profile_is_chosen_by_option_or_variable(tmp_path: Path, option: str, variable: str) -> None:
    """`--hypothesis-profile` and, without it, HYPOTHESIS_PROFILE reach the number of batches."""
    probe = tmp_path / "test_probe.py"
    probe.write_text(PROBE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "tests.conftest", option, probe],
        env={**os.environ, "HYPOTHESIS_PROFILE": variable, "PYTHONPATH": ":".join(sys.path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "<50>" in done.stdout


def num_batches(profile: settings) -> int:
    """Give the fewest batches that a profile asks for."""
    return profile.max_examples // EXAMPLES_PER_BATCH


def _missing() -> list[str]:
    return [name for name in SITUATIONS if not SchedulerMachine.reached[name]]


def _run(batch: int, base: type[SchedulerMachine], *, always_the_same: bool) -> None:
    # A class per batch, for its own seed; `derandomize` would give every batch the same one.
    machine = type(f"{base.__name__}{batch}", (base,), {})
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
