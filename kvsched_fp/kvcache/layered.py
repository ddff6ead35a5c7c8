"""A persistent map for the prefix index: layers of plain dicts, the newest on top.

Why not a tree of small nodes, as `immutables.Map` is: a step of 8,192 prompt tokens enters 512 keys at
random places, so a tree copies some thousand nodes per step, and the garbage collector visits each of
them (`tests/bench/persistent.py`). Here what one call changed becomes one new layer. A layer is never
changed once it is in a map, so maps share layers freely; a dict of bytes and integers is not visited by
the collector at all.

A layer that has grown to a share of the one below is merged into it: that keeps the layers few, so that
a look-up asks about three of them, and copies an element about as often as there are layers.
"""

from collections.abc import ItemsView, Iterator, Mapping
from typing import Any, Generic, TypeVar

import attrs

K = TypeVar("K")
V = TypeVar("V")

_GROWTH = 4
"""A layer has more than this many times the entries of the one above it."""


@attrs.frozen(eq=False)
class LayeredMap(Mapping[K, V], Generic[K, V]):
    """A persistent map whose values are never None; equal contents are equal values."""

    _layers: tuple[dict[K, V | None], ...] = ()
    """The oldest first; None hides a key of the layers below. Only the others' keys are hidden."""
    _length: int = 0

    def __getitem__(self, key: K) -> V:
        for layer in reversed(self._layers):
            if key in layer:
                value = layer[key]
                if value is None:
                    break
                return value
        raise KeyError(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self._merged())

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LayeredMap):
            return NotImplemented
        if self._length != other._length:
            return False
        return self._layers is other._layers or self._merged() == other._merged()

    def __hash__(self) -> int:
        return hash(self._length)  # the layers of equal maps may differ

    def items(self) -> ItemsView[K, V]:
        """Give all entries. Cost: the size of the map."""
        return self._merged().items()

    def set(self, key: K, value: V) -> "LayeredMap[K, V]":
        """Give a map in which `key` has `value`."""
        opened = OpenLayeredMap(self)
        opened[key] = value
        return opened.close()

    def delete(self, key: K) -> "LayeredMap[K, V]":
        """Give a map without `key`; raises `KeyError` if it is not there."""
        if key not in self:
            raise KeyError(key)
        opened = OpenLayeredMap(self)
        opened.remove(key)
        return opened.close()

    def _merged(self) -> dict[K, V]:
        """Give all entries in a dict that is only to be read: a single layer hides nothing, and is it."""
        if len(self._layers) == 1:
            return self._layers[0]  # type: ignore[return-value]
        merged: dict[K, Any] = {}
        for layer in self._layers:
            merged.update(layer)
        if len(merged) > self._length:
            merged = {key: value for key, value in merged.items() if value is not None}
        return merged


class OpenLayeredMap(Generic[K, V]):
    """The transient of a `LayeredMap`, alive within one call."""

    __slots__ = ("_before", "_changes", "_length", "_newest_first")

    def __init__(self, before: LayeredMap[K, V]) -> None:
        self._before = before
        self._changes: dict[K, V | None] = {}
        self._newest_first = (self._changes, *reversed(before._layers))
        self._length = before._length

    def get(self, key: K) -> V | None:
        """Give the value of `key`, or None."""
        for layer in self._newest_first:
            if key in layer:
                return layer[key]
        return None

    def __setitem__(self, key: K, value: V) -> None:
        self._length += self.get(key) is None
        self._changes[key] = value

    def remove(self, key: K) -> None:
        """Remove `key`, which the caller knows to be there."""
        self._length -= 1
        self._changes[key] = None

    def add_if_all_new(self, entries: dict[K, V]) -> bool:
        """Add `entries` if no layer has heard of any of their keys; tell whether it was done.

        Much cheaper than one by one, and nearly always possible.
        """
        for layer in self._newest_first:
            if not layer.keys().isdisjoint(entries):
                return False
        self._changes.update(entries)
        self._length += len(entries)
        return True

    def close(self) -> LayeredMap[K, V]:
        """Freeze. The transient must not be used afterwards."""
        if not self._changes:
            return self._before
        layers = [*self._before._layers, self._changes]
        while len(layers) > 1 and len(layers[-2]) <= _GROWTH * len(layers[-1]):
            upper = layers.pop()
            merged = layers[-1].copy()
            merged.update(upper)
            layers[-1] = merged
        if len(layers) == 1:
            _forget_hidden(layers[0], self._length)
        return LayeredMap(tuple(layers), self._length)


def _forget_hidden(bottom: dict[K, V | None], length: int) -> None:
    """Drop the entries that hide a key: below the lowest layer there is nothing to hide."""
    if len(bottom) > length:
        for key in [key for key, value in bottom.items() if value is None]:
            del bottom[key]
