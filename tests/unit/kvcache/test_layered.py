"""The layered map: a dict to the outside, whose versions live side by side."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp.kvcache.layered import LayeredMap, OpenLayeredMap

KEYS = st.integers(0, 30)
CALLS = st.lists(st.lists(st.tuples(KEYS, st.none() | st.integers(0, 5)), max_size=12), max_size=20)
"""Calls, each a list of changes; None removes the key."""


def apply_call(before: LayeredMap[int, int], model: dict[int, int], call: list) -> LayeredMap[int, int]:
    """Make the changes of one call in a transient, and in a dict beside it."""
    opened = OpenLayeredMap(before)
    for key, value in call:
        assert model.get(key) == opened.get(key)
        if value is not None:
            opened[key] = model[key] = value
        elif key in model:
            opened.remove(key)
            del model[key]
    return opened.close()


@given(CALLS)
def test_map_is_a_dict_and_old_versions_stay(calls: list) -> None:
    """After every call the map reads as a dict does, and every earlier version as it did."""
    current: LayeredMap[int, int] = LayeredMap()
    model: dict[int, int] = {}
    versions = [(current, dict(model))]
    for call in calls:
        current = apply_call(current, model, call)
        versions.append((current, dict(model)))

    for version, contents in versions:
        assert contents == dict(version.items())
        assert len(contents) == len(version)
        assert contents.keys() == set(version)
        assert [contents.get(key) for key in range(31)] == [version.get(key) for key in range(31)]


@given(CALLS)
def test_equal_contents_are_equal_values(calls: list) -> None:
    """How the contents came about does not show in `==` and `hash`."""
    current: LayeredMap[int, int] = LayeredMap()
    model: dict[int, int] = {}
    for call in calls:
        current = apply_call(current, model, call)
    at_once: LayeredMap[int, int] = LayeredMap()
    for key, value in sorted(model.items()):
        at_once = at_once.set(key, value)

    assert at_once == current
    assert hash(at_once) == hash(current)
    assert at_once.set(99, 1) != current
    assert current == copy.deepcopy(current)


@given(st.dictionaries(KEYS, st.integers(0, 5)), st.dictionaries(KEYS, st.integers(0, 5), min_size=1))
def test_entries_are_added_at_once_only_if_all_are_new(present: dict, entries: dict) -> None:
    """A run of entries goes in whole, or, with a key that is known, not at all."""
    before: LayeredMap[int, int] = LayeredMap()
    for key, value in present.items():
        before = before.set(key, value)
    opened = OpenLayeredMap(before)
    added = opened.add_if_all_new(entries)

    assert present.keys().isdisjoint(entries) == added
    assert (present | entries if added else present) == dict(opened.close().items())


def test_key_that_was_removed_counts_as_known() -> None:
    """Entering it at once would skip the check of the layers below, so it is left to the slow way."""
    opened = OpenLayeredMap(LayeredMap[int, int]().set(1, 1))
    opened.remove(1)

    assert not opened.add_if_all_new({1: 2})


def test_unknown_key_is_a_key_error() -> None:
    """As in a dict, for reading and for removing."""
    current: LayeredMap[int, int] = LayeredMap()
    with pytest.raises(KeyError, match="7"):
        current[7]

    with pytest.raises(KeyError, match="7"):
        current.delete(7)


def test_key_is_removed_from_a_layer_below() -> None:
    """A map without the key is another one, and asking it for the key is an error."""
    before: LayeredMap[int, int] = LayeredMap()
    for key in range(10):
        before = before.set(key, key)
    after = before.delete(3)

    assert {key: key for key in range(10) if key != 3} == dict(after.items())
    assert 3 == before[3]
    with pytest.raises(KeyError, match="3"):
        after[3]


def test_map_from_which_all_was_removed_holds_nothing() -> None:
    """Below the lowest layer there is nothing that a removed key could hide."""
    emptied = LayeredMap[int, int]().set(1, 1).delete(1)

    assert 0 == sum(map(len, emptied._layers))


def test_maps_of_one_size_differ_by_their_contents() -> None:
    """Another value, or another key, makes another map."""
    one: LayeredMap[int, int] = LayeredMap[int, int]().set(1, 1)

    assert one != LayeredMap[int, int]().set(1, 2)
    assert one != LayeredMap[int, int]().set(2, 1)


def test_layers_stay_few_and_removed_keys_are_forgotten() -> None:
    """Ten thousand calls that enter and remove leave a handful of layers and no litter."""
    current: LayeredMap[int, int] = LayeredMap()
    for key in range(10_000):
        opened = OpenLayeredMap(current)
        opened[key] = key
        if key >= 500:
            opened.remove(key - 500)
        current = opened.close()
        layers = current._layers

        assert len(layers) <= 7
        assert sum(map(len, layers)) <= 3 * max(len(current), 20)


def test_call_that_changes_nothing_gives_the_same_map() -> None:
    """So that a step without cached blocks shares everything."""
    current = LayeredMap[int, int]().set(1, 1)

    assert OpenLayeredMap(current).close() is current
