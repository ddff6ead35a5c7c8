"""A record of ours beside its counterpart in vLLM, field by field, to be read in both directions."""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeAlias, TypeVar

import attrs

Ours = TypeVar("Ours")
Convert: TypeAlias = Callable[[Any], Any]
"""From the value on one side to that on the other."""


def _same(value: Any) -> Any:
    return value


@attrs.frozen
class Pair:
    """One field under both names, and how its value is written on either side."""

    ours: str
    """Our name."""
    theirs: str
    """vLLM's name."""
    to_ours: Convert = _same
    """From vLLM's value to ours."""
    to_theirs: Convert = _same
    """From ours to vLLM's."""


class Pairing(Generic[Ours]):
    """A record of ours and its counterpart in vLLM."""

    def __init__(self, ours: type[Ours], theirs: type, *pairs: Pair, besides: Iterable[str] = ()) -> None:
        """`besides` are the fields of ours that have no counterpart."""
        names = {field.name for field in attrs.fields(ours)}  # type: ignore[arg-type]
        if names != {*besides, *(pair.ours for pair in pairs)}:
            raise TypeError(f"{ours.__name__} has the fields {sorted(names)}")
        self.pairs = pairs
        self._ours, self._theirs = ours, theirs

    def to_ours(self, record: Any, **besides: Any) -> Ours:
        """Read a record of vLLM's; `besides` are the fields of ours that it does not have."""
        read = {pair.ours: pair.to_ours(getattr(record, pair.theirs)) for pair in self.pairs}
        return self._ours(**read, **besides)

    def to_theirs(self, value: Ours, **besides: Any) -> Any:
        """Make the record of vLLM's; `besides` are fields of it that do not come from ours."""
        written = {
            pair.theirs: pair.to_theirs(getattr(value, pair.ours))
            for pair in self.pairs
            if pair.theirs not in besides
        }
        return self._theirs(**written, **besides)
