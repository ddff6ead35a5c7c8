"""Playing histories through one import of the package, with the invariants checked after every event.

This module is imported again with every fault that is planted (`planting.py`), so what it imports is the
package with the fault.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from kvsched_fp import Event, InvalidEvent, InvariantViolation, SchedulerConfig, initial_state, step
from kvsched_fp.invariants import CATALOGUE, StateInvariant, check_full, check_full_step, observe
from kvsched_fp.kvcache.hashing import Blake2BlockHasher
from kvsched_fp.state import SchedulerState
from kvsched_fp.trace.codec import (
    decode_config,
    decode_event,
    encode_config,
    encode_event,
    what_was_told,
    write_told,
)
from tests.conformance.kinds import FEATURED, PLAIN, Drawn
from tests.conformance.within_the_rules import WithinTheRules
from tests.mutants.mutant import COMPARISON

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


def draw(seed: int, features: Sequence[str], where: Callable[[Any], bool]) -> Drawn | None:
    """Draw the history of a seed; None if it is not of the kind that is wanted."""
    drawn = (FEATURED if features else PLAIN).draw(seed, Blake2BlockHasher())
    wanted = drawn.features.issuperset(features) and where(drawn.config)
    return drawn if wanted else None


def play_drawn(drawn: Drawn) -> Played:
    """Play a history until an invariant is broken; what is refused ends it."""
    state = initial_state(drawn.config)
    history, rules = drawn.history(state), WithinTheRules()
    events: list[Event] = []

    def next_events() -> Iterator[Event]:
        for event in history.events():
            yield rules.turn(state, event)

    for event in next_events():
        before = state
        events.append(event)
        try:
            state, outcome = step(before, event)
            broken = broken_by(before, event, state, outcome)
        except InvalidEvent:
            break
        except Exception:  # whatever the fault brings about
            broken = frozenset({CRASH})
        if broken:
            return Played(drawn.config, tuple(events), broken)
        rules.observe(event, state)
        history.observe(state)
    return Played(drawn.config, tuple(events), frozenset())


def play_events(config: SchedulerConfig, events: Sequence[Event]) -> Played:
    """Play given events in the same way."""
    state = initial_state(config)
    for number, event in enumerate(events, start=1):
        before = state
        try:
            state, outcome = step(before, event)
            broken = broken_by(before, event, state, outcome)
        except InvalidEvent:
            break
        except Exception:  # as above
            broken = frozenset({CRASH})
        if broken:
            return Played(config, tuple(events[:number]), broken)
    return Played(config, tuple(events), frozenset())


def broken_by(
    before: SchedulerState, event: Event, after: SchedulerState, outcome: object
) -> frozenset[str]:
    """Name all invariants that an event breaks."""
    try:
        check_full(after)
        check_full_step(before, event, after, outcome)
    except InvariantViolation:
        return frozenset(_all_broken(before, event, after, outcome)) or frozenset({CRASH})
    return frozenset()


def _all_broken(
    before: SchedulerState, event: Event, after: SchedulerState, outcome: object
) -> Iterator[str]:
    seen = observe(before, event, after, outcome)
    for entry in CATALOGUE:
        if not isinstance(entry, StateInvariant) and type(event) not in entry.events:
            continue
        subject: Any = after if isinstance(entry, StateInvariant) else seen
        try:
            evidence = entry.predicate(subject)
        except (LookupError, TypeError, ValueError, AttributeError, AssertionError):
            continue  # stumbling over what another one reports is no evidence
        if evidence is not None:
            yield entry.invariant_id


class Other:
    """The machine of this import, told what happens in the words of a trace; it answers in such words."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._state = initial_state(decode_config(config))

    def happen(self, event: dict[str, Any]) -> str:
        """Let an event happen; give what came of it, or what was raised."""
        decoded = decode_event(event)
        try:
            self._state, outcome = step(self._state, decoded)
        except Exception as error:  # whatever the fault brings about
            return f"raised {type(error).__name__}"
        return write_told(what_was_told(decoded, self._state, outcome))


def compare_drawn(drawn: Drawn, make_other: Callable[[dict[str, Any]], Other]) -> Played:
    """Play a history beside another import, until what comes of an event differs."""
    state, other = initial_state(drawn.config), make_other(encode_config(drawn.config))
    history = drawn.history(state)
    events: list[Event] = []
    for event in history.events():
        try:
            state, outcome = step(state, event)
        except InvalidEvent:
            break
        events.append(event)
        if other.happen(encode_event(event)) != write_told(what_was_told(event, state, outcome)):
            return Played(drawn.config, tuple(events), frozenset({COMPARISON}))
        history.observe(state)
    return Played(drawn.config, tuple(events), frozenset())


def compare_events(
    config: SchedulerConfig, events: Sequence[Event], make_other: Callable[[dict[str, Any]], Other]
) -> Played:
    """Play given events in the same way."""
    state, other = initial_state(config), make_other(encode_config(config))
    for number, event in enumerate(events, start=1):
        try:
            state, outcome = step(state, event)
        except InvalidEvent:
            break
        if other.happen(encode_event(event)) != write_told(what_was_told(event, state, outcome)):
            return Played(config, tuple(events[:number]), frozenset({COMPARISON}))
    return Played(config, tuple(events), frozenset())
