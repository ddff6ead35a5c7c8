"""A record of ours beside its counterpart in vLLM, field by field, to be read in both directions."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar

import attrs

Ours = TypeVar("Ours")
Convert: TypeAlias = Callable[[Any], Any]
"""From the value on one side to that on the other."""


def _same(value: Any) -> Any:
    return value


def _make_reader(names: list[str]) -> Callable[[Any], object]:
    return attrgetter(*names) if names else lambda _: ()


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
    is_same: Callable[[Any, Any], bool] | None = None
    """Tells whether vLLM's value and ours say the same, where that is quicker than to convert one."""

    def agree(self, record: Any, value: Any) -> bool:
        """Tell whether the field says the same in vLLM's `record` and in our `value`."""
        theirs, ours = getattr(record, self.theirs), getattr(value, self.ours)
        if self.is_same is not None:
            return self.is_same(theirs, ours)
        return bool(self.to_ours(theirs) == ours)


class Pairing(Generic[Ours]):
    """A record of ours and its counterpart in vLLM."""

    def __init__(self, ours: type[Ours], theirs: type, *pairs: Pair, besides: Iterable[str] = ()) -> None:
        """`besides` are the fields of ours that have no counterpart."""
        names = {field.name for field in attrs.fields(ours)}  # type: ignore[arg-type]
        if names != {*besides, *(pair.ours for pair in pairs)}:
            raise TypeError(f"{ours.__name__} has the fields {sorted(names)}")
        self.pairs = pairs
        self._ours, self._theirs = ours, theirs
        plain = [pair for pair in pairs if pair.to_ours is _same]
        self._converted = [pair for pair in pairs if pair.to_ours is not _same]
        self._plain_of_theirs = _make_reader([pair.theirs for pair in plain])
        self._plain_of_ours = _make_reader([pair.ours for pair in plain])

    def to_ours(self, record: Any, **besides: Any) -> Ours:
        """Read a record of vLLM's; `besides` are the fields of ours that it does not have."""
        read = {pair.ours: pair.to_ours(getattr(record, pair.theirs)) for pair in self.pairs}
        return self._ours(**read, **besides)

    def agree(self, record: Any, value: Ours) -> bool:
        """Tell whether both say the same in all pairs; quicker than to read and compare."""
        return self._plain_of_theirs(record) == self._plain_of_ours(value) and all(
            pair.agree(record, value) for pair in self._converted
        )

    def to_theirs(self, value: Ours, **besides: Any) -> Any:
        """Make the record of vLLM's; `besides` are fields of it that do not come from ours."""
        written = {
            pair.theirs: pair.to_theirs(getattr(value, pair.ours))
            for pair in self.pairs
            if pair.theirs not in besides
        }
        return self._theirs(**written, **besides)
