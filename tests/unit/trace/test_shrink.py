"""Making a history that differs small."""

from collections.abc import Sequence
from functools import partial

import pytest

from kvsched_fp import (
    Event,
    FinishRequests,
    Schedule,
    SchedulerConfig,
    SchedulerOutput,
    Update,
    initial_state,
    step,
)
from kvsched_fp.trace.shrink import Judge, repair, shrink
from kvsched_fp.trace.simpler import measure
from kvsched_fp.trace.smaller import units_of
from kvsched_fp.workloads.play import play
from tests.unit.trace.helpers import REQUESTS, small_config
from tests.unit.workloads.helpers import make_workload

CONFIG = small_config()


@pytest.fixture(scope="module")
def events() -> tuple[Event, ...]:
    """Give the history of a small run."""
    return tuple(played.event for played in play(CONFIG, make_workload(*REQUESTS)))


def _first_preemption(candidate: Sequence[Event], config: SchedulerConfig = CONFIG) -> int | None:
    """Judge: a scheduler that differs at the first preemption."""
    state = initial_state(config)
    for number, event in enumerate(candidate, 1):
        state, outcome = step(state, event)
        if isinstance(outcome, SchedulerOutput) and outcome.preempted_request_ids:
            return number
    return None


def test_a_live_judge_lets_everything_go_that_does_not_matter(events: tuple[Event, ...]) -> None:
    """What is left ends at the difference, still shows it, and no single part of it can go."""
    shrunk = shrink(CONFIG, events, _first_preemption)

    assert shrunk is not None
    assert shrunk.is_minimal
    assert len(shrunk.events) == _first_preemption(shrunk.events)
    assert len(shrunk.events) < len(events) // 3
    for unit in units_of(shrunk.events):
        rest = repair(CONFIG, [event for index, event in enumerate(shrunk.events) if index not in unit])
        assert rest is None or _first_preemption(rest) is None


def _judge_of(config: SchedulerConfig) -> Judge:
    """Judge of a configuration: a scheduler that differs at the first preemption."""
    return partial(_first_preemption, config=config)


def test_the_configuration_gets_simpler_where_the_judge_can_be_asked(events: tuple[Event, ...]) -> None:
    """What does not matter for a preemption is at its default, and the pool fits what is left."""
    shrunk = shrink(CONFIG, events, _first_preemption, judge_of=_judge_of)
    kept = shrink(CONFIG, events, _first_preemption)

    assert shrunk is not None
    assert kept is not None
    assert CONFIG == kept.config
    assert len(shrunk.events) == _first_preemption(shrunk.events, config=shrunk.config)
    assert len(shrunk.events) < len(kept.events)
    assert not shrunk.config.enable_kv_cache_events
    assert shrunk.config.num_blocks < CONFIG.num_blocks
    assert measure(shrunk.config, shrunk.events) < measure(kept.config, kept.events)


def test_shrinking_is_deterministic(events: tuple[Event, ...]) -> None:
    """The same history shrinks to the same."""
    assert shrink(CONFIG, events, _first_preemption) == shrink(CONFIG, events, _first_preemption)


def test_what_does_not_differ_does_not_shrink(events: tuple[Event, ...]) -> None:
    """There is nothing to keep."""
    assert shrink(CONFIG, events, lambda _: None) is None


def test_the_tries_are_bounded(events: tuple[Event, ...]) -> None:
    """What was found so far is given, and said not to be minimal."""
    told: list[tuple[int, int]] = []
    shrunk = shrink(
        CONFIG, events, _first_preemption, max_tries=3, tell=lambda *counts: told.append(counts)
    )

    assert shrunk is not None
    assert (3, False) == (shrunk.num_tries, shrunk.is_minimal)
    assert [1, 2, 3] == [count for count, _ in told]
    assert len(shrunk.events) == _first_preemption(shrunk.events)


def test_repair_numbers_steps_again_and_forgets_who_is_gone(events: tuple[Event, ...]) -> None:
    """A result names the step that is due and its rows alone; nobody ends who is not there."""
    steps = units_of(events)
    first_step = next(unit for unit in reversed(steps) if isinstance(events[unit[0]], Schedule))
    candidate = [event for index, event in enumerate(events) if index not in {0, *first_step}]
    repaired = repair(CONFIG, [FinishRequests(("r1", "zz")), *candidate])

    assert repaired is not None
    assert [] == [event for event in repaired if isinstance(event, FinishRequests)]
    results = [event.result for event in repaired if isinstance(event, Update)]
    assert list(range(1, len(results) + 1)) == [result.step_id for result in results]
    assert all("r1" not in result.sampled_token_ids for result in results)


def test_events_that_can_never_fit_are_no_candidate(events: tuple[Event, ...]) -> None:
    """An id that is added twice."""
    assert repair(CONFIG, [events[0], events[0]]) is None
