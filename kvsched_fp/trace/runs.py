"""Lists of integers as text, their runs shortened: `[7,[100,512]]` is 7, then 100 to 611.

Prompts are long and are written more than once: when they arrive, and when the model runner gets them. So
nothing here takes a step of Python per integer, and the last long lists are remembered.
"""

import functools
import operator
import re
from itertools import repeat

MIN_RUN = 3
"""Consecutive integers that are written as a pair; fewer are written one by one."""

_LONG = 256
_NUM_REMEMBERED = 8

# Where `MIN_RUN - 1` times or more an integer is followed by the next.
_RUN = re.compile(rb"\x01{%d,}" % (MIN_RUN - 1))


def write_integers(values: tuple[int, ...]) -> str:
    """Write a list, with every run as long as it is in one pair [first,count]."""
    if len(values) == 1:  # by far the most: the token that a request sampled
        return f"[{values[0]}]"
    if len(values) < MIN_RUN:
        return f"[{','.join(map(str, values))}]"
    return _write(values) if len(values) < _LONG else _write_long(values)


def _write(values: tuple[int, ...]) -> str:
    first, length = values[0], len(values)
    if values[-1] - first == length - 1 and values == tuple(range(first, first + length)):
        return f"[[{first},{length}]]"
    steps = map(operator.sub, values[1:], values)
    parts: list[str] = []
    end = 0
    for run in _RUN.finditer(bytes(map(operator.eq, steps, repeat(1)))):
        start = run.start()
        parts.extend(map(str, values[end:start]))
        end = run.end() + 1
        parts.append(f"[{values[start]},{end - start}]")
    parts.extend(map(str, values[end:]))
    return f"[{','.join(parts)}]"


_write_long = functools.lru_cache(_NUM_REMEMBERED)(_write)
