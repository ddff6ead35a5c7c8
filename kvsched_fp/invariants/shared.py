"""Reading once what several predicates ask for.

The predicates are asked one after the other about the same state, the same pool, the same step; and many
events leave the pool as it is.
"""

import functools
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
Reading = TypeVar("Reading")


def shared(read: Callable[[Value], Reading]) -> Callable[[Value], Reading]:
    """Make `read`, a function of an immutable value, remember the last value and what it read of it.

    Values are told apart by identity, since they never change. Nobody may change what was read. The last
    value and what was read of it stay in memory until the next; threads at worst read twice.
    """
    last: tuple[Value | None, Reading | None] = (None, None)

    @functools.wraps(read)
    def read_once(value: Value) -> Reading:
        nonlocal last
        known, reading = last
        if known is not value:
            reading = read(value)
            last = (value, reading)
        return reading  # type: ignore[return-value]  # what was read of `value`, which is not None

    return read_once
