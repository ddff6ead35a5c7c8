"""What a state holds, and questions to it. That it is a value is tested in `tests/purity/`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp import (
    PauseState,
    SchedulerConfig,
    SchedulingPolicy,
    initial_state,
    set_pause_state,
)
from kvsched_fp.queues import make_queue
from kvsched_fp.state import (
    has_unfinished_requests,
    live_request_ids,
    num_unfinished_requests,
    num_waiting_requests,
)
from tests.unit.walks import CONFIGS, KINDS, Walk, walk
from tests.unit.worlds import make_config, make_request, make_state, run_steps

WALKS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 63)), max_size=40)


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


@pytest.mark.parametrize(
    ("pause_state", "num_alone", "num_unfinished"),
    [(PauseState.UNPAUSED, 1, 3), (PauseState.PAUSED_NEW, 0, 1), (PauseState.PAUSED_ALL, 0, 0)],
)
def test_requests_that_a_pause_keeps_from_running_do_not_count(
    pause_state: PauseState, num_alone: int, num_unfinished: int
) -> None:
    """Unfinished is what may be scheduled: of one that waits, and of one that runs beside two that wait."""
    config = make_config(max_num_seqs=1)
    alone = set_pause_state(make_state(config, make_request("a")), pause_state)
    three = set_pause_state(run_steps(make_state(config, *map(make_request, "abc")), 1), pause_state)

    assert (num_alone, num_unfinished) == (num_unfinished_requests(alone), num_unfinished_requests(three))
    assert [num_alone > 0, num_unfinished > 0] == [*map(has_unfinished_requests, (alone, three))]


@pytest.mark.parametrize("pause_state", [PauseState.UNPAUSED, PauseState.PAUSED_NEW])
def test_session_that_waits_for_input_is_not_unfinished(pause_state: PauseState) -> None:
    """There is nothing to do for it, though it holds blocks; an engine may rest."""
    state = run_steps(make_state(make_config(), make_request("a", resumable=True, max_tokens=1)), 1)
    state = set_pause_state(state, pause_state)

    assert 1 == num_waiting_requests(state)
    assert 0 == num_unfinished_requests(state)
