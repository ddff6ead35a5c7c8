"""OrderedMap is a frozen dict whose order is part of its value."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp.ordered import OrderedMap

ITEMS = st.lists(
    st.tuples(st.text(max_size=2), st.integers(0, 3)), unique_by=lambda item: item[0], max_size=6
)


@given(ITEMS)
def test_reads_like_the_dict_that_it_was_made_from(items: list[tuple[str, int]]) -> None:
    """Keys, values, items, length and look-ups are those of a dict of the same items."""
    model = dict(items)
    mapping = OrderedMap(items)

    assert list(model.items()) == list(mapping.items())
    assert list(model) == list(mapping) == list(mapping.keys())
    assert list(model.values()) == list(mapping.values())
    assert len(model) == len(mapping)
    assert all(key in mapping and model[key] == mapping[key] for key in model)
    assert "missing" not in mapping


@given(ITEMS.flatmap(lambda items: st.tuples(st.just(items), st.permutations(items))))
def test_equal_means_equal_items_in_equal_order(
    orders: tuple[list[tuple[str, int]], list[tuple[str, int]]],
) -> None:
    """Two are equal when their item lists are; then their hashes are equal too."""
    left, right = map(OrderedMap, orders)

    assert (orders[0] == orders[1]) == (left == right)
    assert left != right or hash(left) == hash(right)


def test_is_not_equal_to_a_plain_dict() -> None:
    """A dict has no order that counts, so it is never equal."""
    assert OrderedMap({"a": 1}) != {"a": 1}


def test_later_changes_of_the_source_do_not_show() -> None:
    """The constructor copies; only `adopt` takes the dict over."""
    source = {"a": 1}
    copied, adopted = OrderedMap(source), OrderedMap.adopt(source)
    source["b"] = 2

    assert ["a"] == list(copied)
    assert ["a", "b"] == list(adopted)


def test_cannot_be_changed() -> None:
    """There is no way to set an item or an attribute."""
    mapping = OrderedMap({"a": 1})
    with pytest.raises(TypeError):
        mapping["a"] = 2
    with pytest.raises(AttributeError, match="immutable"):
        mapping.extra = 1
    with pytest.raises(AttributeError, match="immutable"):
        mapping._items = {}

    assert 1 == mapping["a"]


def test_thawed_items_are_a_copy() -> None:
    """What is done to the dict does not show in the mapping."""
    mapping = OrderedMap({"a": 1})
    thawed = mapping.thaw()
    thawed["b"] = 2

    assert {"a": 1, "b": 2} == thawed
    assert OrderedMap({"a": 1}) == mapping


def test_missing_key_is_an_error() -> None:
    """A look-up of a key that is not there raises KeyError, as a dict does."""
    with pytest.raises(KeyError):
        OrderedMap({"a": 1})["b"]


@given(ITEMS)
def test_survives_copying_and_pickling(items: list[tuple[str, int]]) -> None:
    """A copy is an equal value."""
    mapping = OrderedMap(items)

    assert mapping == copy.deepcopy(mapping)
    assert mapping == pickle.loads(pickle.dumps(mapping))
