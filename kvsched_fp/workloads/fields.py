"""Checks of the values on one line: every error names line, field, value and what is allowed."""

import json
import math
from collections.abc import Collection
from typing import Any, NoReturn

from kvsched_fp.errors import MISSING
from kvsched_fp.workloads.lines import Line
from kvsched_fp.workloads.request import MAX_TOKENS


def parse_object(line: Line) -> dict[str, Any]:
    """Read the line as one JSON object in which no key stands twice."""
    try:
        value = DECODER.decode(line.text)
    except json.JSONDecodeError as error:
        raise line.error(
            "line", line.text, f"one JSON object ({error.msg} at column {error.colno})"
        ) from None
    except (ValueError, RecursionError) as error:  # endless digits, NaN, a key twice, deep nesting
        raise line.error("line", line.text, f"one JSON object ({error})") from None
    if not isinstance(value, dict):
        raise line.error("line", line.text, "one JSON object")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} stands twice")
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
"""Reads JSON in which no key stands twice, and no NaN."""


def require_keys(line: Line, values: Collection[str], required: Collection[str]) -> None:
    """Refuse a line in which a field is missing."""
    for name in required:
        if name not in values:
            raise line.error(name, MISSING, f"the fields {', '.join(required)} on every line")


def require_int(line: Line, field: str, value: object, least: int, most: int) -> int:
    """Give `value` if it is an integer from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        raise line.error(field, value, f"an integer from {least} to {most}")
    return value


def require_time(line: Line, field: str, value: object, most: float, unit: str) -> float:
    """Give `value` as a float if it is a number from 0 to `most`."""
    if type(value) not in (int, float) or not 0 <= value <= most or math.isnan(value):  # type: ignore[operator, arg-type]
        raise line.error(field, value, f"a number from 0 to {most:g} ({unit})")
    return float(value)  # type: ignore[arg-type]


def require_order(line: Line, field: str, value: float, previous: float) -> None:
    """Refuse a time before the one of the line before."""
    if value < previous:
        raise line.error(field, value, f"at least {previous}, the one before: arrivals are in order")


def require_prompt_length(line: Line, field: str, value: object, max_model_len: int) -> int:
    """Give `value` if it is the length of a prompt that leaves room for one token of output.

    Upstream: `v1/engine/input_processor.py`, which refuses a prompt of `max_model_len` tokens too.
    """
    length = require_int(line, field, value, 1, MAX_TOKENS)
    if length >= max_model_len:
        raise line.error(
            field,
            length,
            f"less than max_model_len = {max_model_len}, which covers prompt and output",
        )
    return length


def require_output_length(line: Line, field: str, value: object) -> int:
    """Give `value` if it is a number of tokens to sample."""
    return require_int(line, field, value, 1, MAX_TOKENS)
