"""Hunting one mutant down: playing histories until everybody who must notice the fault has noticed it.

An invariant has noticed a fault when it is among those that the *first* event breaks at which anything is
wrong in a history. A history in which something else breaks first does not count for it, nor one in which
the machine falls over.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from tests.mutants.mutant import COMPARISON, Mutant
from tests.mutants.planting import World, planted

HISTORIES_PER_STREAM = 1_000_000
MAX_EVENTS = 100_000
"""Events of one seed after which a mutant has survived."""


@attrs.frozen
class Kill:
    """How one killer noticed a mutant."""

    killer: str
    seed: int
    """The seed of the history that showed it."""
    num_events: int
    """Events that were played until then, all histories together."""
    played: Any
    """The history, up to the event that showed it (`play.Played` of the import that it was played with)."""


@attrs.frozen
class Hunt:
    """One mutant, planted, and the package as it is beside it."""

    mutant: Mutant
    faulty: World
    clean: World

    @property
    def compares(self) -> bool:
        """Whether outcomes are compared, and no invariants checked."""
        return self.mutant.killers == (COMPARISON,)

    @property
    def playing(self) -> World:
        """The import whose values the histories are made of."""
        return self.clean if self.compares else self.faulty

    def play(self, seed: int) -> Any:
        """Play the history of a seed; None if it is not of the kind that the mutant wants."""
        drawn = self.playing.play.draw(seed, self.mutant)
        if drawn is None:
            return None
        drawn = attrs.evolve(drawn, config=self.mutant.world(drawn.config))
        if self.compares:
            return self.clean.beside.compare_drawn(drawn, self.faulty.beside.Other)
        return self.faulty.play.play_drawn(drawn)

    def search(self, seeds: Iterable[int], max_events: int = MAX_EVENTS) -> list[Kill]:
        """Play histories until all killers have noticed, or so many events have been played."""
        missing = list(self.mutant.killers)
        kills: list[Kill] = []
        num_events = 0
        for seed in seeds:
            played = self.play(seed)
            if played is None:
                continue
            num_events += len(played.events)
            for killer in [name for name in missing if name in played.broken]:
                missing.remove(killer)
                kills.append(Kill(killer, seed, num_events, played))
            if not missing or num_events >= max_events:
                break
        return kills


def stream(number: int) -> Iterator[int]:
    """Give the seeds of the histories of one stream; no two streams share any."""
    first = number * HISTORIES_PER_STREAM
    return iter(range(first, first + HISTORIES_PER_STREAM))


def hunts(mutants: Sequence[Mutant], *, shrinks: bool = False) -> Iterator[Hunt]:
    """Plant one mutant after the other; `shrinks` prepares for `shrinking.py`."""
    with planted(None, compares=True) as clean:
        pass
    for mutant in mutants:
        with planted(mutant, compares=shrinks or mutant.killers == (COMPARISON,)) as faulty:
            yield Hunt(mutant, faulty, clean)
