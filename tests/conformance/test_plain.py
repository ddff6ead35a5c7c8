"""The normal form keeps what is part of a value, and nothing else."""

import attrs
import pytest

from kvsched_fp import FinishReason, Progress
from kvsched_fp.ids import BlockHash
from kvsched_fp.kvcache.kv_events import BlockRemoved
from kvsched_fp.ordered import OrderedMap

from .plain import to_plain


def test_order_of_a_map_is_kept() -> None:
    """An `OrderedMap` becomes a list, so that its order is compared."""
    assert to_plain(OrderedMap({"b": 1, "a": 2})) == [["b", 1], ["a", 2]]


def test_sets_are_sorted() -> None:
    """A set becomes a sorted list."""
    assert to_plain(frozenset("bca")) == ["a", "b", "c"]


def test_every_field_is_there() -> None:
    """A record becomes all its fields, so that a new one is noticed."""
    assert [field.name for field in attrs.fields(Progress)] == list(to_plain(Progress()))


def test_members_of_a_union_are_named() -> None:
    """An event of the key-value cache says which it is."""
    expected = {"block_hashes": ["ff"], "group_index": 1, "kind": "BlockRemoved"}

    assert expected == to_plain(BlockRemoved((BlockHash(b"\xff"),), 1))


def test_enums_become_names() -> None:
    """An enum becomes the name of its member, which both sides share."""
    assert to_plain(FinishReason.LENGTH) == "LENGTH"


def test_unknown_values_are_refused() -> None:
    """A value without a normal form is an error, not a guess."""
    with pytest.raises(TypeError, match="no normal form"):
        to_plain(object())
