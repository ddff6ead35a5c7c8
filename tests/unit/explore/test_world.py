"""Worlds: what makes none is refused by name, value and what is allowed."""

from typing import Any

import attrs
import pytest

from kvsched_fp import MINIMAL
from kvsched_fp.errors import InvalidInputError
from kvsched_fp.explore import RequestKind, World
from kvsched_fp.explore.goals import GOALS
from kvsched_fp.explore.presets import PRESETS
from kvsched_fp.explore.world import STOP

KIND = RequestKind(name="a", num_prompt_tokens=3, num_shared_tokens=2, max_tokens=2, count=2)
WORLD = World(name="w", config=MINIMAL, kinds=[KIND])


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"num_prompt_tokens": 0}, "num_prompt_tokens of request a", 0),
        ({"num_shared_tokens": 4}, "num_shared_tokens of request a", 4),
        ({"max_tokens": 0}, "max_tokens of request a", 0),
        ({"count": 0}, "count of request a", 0),
        ({"num_inputs": -1}, "num_inputs of request a", -1),
    ],
)
def test_a_wrong_kind(change: dict[str, Any], field: str, value: int) -> None:
    """The kind and the field are named."""
    with pytest.raises(InvalidInputError) as refused:
        attrs.evolve(KIND, **change)

    assert (field, value) == (refused.value.field, refused.value.value)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kinds": []}, "requests"),
        ({"kinds": [KIND, KIND]}, "requests"),
        ({"kinds": [attrs.evolve(KIND, count=10)]}, "requests"),
        ({"kinds": [attrs.evolve(KIND, num_prompt_tokens=13)]}, "num_prompt_tokens of request a"),
        ({"kinds": [attrs.evolve(KIND, lora_id=1)]}, "lora_id of request a"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"config": attrs.evolve(MINIMAL, runner_type="pooling")}, "runner_type"),
        (
            {
                "config": attrs.evolve(MINIMAL, num_spec_tokens=1),
                "kinds": [attrs.evolve(KIND, num_inputs=1)],
            },
            "num_inputs of request a",
        ),
    ],
)
def test_a_wrong_world(change: dict[str, Any], field: str) -> None:
    """The field is named."""
    with pytest.raises(InvalidInputError) as refused:
        attrs.evolve(WORLD, **change)

    assert field == refused.value.field


def test_requests_of_a_kind_differ_in_their_ids_alone() -> None:
    """Two of them are equal but for that, and ids sort in the order in which they come."""
    one, other = WORLD.make_request(0, 1), WORLD.make_request(0, 2)

    assert "1a" == one.request_id < other.request_id
    assert one == attrs.evolve(other, request_id=one.request_id)
    assert STOP == one.sampling_params.eos_token_id


def test_the_end_of_a_session_is_not_resumable() -> None:
    """Its further inputs are, and all have its id."""
    world = PRESETS["session"]
    more, end = (
        world.make_input(0, world.make_request(0, 1).request_id, is_end=end) for end in (False, True)
    )

    assert ("1s", True) == (more.request_id, more.resumable)
    assert ("1s", False) == (end.request_id, end.resumable)


def test_presets_have_names_and_goals() -> None:
    """Each is found by its name, says what it is for, and must reach something."""
    assert [world.name for world in PRESETS.values()] == list(PRESETS)
    assert all(world.about and world.goals for world in PRESETS.values())


def test_every_goal_is_the_goal_of_some_world() -> None:
    """So each is known to be reachable."""
    reached = {goal for world in PRESETS.values() for goal in world.goals}

    assert set(GOALS) == reached
