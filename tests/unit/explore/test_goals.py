"""Goals: a world reaches those of its features, and no others."""

import attrs
import pytest

from kvsched_fp.explore import explore
from kvsched_fp.explore.goals import GOALS
from kvsched_fp.explore.presets import PRESETS

PLAIN = {
    "batch",
    "chunk",
    "preemption",
    "resumed",
    "full-pool",
    "prefix-hit",
    "shared-block",
    "eviction",
    "abort-in-flight",
}
"""What a plain engine reaches, if its pool is short."""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tiny", PLAIN),
        ("pause", PLAIN - {"eviction"} | {"paused", "dropped-output", "reset-done"}),
        ("eagle", PLAIN | {"drafts-accepted", "drafts-rejected", "reset-done", "reset-refused"}),
        ("lora", {"batch", "eviction", "abort-in-flight", "adapter-kept-out"}),
    ],
)
def test_only_what_a_world_has_is_reached(name: str, expected: set[str]) -> None:
    """Of all goals, those of the features that are on."""
    found = explore(attrs.evolve(PRESETS[name], goals=tuple(GOALS)), checks=False)

    assert expected == {goal for goal, depth in found.goals.items() if depth is not None}


def test_no_request_reaches_nothing() -> None:
    """Empty steps, pauses and resets alone reach no goal."""
    world = PRESETS["pause"]
    found = explore(attrs.evolve(world, goals=tuple(GOALS)), checks=False)
    first = {goal for goal, depth in found.goals.items() if depth == 1}

    assert set() == first
