"""Playing histories through two imports of the package, side by side, and comparing what comes of them.

Like `play.py`, this is imported again with every fault. The two sides speak in the words of a trace, so
that what differs here is what `kvsched-fp check` would find; which rows need a mask is asked besides.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from kvsched_fp import (
    AddRequest,
    Event,
    InvalidEvent,
    SchedulerConfig,
    SchedulerState,
    grammar_rows,
    initial_state,
    step,
)
from kvsched_fp.trace.codec import (
    decode_config,
    decode_event,
    encode_config,
    encode_event,
    what_was_told,
    write_told,
)
from tests.conformance.kinds import Drawn
from tests.mutants.mutant import COMPARISON
from tests.mutants.play import Played


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
        return _answer(decoded, self._state, outcome)


MakeOther: TypeAlias = Callable[[dict[str, Any]], Other]
"""Begins with a configuration on the other side."""


def _answer(event: Event, state: SchedulerState, outcome: object) -> str:
    """Write down what came of an event, and which rows of the last step need a mask."""
    told = write_told(what_was_told(event, state, cast("Any", outcome)))
    rows = grammar_rows(state, state.in_flight[-1]) if state.in_flight else None
    return told if rows is None else f"{told} {rows.request_ids} {rows.num_acceptable_drafts}"


def compare_drawn(drawn: Drawn, make_other: MakeOther) -> Played:
    """Play a history on both sides, until what comes of an event differs.

    What is refused here ends it, but for a client that is turned away: as in `play_drawn`.
    """
    state, other = initial_state(drawn.config), make_other(encode_config(drawn.config))
    history = drawn.history(state)
    events: list[Event] = []
    for event in history.events():
        try:
            state, outcome = step(state, event)
        except InvalidEvent:
            if isinstance(event, AddRequest):
                continue
            break
        events.append(event)
        if other.happen(encode_event(event)) != _answer(event, state, outcome):
            return Played(drawn.config, tuple(events), frozenset({COMPARISON}))
        history.observe(state)
    return Played(drawn.config, tuple(events), frozenset())


def compare_events(config: SchedulerConfig, events: Sequence[Event], make_other: MakeOther) -> Played:
    """Play given events in the same way."""
    state, other = initial_state(config), make_other(encode_config(config))
    for number, event in enumerate(events, start=1):
        try:
            state, outcome = step(state, event)
        except InvalidEvent:
            break
        if other.happen(encode_event(event)) != _answer(event, state, outcome):
            return Played(config, tuple(events[:number]), frozenset({COMPARISON}))
    return Played(config, tuple(events), frozenset())


def written(
    config: SchedulerConfig, events: Sequence[Event]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Write a history in the words of a trace."""
    return encode_config(config), [encode_event(event) for event in events]


def read(config: dict[str, Any], events: Sequence[dict[str, Any]]) -> tuple[SchedulerConfig, list[Event]]:
    """Read a history that another import has written."""
    return decode_config(config), [decode_event(event) for event in events]
