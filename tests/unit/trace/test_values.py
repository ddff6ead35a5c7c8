"""The codecs of plain values."""

import enum
import json
from typing import Any

import attrs
import pytest

from kvsched_fp.errors import InvalidEvent
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.trace.values import (
    BOOLEAN,
    HEX,
    INTEGER,
    INTEGER_SET,
    INTEGERS,
    MAX_RUN_TOTAL,
    NUMBER,
    TEXT,
    Codec,
    CodecError,
    enum_of,
    map_of,
    optional,
    record,
    tuple_of,
    union,
)


class Colour(enum.Enum):
    """An enum to write."""

    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Point:
    """A record to write."""

    x: int
    y: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.x < 0:
            raise InvalidEvent("x", self.x, ">= 0")


@attrs.frozen
class Empty:
    """A record without fields."""


POINT = record(Point, x=INTEGER, y=optional(INTEGER))
SHAPE = union(point=(Point, POINT), empty=(Empty, record(Empty)))


@pytest.mark.parametrize(
    ("codec", "value", "expected"),
    [
        (BOOLEAN, True, True),
        (INTEGER, 2**60, 2**60),
        (TEXT, "a\ud800ü", "a\ud800ü"),
        (NUMBER, 1, 1.0),
        (NUMBER, float("inf"), "inf"),
        (NUMBER, float("-inf"), "-inf"),
        (HEX, b"\x00\xff", "00ff"),
        (optional(INTEGER), None, None),
        (tuple_of(TEXT), ("a", "b"), ["a", "b"]),
        (map_of(TEXT, INTEGER), OrderedMap({"b": 1, "a": 2}), [["b", 1], ["a", 2]]),
        (enum_of(Colour), Colour.BLUE, "blue"),
        (INTEGERS, (), []),
        (INTEGERS, (5, 6, 9, 1, 2, 3, 4), [5, 6, 9, [1, 4]]),
        (INTEGERS, tuple(range(1000)), [[0, 1000]]),
        (INTEGER_SET, frozenset({9, 3, 1, 2}), [[1, 3], 9]),
        (POINT, Point(1), {"x": 1, "y": None}),
        (SHAPE, Point(1, 2), {"kind": "point", "x": 1, "y": 2}),
        (SHAPE, Empty(), {"kind": "empty"}),
    ],
)
def test_writes_and_reads_back(codec: Codec[Any], value: Any, expected: Any) -> None:
    """Every kind of value has one way to be written."""
    written = codec.encode(value)

    assert expected == written
    assert value == codec.decode(json.loads(json.dumps(written)), "path")


@pytest.mark.parametrize(
    ("codec", "value", "path", "allowed"),
    [
        (BOOLEAN, 1, "p", "true or false"),
        (INTEGER, True, "p", "an integer"),
        (INTEGER, 1.0, "p", "an integer"),
        (TEXT, None, "p", "a text"),
        (NUMBER, "Infinity", "p", "a number"),
        (NUMBER, True, "p", "a number"),
        (HEX, "0g", "p", "hexadecimal"),
        (HEX, "FF", "p", "lower case"),
        (HEX, 5, "p", "hexadecimal"),
        (tuple_of(INTEGER), {}, "p", "a list"),
        (tuple_of(INTEGER), [1, "2"], "p[1]", "an integer"),
        (map_of(TEXT, INTEGER), [["a"]], "p[0]", "a pair"),
        (map_of(TEXT, INTEGER), [["a", 1], ["a", 2]], "p[1][0]", "each key once"),
        (map_of(TEXT, INTEGER), [[1, 1]], "p[0][0]", "a text"),
        (map_of(TEXT, INTEGER), [["a", "b"]], "p[0][1]", "an integer"),
        (enum_of(Colour), "green", "p", "one of 'red', 'blue'"),
        (INTEGERS, [1, "2"], "p[1]", "an integer, or a run"),
        (INTEGERS, [[1, 2]], "p[0]", "an integer, or a run [first, count] of 3 or more"),
        (INTEGERS, [[1, True]], "p[0]", "an integer, or a run"),
        (INTEGERS, [7, [1, MAX_RUN_TOTAL + 1]], "p[1]", f"{MAX_RUN_TOTAL} integers in all"),
        (INTEGERS, [[1, 10**15]], "p[0]", f"{MAX_RUN_TOTAL} integers in all"),
        (POINT, {"x": 1}, "p.y", "an object with the keys x, y"),
        (POINT, {"x": 1, "y": 2, "z": 3}, "p", "an object with the keys x, y"),
        (POINT, [1, 2], "p", "an object with the keys x, y"),
        (POINT, {"x": "1", "y": 2}, "p.x", "an integer"),
        (POINT, {"x": -1, "y": 2}, "p.x", ">= 0"),
        (SHAPE, {"x": 1, "y": 2}, "p", 'an object whose "kind" is one of point, empty'),
        (SHAPE, {"kind": ["point"]}, "p", 'an object whose "kind"'),
        (SHAPE, "point", "p", 'an object whose "kind"'),
        (SHAPE, {"kind": "empty", "x": 1}, "p", "an object with the keys none"),
    ],
)
def test_refuses_what_does_not_belong_there(codec: Codec[Any], value: Any, path: str, allowed: str) -> None:
    """The error has the path to the place, the value and what is allowed."""
    with pytest.raises(CodecError) as caught:
        codec.decode(value, "p")

    assert path == caught.value.field
    assert allowed in caught.value.allowed


def test_a_codec_names_every_field() -> None:
    """A field that is added to a record cannot be forgotten in its codec."""
    with pytest.raises(TypeError, match=r"Point: a codec for \['x'\], but it has \['x', 'y'\]"):
        record(Point, x=INTEGER)


def test_a_union_refuses_to_write_a_stranger() -> None:
    """What has no name cannot be written."""
    with pytest.raises(CodecError, match="kind: got 'Colour'; allowed: one of point, empty"):
        SHAPE.encode(Colour.RED)
