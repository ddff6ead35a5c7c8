"""A state is a value."""

import copy
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp import (
    SchedulerConfig,
    SchedulingPolicy,
    add_request,
    finish_requests,
    initial_state,
    schedule,
    update,
)
from kvsched_fp.ids import RequestId
from kvsched_fp.queues import make_queue
from kvsched_fp.state import has_unfinished_requests, live_request_ids, num_waiting_requests
from tests.unit.walks import CONFIGS, KINDS, Walk, walk
from tests.unit.worlds import make_config, make_request, make_result, make_state, run_step, run_steps

WALKS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 63)), max_size=40)


@pytest.mark.parametrize("config", CONFIGS)
@given(numbers=WALKS)
def test_no_event_changes_the_state_that_it_is_applied_to(config: SchedulerConfig, numbers: Walk) -> None:
    """[M-STATE-01] After every event the state from before is what it was."""
    kept = copy.deepcopy(initial_state(config))
    for before, _, after, _ in walk(config, numbers):
        assert kept == before

        kept = copy.deepcopy(after)


@pytest.mark.parametrize("config", CONFIGS)
@given(numbers=WALKS)
def test_equal_histories_give_equal_states(config: SchedulerConfig, numbers: Walk) -> None:
    """[M-STATE-02, M-STEP-02] The same events again give equal states, hashes and outcomes."""
    for (_, _, first, out), (_, _, second, again) in zip(
        walk(config, numbers), walk(config, numbers), strict=True
    ):
        assert first == second
        assert hash(first) == hash(second)
        assert out == again


@pytest.mark.parametrize("config", CONFIGS)
@given(numbers=WALKS)
def test_live_request_is_in_exactly_one_queue(config: SchedulerConfig, numbers: Walk) -> None:
    """[M-STATE-04] The three queues are the live requests, each once, and so are the maps."""
    for _, _, state, _ in walk(config, numbers):
        queued = [*state.running, *state.waiting, *state.kv_holding_waiting]

        assert sorted(state.requests) == sorted(queued)
        assert set(state.requests) == set(state.progress) == set(state.add_numbers)
        assert set(state.deferred) <= {*state.waiting, *state.kv_holding_waiting}
        assert set(state.kv.tables) <= {*state.running, *state.kv_holding_waiting}


def test_one_state_can_go_two_ways() -> None:
    """[M-STATE-01] Two branches of one state know nothing of each other."""
    root = run_steps(make_state(make_config(), make_request("a")), 1)
    left, _ = run_step(add_request(root, make_request("b")))
    right, _ = run_step(root)

    assert ("a", "b") == left.running
    assert ("a",) == right.running == root.running
    assert right == run_step(root)[0]


def test_request_that_came_and_went_leaves_no_trace() -> None:
    """[M-STATE-02] Two requests that waited and were ended, in either order, leave equal states behind."""
    state = run_steps(make_state(make_config(max_num_seqs=1), make_request("a")), 1)
    state = add_request(add_request(state, make_request("b")), make_request("c"))
    ends = [finish_requests(state, map(RequestId, ids)) for ids in ("bc", "cb")]
    told = [run_step(end)[0] for end in ends]

    assert ("b", "c") == ends[0].finished_request_ids
    assert told[0] == told[1]
    assert hash(told[0]) == hash(told[1])
    assert {"a"} == set(told[0].requests) == set(told[0].progress) == set(told[0].add_numbers)


SCRIPT = """
from tests.unit.walks import CONFIGS, KINDS, walk
for index, config in enumerate(CONFIGS):
    numbers = [(KINDS[(7 * i + i // 10 + index) % 10], (29 * i + 11 * index) % 64) for i in range(150)]
    for _, event, state, outcome in walk(config, numbers):
        kv = state.kv
        print(event, outcome, state.emitted, state.running, list(state.waiting), kv.pool.free_blocks())
"""


def test_order_does_not_depend_on_the_hash_seed() -> None:
    """[M-STATE-03] Processes with different seeds of `hash()` print the same history, byte by byte."""
    printed = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    ]

    assert printed[0] == printed[1] == printed[2]
    assert printed[0].count(b"SchedulerOutput") > 100


@pytest.mark.parametrize("policy", list(SchedulingPolicy))
def test_initial_state_is_empty(policy: SchedulingPolicy) -> None:
    """Nothing has happened, and both queues are of the kind that the policy says."""
    state = initial_state(make_config(policy=policy))

    assert make_queue(policy) == state.waiting == state.kv_holding_waiting
    assert not has_unfinished_requests(state)
    assert 16 == state.kv.pool.num_free_blocks
    assert initial_state(make_config(policy=policy)) == state


def test_live_requests_can_be_listed() -> None:
    """They come in the order in which they were added, whoever runs; waiting ones can be counted."""
    state = make_state(make_config(max_num_seqs=1), *map(make_request, "cab"))
    state = run_steps(state, 1)

    assert ["c", "a", "b"] == live_request_ids(state)
    assert 2 == num_waiting_requests(state)
    assert has_unfinished_requests(state)


def test_states_of_one_history_can_be_kept_in_a_set() -> None:
    """[M-STATE-01] A state has a hash, so it can be remembered by a search."""
    state = make_state(make_config(), make_request("a"))
    planned, output = schedule(state)
    done = update(planned, make_result(planned, output))

    assert 3 == len({state, planned, done, schedule(state)[0]})
