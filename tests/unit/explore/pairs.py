"""Pairs of situations that differ and have one canonical form, as they come up in a search."""

import random
from collections.abc import Iterator

from kvsched_fp import step
from kvsched_fp.explore.canonical import Canonicalizer
from kvsched_fp.explore.moves import Moves
from kvsched_fp.explore.situation import Situation, initial_situation
from kvsched_fp.explore.world import World


class Searched:
    """A world, searched by the plainest means: a dict of all forms, and what was found for each."""

    def __init__(
        self, world: World, max_states: int = 10**9, make: type[Canonicalizer] = Canonicalizer
    ) -> None:
        self.moves = Moves(world)
        self.canonicalizer = make(world, self.moves.kind_of)
        self.first: dict[bytes, Situation] = {}
        """The first situation of each form."""
        self.again: list[tuple[bytes, Situation]] = []
        """Those that are not equal to the first one."""
        self.num_moves = 0
        """Moves made."""
        self._search(initial_situation(world), max_states)

    def _search(self, situation: Situation, max_states: int) -> None:
        self.first[self.canonicalizer.key(situation)] = situation
        level = [situation]
        while level and len(self.first) < max_states:
            found = []
            for before in level:
                for key, after in self.follow_all(before):
                    self.num_moves += 1
                    earlier = self.first.setdefault(key, after)
                    if earlier is after:
                        found.append(after)
                    elif earlier != after:
                        self.again.append((key, after))
            level = found

    def follow_all(self, situation: Situation) -> Iterator[tuple[bytes, Situation]]:
        """Make every move; give the key and the situation that each leads to."""
        for event in self.moves.enabled(situation):
            after, _ = self.moves.follow(situation, event, step)
            yield self.canonicalizer.key(after), after

    def sample_pairs(self, count: int, seed: int) -> list[tuple[Situation, Situation]]:
        """Draw pairs of situations that differ and have one form."""
        drawn = random.Random(seed).sample(self.again, min(count, len(self.again)))
        return [(self.first[key], situation) for key, situation in drawn]
