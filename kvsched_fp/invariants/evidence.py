"""Asking a predicate for its evidence."""

from collections.abc import Callable
from typing import Any

_STUMBLED = "cannot be checked: "


def find_evidence(predicate: Callable[..., str | None], *subject: Any) -> str | None:
    """Give the evidence of a predicate against its subject, or None.

    Predicates lean on the ones before them; a subject that makes one stumble is broken too.
    """
    try:
        return predicate(*subject)
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
        return f"{_STUMBLED}{error!r}"


def is_stumble(evidence: str) -> bool:
    """Tell whether a predicate stumbled: what it says is broken is what another one reports."""
    return evidence.startswith(_STUMBLED)
