"""Histories of a small world that, together, make every move of it.

The model checker makes the moves of each form of a situation once (`kvsched_fp/explore/canonical.py`). A
walk goes on from move to move, so that each history makes as many as it can that none has made before.
Where it comes to a form under other names, the moves are the same ones, in the same order.
"""

import sys
from collections import deque
from collections.abc import Iterator

from kvsched_fp import machine
from kvsched_fp.events import Event
from kvsched_fp.explore import World
from kvsched_fp.explore.canonical import Canonicalizer
from kvsched_fp.explore.moves import Moves
from kvsched_fp.explore.situation import Situation, initial_situation


class Walks:
    """Walks through one world until every move was made, of its first `max_forms` forms."""

    def __init__(self, world: World, max_forms: int = sys.maxsize) -> None:
        self._world = world
        self._max_forms = max_forms
        self._moves = Moves(world)
        self._canonicalizer = Canonicalizer(world, self._moves.kind_of)
        self._targets = self._explore()
        self._left = {key: set(range(len(targets))) for key, targets in self._targets.items()}

    @property
    def num_forms(self) -> int:
        """How many forms there are."""
        return len(self._targets)

    @property
    def num_moves(self) -> int:
        """How many moves there are, of all forms."""
        return sum(map(len, self._targets.values()))

    @property
    def num_left(self) -> int:
        """How many of them no walk has made yet."""
        return sum(map(len, self._left.values()))

    def histories(self) -> Iterator[list[Event]]:
        """Give histories until every move is in one. Each begins with the initial state."""
        while self.num_left:
            yield list(self._walk())

    def _explore(self) -> dict[bytes, list[bytes]]:
        """Give, for the key of each form, the keys that its moves lead to."""
        first = initial_situation(self._world)
        targets: dict[bytes, list[bytes]] = {}
        to_expand = [(self._canonicalizer.key(first), first)]
        for key, situation in to_expand:  # grows while it is walked through
            if key in targets:
                continue
            if len(targets) >= self._max_forms:
                targets[key] = []  # nothing is tried from here on
                continue
            after = [self._follow(situation, event) for event in self._moves.enabled(situation)]
            keys = [self._canonicalizer.key(situation) for situation in after]
            targets[key] = keys
            to_expand.extend((new, situation) for new, situation in zip(keys, after, strict=True))
        return targets

    def _walk(self) -> Iterator[Event]:
        """Go from move to move, each time by the shortest way to one that is left."""
        situation = initial_situation(self._world)
        key = self._canonicalizer.key(situation)
        while (path := self._path_to_one_left(key)) is not None:
            for index in path:
                self._left[key].discard(index)
                event = self._moves.enabled(situation)[index]
                yield event
                situation = self._follow(situation, event)
                key = self._canonicalizer.key(situation)

    def _path_to_one_left(self, start: bytes) -> list[int] | None:
        """Give the moves from a form up to the nearest that is left, or None if none can be reached."""
        came_by: dict[bytes, tuple[bytes, int] | None] = {start: None}
        to_look_at = deque([start])
        while to_look_at:
            key = to_look_at.popleft()
            if self._left[key]:
                path = [min(self._left[key])]
                while (step := came_by[key]) is not None:
                    key = step[0]
                    path.append(step[1])
                return path[::-1]
            for index, target in enumerate(self._targets[key]):
                if target not in came_by:
                    came_by[target] = (key, index)
                    to_look_at.append(target)
        return None

    def _follow(self, situation: Situation, event: Event) -> Situation:
        return self._moves.follow(situation, event, machine.step)[0]
