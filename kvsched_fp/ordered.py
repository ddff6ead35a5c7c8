"""A mapping whose order is part of its value.

The reference iterates insertion-ordered dicts, and the order is behaviour: it fixes the rows of a
batch. `OrderedMap` is such a dict, frozen. Two are equal when they hold equal items *in the same
order*; the persistent maps of `immutables` iterate in hash order and are used for look-up only.
"""

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Self, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class OrderedMap(Mapping[K, V]):
    """An immutable, insertion-ordered mapping with order-sensitive equality."""

    __slots__ = ("_items",)
    _items: dict[K, V]

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        _set_items(self, dict(items))

    @classmethod
    def adopt(cls, items: dict[K, V]) -> Self:
        """Wrap `items` without a copy; the caller gives it up."""
        made = object.__new__(cls)
        _set_items(made, items)
        return made

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def get(self, key: K, default: Any = None) -> Any:
        """Give the value of a key, or `default`."""
        return self._items.get(key, default)

    def thaw(self) -> dict[K, V]:
        """Give the items in a dict, which the caller may change."""
        return self._items.copy()

    def keys(self) -> KeysView[K]:
        """Give the keys, in order."""
        return self._items.keys()

    def values(self) -> ValuesView[V]:
        """Give the values, in order."""
        return self._items.values()

    def items(self) -> ItemsView[K, V]:
        """Give the pairs, in order."""
        return self._items.items()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OrderedMap):
            return NotImplemented
        return self._items == other._items and list(self._items) == list(other._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return f"OrderedMap({self._items!r})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"OrderedMap is immutable: cannot set {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (dict(self._items),))


_set_items = OrderedMap._items.__set__  # type: ignore[attr-defined, misc]
"""Sets the one slot, past `__setattr__`."""
