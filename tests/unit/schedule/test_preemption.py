"""Making room for the request at the cursor.

Most worlds here have two full blocks per request and nothing free, so the next token of the first request
needs a block of somebody else.
"""

import attrs
import pytest

from kvsched_fp import Request, SchedulerState, schedule, update_drafts
from kvsched_fp.ids import RequestId
from tests.unit.worlds import (
    batch,
    blocks_of,
    make_config,
    make_request,
    make_state,
    run_step,
    run_steps,
    run_together,
)

A, B = map(RequestId, "ab")


def make_crowd(
    policy: str, *priorities: int, arrivals: tuple[float, ...] = (), prompts: tuple[int, ...] = ()
) -> SchedulerState:
    """Run a, b, c, ... together until they have 8 computed tokens each, in a pool that is full then."""
    times = arrivals or tuple(map(float, range(len(priorities))))
    lengths = prompts or (7,) * len(priorities)
    requests = [
        make_request(name, length, priority=priority, arrival_time=time)
        for name, length, priority, time in zip("abcdef", lengths, priorities, times, strict=False)
    ]
    config = make_config(usable_blocks=2 * len(requests), policy=policy)
    return run_steps(run_together(config, *requests), 1)


def test_first_come_victim_is_the_last_one() -> None:
    """[S-PRE-01] `a` and `b` take a block each from `c`, though `a` is the least important."""
    state, output = schedule(make_crowd("fcfs", 9, 0, 0))

    assert [("a", 1), ("b", 1)] == batch(output)
    assert ("c",) == output.preempted_request_ids
    assert ("a", "b") == state.running


def test_first_come_victims_go_from_the_back_until_there_is_room() -> None:
    """[S-PRE-01] `a` needs two blocks: `c` gives one, `b` gives the other."""
    config = make_config(usable_blocks=4, max_model_len=16)
    requests = make_request("a", 8), make_request("b", 3), make_request("c", 3)
    state = run_together(config, *requests, a=(1, 2, 3, 4, 5, 6))
    state, output = schedule(state)

    assert [("a", 6)] == batch(output)
    assert ("c", "b") == output.preempted_request_ids
    assert ["b", "c"] == list(state.waiting)


def test_request_with_nobody_behind_it_is_its_own_victim() -> None:
    """[S-PRE-01, S-PRE-05] It gets nothing, and gives everything back."""
    config = make_config(usable_blocks=2, max_model_len=16, allow_undersized_pool=True)
    state, output = run_step(run_steps(make_state(config, make_request("a")), 2))

    assert [] == batch(output)
    assert ("a",) == output.preempted_request_ids
    assert () == blocks_of(state, "a")
    assert () == state.running


@pytest.mark.parametrize(
    ("priorities", "arrivals", "victim"),
    [
        ((0, 1, 2), (1.0, 2.0, 3.0), "c"),
        ((0, 2, 1), (1.0, 2.0, 3.0), "b"),
        ((1, 1, 1), (1.0, 3.0, 2.0), "b"),
        ((1, 1, 0), (2.0, 2.0, 9.0), "a"),
        ((0, 1, 1), (9.0, 5.0, 5.0), "b"),
    ],
)
def test_priority_victim_is_the_least_important(
    priorities: tuple[int, ...], arrivals: tuple[float, ...], victim: str
) -> None:
    """[S-PRE-02] The largest (priority, arrival time) goes; of equal ones the first in scheduling order."""
    _, output = schedule(make_crowd("priority", *priorities, arrivals=arrivals))

    assert (victim,) == output.preempted_request_ids


def test_victim_that_was_passed_over_moves_the_cursor_back() -> None:
    """[S-PRE-03] `a` has no token to compute and is thrown out for `b`; `c` is still looked at."""
    config = make_config(usable_blocks=6, policy="priority")
    requests = make_request("a", priority=9), make_request("b"), make_request("c")
    state = run_steps(run_together(config, *requests, a=()), 1)
    state, output = schedule(state)

    assert [("b", 1), ("c", 1)] == batch(output)
    assert ("a",) == output.preempted_request_ids
    assert ("b", "c") == state.running


def test_two_victims_move_the_cursor_back_twice() -> None:
    """[S-PRE-03] `c` needs two blocks, `a` and `b` have one each; `d` behind is not passed over."""
    requests = [
        make_request("a", 3, priority=9),
        make_request("b", 3, priority=8),
        make_request("c", 8, priority=1),
        make_request("d", 3, priority=0),
    ]
    config = make_config(usable_blocks=5, policy="priority")
    state, output = schedule(run_together(config, *requests, c=(1, 2, 3, 4, 5, 6)))

    assert ("a", "b") == output.preempted_request_ids
    assert [("c", 6), ("d", 1)] == batch(output)
    assert ("c", "d") == state.running


@pytest.mark.parametrize("budget", ["max_num_scheduled_tokens", "max_num_batched_tokens"])
def test_victim_in_the_batch_gives_its_tokens_back(budget: str) -> None:
    """[S-PRE-04, S-BUD-03] With a budget of 3, the tokens of `a` go to `c`, which had got none else."""
    config = make_config(usable_blocks=6, policy="priority", max_num_seqs=3)
    requests = make_request("a", 5, priority=9), make_request("b"), make_request("c")
    state, _ = run_step(run_together(config, *requests), a=(1, 2))
    state = attrs.evolve(state, config=attrs.evolve(config, **{budget: 3}))
    _, output = schedule(state)

    assert ("a",) == output.preempted_request_ids
    assert [("b", 1), ("c", 1)] == batch(output)
    assert 2 == output.total_num_scheduled_tokens


def test_victim_in_the_batch_leaves_no_row() -> None:
    """[S-PRE-04] `a` took the last block in this very step; it goes to `b`, and `a` is in no column."""
    config = make_config(usable_blocks=5, policy="priority")
    requests: list[Request] = [make_request("a", priority=9), make_request("b")]
    state, output = schedule(run_steps(run_together(config, *requests), 1))
    rows = output.scheduled_cached_requests

    assert [("b", 1)] == batch(output)
    assert (
        rows.request_ids,
        rows.new_block_ids,
        rows.num_computed_tokens,
        rows.num_output_tokens,
    ) == ((B,), (((5,),),), (8,), (2,))
    assert () == blocks_of(state, "a")


def test_victims_are_taken_before_it_is_known_whether_they_suffice() -> None:
    """[S-PRE-06] `a` needs two blocks and `b` has one: both are thrown out, and nothing is scheduled."""
    config = make_config(
        usable_blocks=3,
        max_model_len=16,
        max_num_batched_tokens=16,
        allow_undersized_pool=True,
        long_prefill_token_threshold=8,
        scheduler_reserve_full_isl=False,
    )
    state = run_steps(make_state(config, make_request("a", 15), make_request("b", 3)), 1)
    state, output = schedule(state)

    assert ("b", "a") == output.preempted_request_ids
    assert [] == batch(output)
    assert () == state.running


def test_victim_gives_its_drafts_back() -> None:
    """[S-PRE-04] `b` was ahead of `a` with a draft in the batch; the output verifies none of it."""
    config = make_config(usable_blocks=4, policy="priority", num_spec_tokens=1)
    state = run_together(config, make_request("b", 6, priority=1), make_request("a", 8))
    state = update_drafts(state, {B: (50,), A: (60,)})
    _, output = schedule(state)

    assert (B,) == output.preempted_request_ids
    assert [("a", 2)] == batch(output)
    assert {A: (60,)} == dict(output.scheduled_spec_token_ids)
