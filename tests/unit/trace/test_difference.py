"""The path of the first difference."""

import pytest

from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import ClientOutputs, Emitted
from kvsched_fp.request import FinishReason
from kvsched_fp.trace.difference import MAX_SHOWN, MISSING, Difference, first_difference, plain


@pytest.mark.parametrize(
    ("recorded", "ours", "expected"),
    [
        ((1, 2), (1, 2), None),
        ((1, 2), (1, 3), Difference("p[1]", 2, 3)),
        ((1, 2), (1,), Difference("p[1]", 2, MISSING)),
        ((), (5,), Difference("p[0]", MISSING, 5)),
        (None, 5, Difference("p", None, 5)),
        (True, 1, Difference("p", True, 1)),
        (1.0, 1, Difference("p", 1.0, 1)),
        (OrderedMap({"a": 1}), OrderedMap({"a": 2}), Difference('p["a"]', 1, 2)),
        (OrderedMap({"a": 1}), OrderedMap({"b": 1}), Difference("p[0]", ["a", 1], ["b", 1])),
        (OrderedMap({"a": 1}), OrderedMap({}), Difference("p[0]", ["a", 1], MISSING)),
        (
            OrderedMap({"a": 1, "b": 2}),
            OrderedMap({"b": 2, "a": 1}),
            Difference("p[0]", ["a", 1], ["b", 2]),
        ),
        (
            Emitted(OrderedMap({0: ClientOutputs(finished_request_ids=("a",))})),
            Emitted(OrderedMap({0: ClientOutputs(finished_request_ids=("b",))})),
            Difference("p.clients[0].finished_request_ids[0]", "a", "b"),
        ),
    ],
)
def test_finds_the_first_place(recorded: object, ours: object, expected: Difference | None) -> None:
    """Fields by their name, places by their number, keys of maps by the key."""
    assert expected == first_difference(recorded, ours, "p")


def test_values_are_shown_as_a_trace_has_them() -> None:
    """Members of enums by their value, bytes as digits, records as objects."""
    assert ["stop", "00ff", {"clients": [], "kv_events": []}] == plain(
        (FinishReason.STOP, b"\x00\xff", Emitted())
    )


def test_a_long_value_is_cut_in_a_message() -> None:
    """A prompt of a million tokens is not printed."""
    lines = str(Difference("p", [1] * 1000, 2)).splitlines()

    assert ["p", "  ours:     2"] == [lines[0], lines[2]]
    assert len(lines[1]) <= MAX_SHOWN + 20
