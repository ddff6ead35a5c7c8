"""When a run checks the invariants, and how many it checked.

| mode      | after every event                        | at every n-th event and at the end |
|-----------|------------------------------------------|------------------------------------|
| `every`   | all                                      |                                    |
| `sampled` | the cheap ones, and those of a whole run | all of the state                   |
| `off`     |                                          |                                    |

Cheap ones cost what the event touched; the others walk the whole state.
"""

import enum
from typing import Protocol

from kvsched_fp.errors import InvariantViolation
from kvsched_fp.events import Event
from kvsched_fp.invariants import (
    RunChecker,
    check_full,
    check_observed_cheap,
    check_observed_full,
    observe,
)
from kvsched_fp.machine import Outcome
from kvsched_fp.state import SchedulerState

DEFAULT_INTERVAL = 100
"""Events from one full check to the next."""


class CheckMode(enum.Enum):
    """How much is checked."""

    EVERY = "every"
    """Everything after every event."""
    SAMPLED = "sampled"
    """What is cheap after every event, the whole state now and then."""
    OFF = "off"
    """Nothing."""


class Happened(Protocol):
    """One event, and what it did: of a run (`Played`) or of a trace (`Replayed`)."""

    @property
    def event(self) -> Event:
        """What happened."""

    @property
    def before(self) -> SchedulerState:
        """The state that it happened to."""

    @property
    def after(self) -> SchedulerState:
        """The state that it made."""

    @property
    def outcome(self) -> Outcome:
        """What came of it besides the state."""

    def when(self) -> str:
        """Say when or where it happened."""


class Checker:
    """Checks the events of one run or trace."""

    def __init__(self, mode: CheckMode, interval: int) -> None:
        self.num_checked = 0
        """Invariants checked so far; one that is checked after two events counts twice."""
        self._mode = mode
        self._interval = 1 if mode is CheckMode.EVERY else interval
        self._check_step = check_observed_full if mode is CheckMode.EVERY else check_observed_cheap
        self._run: RunChecker | None = None
        self._num_events = 0
        self._unchecked: Happened | None = None

    def check(self, happened: Happened) -> None:
        """Check one event. Raises `InvariantViolation`, with the number of the event in the evidence."""
        if self._mode is CheckMode.OFF:
            return
        self._num_events += 1
        if self._run is None:
            self._run = RunChecker(happened.before)
        seen = observe(happened.before, happened.event, happened.after, happened.outcome)
        try:
            # The state first: in the order of the catalogue, what is told is the first that is broken.
            if self._num_events % self._interval == 0:
                self.num_checked += check_full(happened.after)
                self._unchecked = None
            else:
                self._unchecked = happened
            self.num_checked += self._check_step(seen)
            self.num_checked += self._run.check_observed(seen)
        except InvariantViolation as violation:
            raise self._located(violation, happened) from violation

    def finish(self) -> None:
        """Check the last state in full, if that was not done."""
        if self._unchecked is None:
            return
        try:
            self.num_checked += check_full(self._unchecked.after)
        except InvariantViolation as violation:
            raise self._located(violation, self._unchecked) from violation

    def _located(self, violation: InvariantViolation, happened: Happened) -> InvariantViolation:
        kind = type(happened.event).__name__
        return InvariantViolation(
            violation.invariant_id,
            f"{violation.evidence} (event {self._num_events}, {kind}, step {happened.after.current_step}, "
            f"{happened.when()})",
        )
