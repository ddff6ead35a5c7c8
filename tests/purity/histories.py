"""Histories to test purity on: random walks of the unit tests' small worlds, the same in every process."""

from random import Random
from typing import NamedTuple

from kvsched_fp import Event, SchedulerState
from kvsched_fp.machine import Outcome
from tests.unit.walks import CONFIGS, KINDS, walk

NUM_HISTORIES = len(CONFIGS)


class Moment(NamedTuple):
    """One event of a history."""

    before: SchedulerState
    event: Event
    after: SchedulerState
    outcome: Outcome


def history(number: int, *, length: int = 50) -> list[Moment]:
    """Give the how many-th history: one per configuration, of at most `length` events."""
    rng = Random(number)
    numbers = [(rng.choice(KINDS), rng.randrange(1000)) for _ in range(length)]
    return [Moment(*moment) for moment in walk(CONFIGS[number], numbers)]
