"""Playing histories through one import of the package, with the invariants checked after every event.

This module is imported again with every fault that is planted (`planting.py`), so what it imports is the
package with the fault.
"""

from collections.abc import Iterator, Sequence

import attrs

from kvsched_fp import (
    AddRequest,
    Event,
    InvalidConfig,
    InvalidEvent,
    InvariantViolation,
    SchedulerConfig,
    initial_state,
    step,
)
from kvsched_fp.invariants import (
    CATALOGUE,
    RunChecker,
    StateInvariant,
    Step,
    StepInvariant,
    check_full,
    check_observed_full,
    observe,
)
from kvsched_fp.invariants.evidence import Stumble, find_evidence
from kvsched_fp.kvcache.hashing import Blake2BlockHasher
from tests.conformance.kinds import FEATURED, PLAIN, Drawn
from tests.conformance.within_the_rules import WithinTheRules
from tests.mutants.mutant import Mutant

CRASH = "crash"
"""What a history ends with in which the machine falls over."""


@attrs.frozen
class Played:
    """A history, played until something is wrong or it ends."""

    config: SchedulerConfig
    events: tuple[Event, ...]
    """Up to and including the one at which something is wrong."""
    broken: frozenset[str]
    """The invariants that the last event breaks, or `CRASH`; nothing if all is well."""


def draw(seed: int, mutant: Mutant) -> Drawn | None:
    """Draw the history of a seed; None if it is not of the kind that the mutant wants."""
    drawn = (FEATURED if mutant.features else PLAIN).draw(seed, Blake2BlockHasher())
    if not drawn.features.issuperset(mutant.features) or not mutant.where(drawn.config):
        return None
    return _without_quirks(drawn) if mutant.without_quirks else drawn


def _without_quirks(drawn: Drawn) -> Drawn | None:
    """Leave the quirks out; None where steps are too small for that (deviation D-04)."""
    try:
        return attrs.evolve(drawn, config=attrs.evolve(drawn.config, quirks=()))
    except InvalidConfig:
        return None


def play_drawn(drawn: Drawn) -> Played:
    """Play a history until an invariant is broken.

    A client that is turned away changes nothing, and the history goes on: without the quirks, many are. Any
    other event that is refused ends it.
    """
    state = initial_state(drawn.config)
    history, rules, run = drawn.history(state), WithinTheRules(), RunChecker(state)
    events: list[Event] = []
    for drawn_event in history.events():
        before, event = state, rules.turn(state, drawn_event)
        try:
            state, outcome = step(before, event)
            broken = broken_by(run, observe(before, event, state, outcome))
        except InvalidEvent:
            if isinstance(event, AddRequest):
                continue
            break
        except Exception:  # whatever the fault brings about
            broken = frozenset({CRASH})
        events.append(event)
        if broken:
            return Played(drawn.config, tuple(events), broken)
        rules.observe(event, state)
        history.observe(state)
    return Played(drawn.config, tuple(events), frozenset())


def play_events(config: SchedulerConfig, events: Sequence[Event]) -> Played:
    """Play given events until an invariant is broken, or one is refused: what follows was made for it."""
    state = initial_state(config)
    run = RunChecker(state)
    for number, event in enumerate(events, start=1):
        before = state
        try:
            state, outcome = step(before, event)
            broken = broken_by(run, observe(before, event, state, outcome))
        except InvalidEvent:
            break
        except Exception:  # as above
            broken = frozenset({CRASH})
        if broken:
            return Played(config, tuple(events[:number]), broken)
    return Played(config, tuple(events), frozenset())


def broken_by(run: RunChecker, seen: Step) -> frozenset[str]:
    """Name all invariants that an event breaks, those of the run until then among them."""
    found = run.find_broken(seen)
    broken = frozenset(name for name, evidence in found.items() if not isinstance(evidence, Stumble))
    try:
        check_full(seen.after)
        check_observed_full(seen)
    except InvariantViolation:
        broken |= frozenset(_all_broken(seen))
        return broken or frozenset({CRASH})
    return frozenset({CRASH}) if found and not broken else broken


def _all_broken(seen: Step) -> Iterator[str]:
    """Ask every invariant of a state and of a step, not only those up to the first that is broken."""
    for entry in CATALOGUE:
        if isinstance(entry, StateInvariant):
            evidence = find_evidence(entry.predicate, seen.after)
        elif isinstance(entry, StepInvariant) and type(seen.event) in entry.events:
            evidence = find_evidence(entry.predicate, seen)
        else:
            continue
        if evidence is not None and not isinstance(evidence, Stumble):
            yield entry.invariant_id
