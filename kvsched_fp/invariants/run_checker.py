"""Checking what holds of a whole run, event by event."""

from typing import Any

import attrs

from kvsched_fp.errors import InvalidInputError, InvariantViolation
from kvsched_fp.events import Event
from kvsched_fp.invariants.arguments import require_arguments, require_state, require_step
from kvsched_fp.invariants.entry import ALL_EVENTS, Step, observe
from kvsched_fp.invariants.evidence import find_evidence
from kvsched_fp.invariants.on_run import RUN_INVARIANTS
from kvsched_fp.state import SchedulerState


class RunChecker:
    """Follows one run and remembers of it what the run invariants need; each entry says how much that is.

    It has to be told of every event of the run, in order: each begins in the state that the one before
    made, or in an equal one. An event that the machine refused did not happen. Once something broken was
    found, what is remembered is worth nothing any more.

    A step that begins in another state and a wrong argument are refused with `InvalidInputError`; the run
    goes on as if nothing had been said.
    """

    def __init__(self, state: SchedulerState) -> None:
        """Begin in `state`: where nothing has happened, or anywhere; what it holds is taken as given."""
        require_state("state", state)
        self._latest = state
        self._num_steps = 0
        memories = [(entry, entry.start(state)) for entry in RUN_INVARIANTS]
        self._checks: dict[type[Event], list[tuple[str, Any, Any]]] = {
            kind: [
                (entry.invariant_id, entry.predicate, memory)
                for entry, memory in memories
                if kind in entry.events
            ]
            for kind in ALL_EVENTS
        }

    def check(self, before: SchedulerState, event: Event, after: SchedulerState, outcome: object) -> int:
        """Take the next event down and check it; give the number of invariants checked.

        Raises `InvariantViolation` for the first that is broken.
        """
        require_arguments(before, event, after, outcome)
        return self.check_observed(observe(before, event, after, outcome))

    def check_observed(self, step: Step) -> int:
        """Do the same for a step that is put together already."""
        broken = self.find_broken(step)
        if broken:
            raise InvariantViolation(*next(iter(broken.items())))
        return len(self._checks[type(step.event)])

    def find_broken(self, step: Step) -> dict[str, str]:
        """Take the next step down; give the evidence against each invariant that it breaks, by id."""
        require_step(step)
        if step.before is not self._latest:
            self._require_equal(step.before)
        self._latest = step.after
        self._num_steps += 1
        broken = {}
        for invariant_id, predicate, memory in self._checks[type(step.event)]:
            evidence = find_evidence(predicate, memory, step)
            if evidence is not None:
                broken[invariant_id] = evidence
        return broken

    def _require_equal(self, before: SchedulerState) -> None:
        """Refuse a step that begins in another state than the run has come to."""
        if before == self._latest:
            return
        known = f"that step {self._num_steps} made" if self._num_steps else "that the run begins in"
        differing = [
            field.name
            for field in attrs.fields(SchedulerState)
            if getattr(before, field.name) != getattr(self._latest, field.name)
        ]
        raise InvalidInputError(
            f"before of step {self._num_steps + 1}",
            before,
            f"the state {known}; these differ: {', '.join(differing)}",
        )
