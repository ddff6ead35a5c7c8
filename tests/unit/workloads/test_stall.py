"""Runs that cannot go on."""

from typing import Any

import attrs
import pytest

from kvsched_fp import SchedulerConfig
from kvsched_fp.workloads.play import play
from kvsched_fp.workloads.stall import StalledError
from tests.unit.workloads.helpers import make_workload
from tests.unit.worlds import make_config


def _stall(
    config: SchedulerConfig, *requests: tuple[float, int, int], max_waiting: int = 256
) -> StalledError:
    with pytest.raises(StalledError) as caught:
        for _ in play(config, make_workload(*requests), max_waiting=max_waiting):
            pass
    return caught.value


UNDERSIZED = make_config(num_blocks=6, allow_undersized_pool=True)
"""5 usable blocks of 4 tokens, for requests of up to 64."""


def test_a_request_that_never_fits_is_named_with_the_reason() -> None:
    """The one behind it may not overtake, so both are stuck."""
    error = _stall(UNDERSIZED, (0.0, 30, 2), (0.0, 4, 2))

    assert ("r1", "r2") == error.request_ids
    assert "nothing can be scheduled; 5 of 5 blocks free; 2 live requests: " in str(error)
    assert "r1 (waiting at place 1, 0 of 30 known tokens computed, 8 blocks for them, " in str(error)
    assert "more than the pool's 5)" in str(error)
    assert "r2 (waiting at place 2, 0 of 4 known tokens computed, 1 blocks for them)" in str(error)


def test_an_output_that_outgrows_the_pool_is_found() -> None:
    """A request that runs alone is preempted for want of a block, and is then too long to be admitted."""
    error = _stall(UNDERSIZED, (0.0, 18, 30))

    assert ("r1",) == error.request_ids
    assert "21 known tokens computed, 6 blocks for them, more than the pool's 5" in str(error)


def test_later_arrivals_are_let_in_before_giving_up() -> None:
    """A stall is reported when nothing can arrive any more."""
    error = _stall(UNDERSIZED, (0.0, 30, 2), (100.0, 4, 2))

    assert ("r1", "r2") == error.request_ids
    assert "100.000 simulated seconds" in str(error)


def test_a_full_queue_ends_the_waiting_for_arrivals() -> None:
    """When no more may wait inside, arrivals cannot help."""
    error = _stall(UNDERSIZED, (0.0, 30, 2), (100.0, 4, 2), max_waiting=1)

    assert ("r1",) == error.request_ids


@pytest.mark.parametrize("changes", [{}, {"async_scheduling": True}, {"pipeline_parallel_size": 2}])
def test_steps_that_only_undo_each_other_are_found(changes: dict[str, Any]) -> None:
    """Without the check at admission, the request is admitted, outgrows the pool and starts again."""
    config = make_config(
        **changes,
        num_blocks=6,
        max_num_batched_tokens=4,
        allow_undersized_pool=True,
        scheduler_reserve_full_isl=False,
        enable_prefix_caching=False,
    )
    error = _stall(config, (0.0, 30, 2))

    assert ("r1",) == error.request_ids
    assert "steps in a row brought no output" in str(error)


def test_a_prompt_that_fills_the_model_length_is_explained() -> None:
    """Its last token would leave no position for the sampled one, so it is never computed."""
    error = _stall(make_config(max_num_batched_tokens=10), (0.0, 64, 2))

    assert "r1 (running, 63 of 64 known tokens computed" in str(error)
    assert "no room for output in max_model_len = 64" in str(error)


def test_only_a_few_stuck_requests_are_described() -> None:
    """The message stays readable; the error has them all."""
    error = _stall(UNDERSIZED, (0.0, 30, 2), *[(0.0, 4, 2)] * 20)

    assert 21 == len(error.request_ids)
    assert str(error).endswith("; and 16 more")


@pytest.mark.parametrize(
    "changes",
    [
        {"async_scheduling": True},
        {"pipeline_parallel_size": 3},
        {"async_scheduling": True, "pipeline_parallel_size": 3},
        {"num_spec_tokens": 3, "num_lookahead_tokens": 3},
    ],
)
def test_a_run_with_steps_in_flight_or_drafts_is_stuck_too(changes: dict[str, Any]) -> None:
    """Steps that are empty because others are in flight are no sign of it; those behind nothing are."""
    config = attrs.evolve(UNDERSIZED, **changes)

    assert ("r1", "r2") == _stall(config, (0.0, 30, 2), (0.0, 4, 2)).request_ids
    assert ("r2",) == _stall(config, (0.0, 6, 4), (9.0, 30, 2)).request_ids
    # It outgrows the pool with its own steps in flight.
    assert ("r1",) == _stall(config, (0.0, 18, 30)).request_ids
