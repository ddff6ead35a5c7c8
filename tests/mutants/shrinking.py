"""Making the history that killed a mutant small: how many events does the fault need to show."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from tests.mutants.hunting import Hunt, Kill

MAX_TRIES = 250
"""Smaller histories that are played before what was found is good enough."""


@attrs.frozen
class SmallKill:
    """A small history that still kills."""

    num_events: int
    """Events of the history; the killer notices at the last."""
    is_minimal: bool
    """Whether no smaller one was left to try; False if the tries ran out, or none could be judged."""

    def __str__(self) -> str:
        """Write the number of events."""
        return str(self.num_events) if self.is_minimal else f"<= {self.num_events}"


def shrink_kill(hunt: Hunt, kill: Kill, max_tries: int = MAX_TRIES) -> SmallKill:
    """Make the history small in which the killer notices the mutant, and the same killer still does."""

    def judge_of(config: Any) -> Callable[[Sequence[Any]], int | None]:
        return lambda events: _num_events_to_kill(hunt, kill.killer, config, events)

    played = kill.played
    shrunk = hunt.playing.shrink.shrink(
        played.config,
        played.events,
        judge_of(played.config),
        judge_of=judge_of,
        make_fit=lambda: _fit_of(hunt),
        max_tries=max_tries,
    )
    if shrunk is None:  # on the same events, the package as it is leaves the rules as well
        return SmallKill(len(played.events), is_minimal=False)
    return SmallKill(len(shrunk.events), shrunk.is_minimal)


def _fit_of(hunt: Hunt) -> Callable[[Any, Any], Any]:
    """Make events fit, and leave out those that the machine falls over: it may have the fault."""
    playing = hunt.playing

    def fit(state: Any, event: Any) -> Any:
        fitting = playing.shrink.fit(state, event)
        try:
            return fitting if fitting is None or playing.play.step(state, fitting) else None
        except Exception:  # whatever the fault brings about
            return None

    return fit


def _num_events_to_kill(hunt: Hunt, killer: str, config: Any, events: Sequence[Any]) -> int | None:
    """Give how many of the events it takes until the killer notices; None if it does not.

    A smaller history may leave the rules that the invariants speak of. So it counts only if the package as
    it is keeps them all.
    """
    if hunt.compares:
        played = hunt.clean.beside.compare_events(config, events, hunt.faulty.beside.Other)
    else:
        played = hunt.faulty.play.play_events(config, events)
    if killer not in played.broken:
        return None
    if not hunt.compares and not _keeps_the_rules(hunt, played):
        return None
    return len(played.events)


def _keeps_the_rules(hunt: Hunt, played: Any) -> bool:
    """Tell whether the package as it is breaks nothing on the same events, as far as it takes them."""
    translate = hunt.faulty.beside.written
    config, events = translate(played.config, played.events)
    return not hunt.clean.play.play_events(*hunt.clean.beside.read(config, events)).broken
