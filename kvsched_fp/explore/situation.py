"""A situation: a state of the scheduler, and what the world around it remembers.

The world remembers little: who may still come, which rows of the steps in flight sample and how many tokens
each may bring at most, and how many inputs each session has left.
"""

from typing import NamedTuple, TypeAlias

from kvsched_fp.explore.world import World
from kvsched_fp.ids import RequestId
from kvsched_fp.state import SchedulerState, initial_state

Answers: TypeAlias = tuple[tuple[RequestId, int], ...]
"""Of one step in flight: the rows that sample, and the most tokens that each may bring."""


class Situation(NamedTuple):
    """A state of the scheduler, and what the world around it remembers."""

    state: SchedulerState
    """The scheduler."""
    num_to_come: tuple[int, ...]
    """Per kind, how many requests may still come."""
    answers: tuple[Answers, ...]
    """Per step in flight, what the model runner may answer, the oldest first."""
    inputs_left: tuple[tuple[RequestId, int], ...]
    """Per session, how many inputs may still come, its end included."""


def initial_situation(world: World) -> Situation:
    """Make the situation in which nothing has happened."""
    return Situation(initial_state(world.config), tuple(kind.count for kind in world.kinds), (), ())
