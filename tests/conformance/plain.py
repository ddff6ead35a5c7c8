"""One normal form for both sides: nested plain values that can be printed, compared and pinned.

| value here            | becomes                                                         |
|-----------------------|-----------------------------------------------------------------|
| a record (attrs)      | a dict of *all* its fields, so that a new field cannot be missed |
| a union of records    | the same, with the name of the class under `kind`               |
| an `OrderedMap`       | a list of pairs, since its order is part of its value           |
| any other iterable    | a list                                                          |
| a set                 | a sorted list, since sets have no order                         |
| bytes (hashes, keys)  | hexadecimal digits                                              |
| a member of an enum   | its name                                                        |
"""

import enum
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

import attrs

from kvsched_fp.kvcache.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from kvsched_fp.ordered import OrderedMap

Plain: TypeAlias = Any
"""None, bool, int, float, str, or a list or dict of such."""

_MEMBERS_OF_UNIONS = (AllBlocksCleared, BlockRemoved, BlockStored)


def to_plain(value: object) -> Plain:
    """Give the normal form of a value of `kvsched_fp`."""
    kind = type(value)
    convert = _CONVERTERS.get(kind)
    if convert is None:
        convert = _CONVERTERS[kind] = _choose_converter(kind)
    return convert(value)


def hexadecimal(hashes: Iterable[bytes]) -> list[str]:
    """Write hashes down as digits."""
    return [item.hex() for item in hashes]


def _choose_converter(kind: type) -> Callable[[Any], Plain]:
    if issubclass(kind, enum.Enum):
        return _name_of
    if issubclass(kind, OrderedMap):
        return _pairs_of
    if issubclass(kind, AbstractSet):
        return _sorted_items_of
    if issubclass(kind, Iterable):
        return _items_of
    if attrs.has(kind):
        return _record_converter(kind)
    raise TypeError(f"no normal form for a {kind.__name__}")


def _as_it_is(value: Plain) -> Plain:
    return value


def _digits_of(value: bytes) -> str:
    return value.hex()


def _name_of(member: enum.Enum) -> str:
    return member.name


def _pairs_of(ordered: OrderedMap[Any, Any]) -> list[Plain]:
    return [[to_plain(key), to_plain(item)] for key, item in ordered.items()]


def _sorted_items_of(items: AbstractSet[Any]) -> list[Plain]:
    return sorted(map(to_plain, items))


def _items_of(vector: Iterable[Any]) -> list[Plain]:
    items = list(vector)
    # Token and block ids are most of what there is to convert, and need no converting.
    if items and type(items[0]) is int:
        return items
    return [to_plain(item) for item in items]


def _record_converter(kind: type) -> Callable[[object], dict[str, Plain]]:
    names = [field.name for field in attrs.fields(kind)]
    extra = {"kind": kind.__name__} if kind in _MEMBERS_OF_UNIONS else {}

    def convert(record: object) -> dict[str, Plain]:
        return {name: to_plain(getattr(record, name)) for name in names} | extra

    return convert


_CONVERTERS: dict[type, Callable[[Any], Plain]] = {
    **dict.fromkeys((type(None), bool, int, float, str), _as_it_is),
    bytes: _digits_of,
}
"""How each type is converted, filled as types turn up."""
