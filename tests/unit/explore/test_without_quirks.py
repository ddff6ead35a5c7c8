"""Without the reference's quirks, no world has a fault, and nobody in it is stuck."""

from typing import Any

import attrs
import pytest

from kvsched_fp.config import Quirk
from kvsched_fp.errors import InvalidConfig
from kvsched_fp.explore import Limits, RequestKind, World, explore
from kvsched_fp.explore.presets import BASE, PRESETS

INPUT = "waiting for the next input of a session"

DEPTHS = {
    "small": 4,
    "async-reset": 9,
    "async-drafts": 9,
    "pause": 7,
    "grammar": 6,
    "lora": 8,
    "cadence": 10,
    "v1": 8,
    "hash-ahead": 12,
    "drafts": 10,
    "two": 18,
    "held prompts": 22,
}
"""How far the larger worlds are explored: at least until the pool has been full."""


def _world(name: str, *kinds: RequestKind, max_in_flight: int = 1, **changes: Any) -> World:
    config = attrs.evolve(BASE, max_num_seqs=3, scheduler_reserve_full_isl=False, **changes)
    return World(name=name, config=config, kinds=kinds, max_in_flight=max_in_flight)


SESSION = RequestKind(name="s", num_prompt_tokens=2, max_tokens=2, num_inputs=1)
REQUEST = RequestKind(name="a", num_prompt_tokens=3, max_tokens=3)

_OTHER = RequestKind(name="t", num_prompt_tokens=2, max_tokens=1, num_inputs=1)

SESSIONS = [
    _world("two", attrs.evolve(SESSION, count=2), REQUEST),
    _world(
        "two that run", attrs.evolve(SESSION, priority=1), attrs.evolve(REQUEST, count=2), policy="priority"
    ),
    _world(
        "held prompts",
        SESSION,
        RequestKind(name="a", num_prompt_tokens=7, max_tokens=1),
        RequestKind(name="b", num_prompt_tokens=2, max_tokens=5),
        prefill_schedule_interval=3,
        num_blocks=5,
        max_model_len=8,
        max_num_batched_tokens=3,
    ),
    _world("each other", attrs.evolve(SESSION, num_prompt_tokens=3), _OTHER),
    _world(
        "each other by rank",
        attrs.evolve(SESSION, num_prompt_tokens=3, priority=1),
        _OTHER,
        policy="priority",
        use_v2_model_runner=False,
    ),
    _world("three of them", attrs.evolve(SESSION, count=3), num_blocks=5),
    _world("stages", SESSION, REQUEST, max_in_flight=3, pipeline_parallel_size=2, async_scheduling=True),
]
"""Worlds in which requests that run or wait with blocks in hand lack each other's."""

READING_AHEAD = _world(
    "reading ahead",
    RequestKind(name="a", num_prompt_tokens=8, count=2),
    RequestKind(name="b", num_prompt_tokens=5, max_tokens=2),
    num_blocks=5,
    max_model_len=8,
    max_num_batched_tokens=6,
    max_num_new_slots_for_drafting=1,
    num_spec_tokens=2,
    num_prefill_lookahead_tokens=2,
)
"""Prompts of max_model_len in pieces, the last tokens of which a drafter reads."""

