"""The comparison itself finds what differs, and says where."""

import pytest

from .compare import MISSING, Difference, first_difference


def test_equal() -> None:
    """Equal nested values have no difference."""
    value = {"a": [1, {"b": None}], "c": "x"}

    assert first_difference(value, {"c": "x", "a": [1, {"b": None}]}) is None


@pytest.mark.parametrize(
    ("reference", "oracle", "expected"),
    [
        ({"a": [1, 2]}, {"a": [1, 3]}, Difference("a[1]", 2, 3)),
        ({"a": {"b": [[0]]}}, {"a": {"b": [[1]]}}, Difference("a.b[0][0]", 0, 1)),
        ({"a": [1]}, {"a": [1, 2]}, Difference("a[1]", MISSING, 2)),
        ({"a": [1, 2]}, {"a": [1]}, Difference("a[1]", 2, MISSING)),
        ({"a": 1, "b": 2}, {"a": 1}, Difference("b", 2, MISSING)),
        ({"a": 1}, {"a": 1, "b": 2}, Difference("b", MISSING, 2)),
        ({"a": 1}, {"a": True}, Difference("a", 1, True)),
        ({"a": 1}, {"a": 1.0}, Difference("a", 1, 1.0)),
        ({"a": None}, {"a": []}, Difference("a", None, [])),
    ],
)
def test_first_difference(reference: object, oracle: object, expected: Difference) -> None:
    """The path leads to the first value that differs, and both values stand there."""
    assert expected == first_difference(reference, oracle)


def test_first_of_several() -> None:
    """Of several differences, the first in reading order is reported."""
    assert first_difference([1, 2, 3], [1, 0, 0]) == Difference("[1]", 2, 0)
