"""Making the history that killed a mutant small: how many events does the fault need to show."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.mutants.hunting import Hunt, Kill

MAX_TRIES = 250
"""Smaller histories that are played before what was found is good enough."""


def shrink_kill(hunt: Hunt, kill: Kill, max_tries: int = MAX_TRIES) -> tuple[Any, ...]:
    """Give the events of a small history in which the same killer still notices the mutant."""

    def judge_of(config: Any) -> Callable[[Sequence[Any]], int | None]:
        return lambda events: _num_events_to_kill(hunt, kill.killer, config, events)

    played = kill.played
    shrink = hunt.playing.shrink.shrink
    shrunk = shrink(
        played.config, played.events, judge_of(played.config), judge_of=judge_of, max_tries=max_tries
    )
    return tuple(played.events if shrunk is None else shrunk.events)


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
