"""Where two values of the outcome classes differ first.

A path names fields with a point, places in a list with a number and keys of an ordered map with the key:
`output.num_scheduled_tokens["r3"]`, `emitted.clients[0].outputs[2].finish_reason`. Where the keys of two
maps differ, or stand in another order, the path gives the place and the values are the pairs there.
"""

import enum
import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import attrs

from kvsched_fp.errors import shorten

MISSING = "(nothing)"
"""Stands for the side that has no value at the path."""
MAX_SHOWN = 120
"""Characters of a value in a message."""


@attrs.frozen
class Difference:
    """The first place, in reading order, where two values differ."""

    path: str
    """Where."""
    recorded: Any
    """What the trace has there, as plain JSON values."""
    ours: Any
    """What this package has there."""

    def __str__(self) -> str:
        recorded, ours = shorten(self.recorded, MAX_SHOWN), shorten(self.ours, MAX_SHOWN)
        return f"{self.path}\n  recorded: {recorded}\n  ours:     {ours}"


def first_difference(recorded: object, ours: object, path: str) -> Difference | None:
    """Find the first difference between two values of the same class, or None."""
    if type(recorded) is not type(ours):
        return Difference(path, plain(recorded), plain(ours))
    if recorded == ours:
        return None
    if attrs.has(type(recorded)):
        return _in_records(recorded, ours, path)
    if isinstance(recorded, Mapping) and isinstance(ours, Mapping):
        return _in_maps(recorded, ours, path)
    if isinstance(recorded, tuple) and isinstance(ours, tuple):
        return _in_lists(recorded, ours, path)
    return Difference(path, plain(recorded), plain(ours))


def _in_records(recorded: Any, ours: Any, path: str) -> Difference | None:
    for field in attrs.fields(type(recorded)):
        left, right = getattr(recorded, field.name), getattr(ours, field.name)
        difference = first_difference(left, right, f"{path}.{field.name}")
        if difference is not None:
            return difference
    return None


def _in_maps(recorded: Mapping[Any, Any], ours: Mapping[Any, Any], path: str) -> Difference | None:
    pairs = zip_longest(recorded.items(), ours.items())
    for index, (left, right) in enumerate(pairs):
        if left is None or right is None or left[0] != right[0]:
            return Difference(f"{path}[{index}]", _plain_or_missing(left), _plain_or_missing(right))
        difference = first_difference(left[1], right[1], f"{path}[{json.dumps(left[0])}]")
        if difference is not None:
            return difference
    return None


def _in_lists(recorded: Sequence[Any], ours: Sequence[Any], path: str) -> Difference | None:
    for index, (left, right) in enumerate(zip(recorded, ours, strict=False)):
        difference = first_difference(left, right, f"{path}[{index}]")
        if difference is not None:
            return difference
    if len(recorded) == len(ours):
        return None
    index = min(len(recorded), len(ours))
    left, right = (plain(side[index]) if index < len(side) else MISSING for side in (recorded, ours))
    return Difference(f"{path}[{index}]", left, right)


def _plain_or_missing(pair: tuple[Any, Any] | None) -> Any:
    return MISSING if pair is None else plain(pair)


def plain(value: Any) -> Any:
    """Give a value as plain JSON values, to be shown."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return [[plain(key), plain(item)] for key, item in value.items()]
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if attrs.has(type(value)):
        return {field.name: plain(getattr(value, field.name)) for field in attrs.fields(type(value))}
    return value
