"""Asking a predicate for its evidence."""

from collections.abc import Callable
from typing import Any


class Stumble(str):
    """The evidence of a predicate that could not go on: what is broken is what another one reports."""

    __slots__ = ()


STUMBLES = (LookupError, TypeError, ValueError, AttributeError, AssertionError)
"""What a predicate raises that could not go on."""


def stumble(error: Exception) -> Stumble:
    """Make the evidence of a predicate that raised."""
    return Stumble(f"cannot be checked: {error!r}")


def find_evidence(predicate: Callable[..., str | None], *subject: Any) -> str | None:
    """Give the evidence of a predicate against its subject, or None.

    Predicates lean on the ones before them; a subject that makes one stumble is broken too (`Stumble`).
    """
    try:
        return predicate(*subject)
    except STUMBLES as error:
        return stumble(error)