PINNED: dict[str, tuple[int, int, int, dict[str, int]]] = {
    "tiny": (617, 1795, 12, {"done": 25}),
    "small": (241, 626, 4, {"done": 3, "waiting for the end of a pause": 12}),
    "priority": (700, 1712, 15, {"done": 35}),
    "async": (780, 2500, 18, {"done": 25}),
    "async-reset": (448, 1708, 9, {"done": 6}),
    "drafts": (558, 1373, 10, {"done": 9}),
    "async-drafts": (390, 1081, 9, {"done": 10}),
    "eagle": (512, 1846, 17, {"done": 22}),
    "pause": (392, 1272, 7, {"done": 8, "waiting for the end of a pause": 11}),
    "grammar": (490, 1263, 6, {"done": 4, "waiting for a grammar": 4}),
    "async-grammar": (342, 1309, 10, {"done": 8, "waiting for a grammar": 5}),
    "lora": (831, 1960, 8, {"done": 10}),
    "cadence": (976, 3159, 10, {"done": 14}),
    "session": (1258, 4957, 15, {"done": 17, INPUT: 22}),
    "v1": (560, 1306, 8, {"done": 4}),
    "limits": (822, 1815, 15, {"done": 55}),
    "hash-ahead": (710, 2618, 12, {"done": 9}),
    "pipeline": (677, 2293, 14, {"done": 14}),
    "two": (1623, 3835, 18, {"done": 3, INPUT: 61}),
    "two that run": (672, 1289, 23, {"done": 8, INPUT: 18}),
    "held prompts": (2004, 3715, 22, {"done": 8, INPUT: 45}),
    "each other": (513, 1135, 18, {"done": 5, INPUT: 36}),
    "each other by rank": (675, 1507, 18, {"done": 5, INPUT: 36}),
    "three of them": (3553, 9559, 29, {"done": 10, INPUT: 174}),
    "stages": (982, 2189, 28, {"done": 5, INPUT: 12}),
    "reading ahead": (163, 267, 18, {"done": 10}),
}
"""Per world: states, moves, depth, and what the standstills wait for."""


def _explored(world: World, *quirks: Quirk) -> Any:
    world = attrs.evolve(world, config=attrs.evolve(world.config, quirks=quirks))
    found = explore(world, limits=Limits(max_depth=DEPTHS.get(world.name)))
    return found.counterexample, (found.num_states, found.num_moves, found.depth, found.standstills)


@pytest.mark.parametrize(
    "world", [*PRESETS.values(), *SESSIONS, READING_AHEAD], ids=lambda world: world.name
)
def test_a_world_without_quirks_has_no_fault(world: World) -> None:
    """No invariant is broken, nobody is stuck, and it is as large as ever."""
    counterexample, sizes = _explored(world)

    assert counterexample is None
    assert PINNED[world.name] == sizes


@pytest.mark.parametrize(
    "changes",
    [
        {
            "enable_chunked_prefill": False,
            "num_spec_tokens": 1,
            "max_num_new_slots_for_drafting": 1,
            "max_num_batched_tokens": 6,
        },
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 6, "max_num_scheduled_tokens": 5},
        {"num_spec_tokens": 2, "max_num_scheduled_tokens": 2},
        {"num_spec_tokens": 2, "num_prefill_lookahead_tokens": 2, "max_num_scheduled_tokens": 1},
        {"num_spec_tokens": 2, "num_prefill_lookahead_tokens": 4, "long_prefill_token_threshold": 3},
    ],
)
def test_steps_that_are_too_small_leave_somebody_stuck(changes: dict[str, Any]) -> None:
    """Deviation D-04: with the quirk, a prompt waits for ever; without it, there is no such world."""
    world = _world("steps", RequestKind(name="a", num_prompt_tokens=6, num_shared_tokens=6, count=2))
    config = attrs.evolve(world.config, max_num_seqs=1, **changes)
    found = explore(attrs.evolve(world, config=config, aborts=True))

    assert found.counterexample is not None
    assert "STUCK" == found.counterexample.fault.name
    with pytest.raises(InvalidConfig):
        attrs.evolve(config, quirks=())


def test_slots_for_a_drafter_that_is_not_there_cost_nothing() -> None:
    """Neither the scheduler nor the budgets' invariants count them."""
    world = _world("no drafter", REQUEST, max_num_new_slots_for_drafting=1, max_num_batched_tokens=3)
    found = explore(world)

    assert found.counterexample is None
    assert explore(_world("no drafter", REQUEST, max_num_batched_tokens=3)).num_states == found.num_states
