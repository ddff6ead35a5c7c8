"""The simulated clock."""

import pytest

from kvsched_fp.errors import InvalidInputError
from kvsched_fp.workloads.clock import Pipeline, StepCost, max_steps_in_flight
from tests.unit.worlds import make_config


def test_a_step_costs_its_base_and_its_tokens() -> None:
    """An empty one costs nothing, and nobody had to plan it."""
    cost = StepCost(base=1.0, per_token=0.5, engine=0.25)

    assert (3.0, 0.0) == (cost.seconds(4), cost.seconds(0))
    assert (0.25, 0.0) == (cost.planning_seconds(4), cost.planning_seconds(0))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base", -1.0),
        ("base", float("nan")),
        ("per_token", float("inf")),
        ("per_token", "1"),
        ("base", 1e7),
        ("engine", -0.1),
    ],
)
def test_refuses_a_cost_that_is_no_duration(field: str, value: float) -> None:
    """Costs are finite and not negative."""
    with pytest.raises(
        InvalidInputError, match=f"step cost, {field}: .*a number of seconds from 0 to 1,000,000"
    ):
        StepCost(**{field: value})


def test_one_stage_takes_one_step_after_the_other() -> None:
    """A step that is sent early waits, one that is sent late begins when it is sent."""
    pipeline = Pipeline(1)

    assert [3.0, 5.0, 11.0] == [pipeline.send(0.0, 3.0), pipeline.send(1.0, 2.0), pipeline.send(10.0, 1.0)]


def test_stages_share_a_step_and_work_at_the_same_time() -> None:
    """Equal steps come out of two stages twice as often as out of one."""
    pipeline = Pipeline(2)

    assert [4.0, 6.0, 8.0] == [pipeline.send(0.0, 4.0) for _ in range(3)]


def test_a_short_step_does_not_overtake_a_long_one() -> None:
    """It waits in front of every stage that the long one is in."""
    pipeline = Pipeline(2)

    assert 8.0 == pipeline.send(0.0, 8.0)
    # Into the first stage at 4, out of it at 5, into the second one at 8.
    assert 9.0 == pipeline.send(0.0, 2.0)


def test_an_empty_step_comes_out_behind_the_one_ahead_and_delays_nothing() -> None:
    """Results come back in the order of the steps."""
    pipeline = Pipeline(2)

    assert [4.0, 4.0, 6.0] == [pipeline.send(0.0, 4.0), pipeline.send(0.0, 0.0), pipeline.send(0.0, 4.0)]


@pytest.mark.parametrize(
    ("num_stages", "is_async", "expected"), [(1, False, 1), (1, True, 2), (4, False, 4), (4, True, 5)]
)
def test_steps_in_flight(num_stages: int, is_async: bool, expected: int) -> None:
    """One per stage keeps them busy; asynchronous scheduling plans one more."""
    config = make_config(pipeline_parallel_size=num_stages, async_scheduling=is_async)

    assert expected == max_steps_in_flight(config)
