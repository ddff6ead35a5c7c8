"""Where two nested plain values differ first."""

from typing import NamedTuple

from .plain import Plain

MISSING = "(nothing there)"
"""Stands for the side that has no value at the path."""


class Difference(NamedTuple):
    """The first place, in reading order, where the two sides differ."""

    path: str
    """Such as `view.requests[2].num_computed_tokens`."""
    reference: Plain
    """What the reference has there."""
    oracle: Plain
    """What ours has there."""

    def __str__(self) -> str:
        return f"{self.path}\n  reference: {self.reference!r}\n  oracle:    {self.oracle!r}"


def first_difference(reference: Plain, oracle: Plain, path: str = "") -> Difference | None:
    """Find the first difference, or None. `True` and `1` differ, and so do `1` and `1.0`."""
    if type(reference) is not type(oracle):
        return Difference(path, reference, oracle)
    if isinstance(reference, dict):
        return _in_dicts(reference, oracle, path)
    if isinstance(reference, list):
        return _in_lists(reference, oracle, path)
    if reference != oracle:
        return Difference(path, reference, oracle)
    return None


def _in_dicts(reference: dict[str, Plain], oracle: dict[str, Plain], path: str) -> Difference | None:
    for key in {**reference, **oracle}:
        where = f"{path}.{key}" if path else str(key)
        if key not in oracle:
            return Difference(where, reference[key], MISSING)
        if key not in reference:
            return Difference(where, MISSING, oracle[key])
        difference = first_difference(reference[key], oracle[key], where)
        if difference is not None:
            return difference
    return None


def _in_lists(reference: list[Plain], oracle: list[Plain], path: str) -> Difference | None:
    for index, (left, right) in enumerate(zip(reference, oracle, strict=False)):
        difference = first_difference(left, right, f"{path}[{index}]")
        if difference is not None:
            return difference
    if len(reference) == len(oracle):
        return None
    index = min(len(reference), len(oracle))
    return Difference(
        f"{path}[{index}]",
        reference[index] if index < len(reference) else MISSING,
        oracle[index] if index < len(oracle) else MISSING,
    )
