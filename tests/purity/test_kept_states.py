"""A state can be kept, branched from and come back to."""

import gc

import pytest

from kvsched_fp import FinishRequests, ResetPrefixCache, Schedule, step
from kvsched_fp.machine import Outcome

from .histories import NUM_HISTORIES, Moment, history


def _replay(moments: list[Moment]) -> list[Outcome]:
    """Send the events of `moments` to the first state; check the last state, give the outcomes."""
    state = moments[0].before
    outcomes = []
    for moment in moments:
        state, outcome = step(state, moment.event)
        outcomes.append(outcome)

    assert moments[-1].after == state
    assert hash(moments[-1].after) == hash(state)
    return outcomes


@pytest.mark.parametrize("number", range(NUM_HISTORIES))
def test_a_kept_state_replays(number: int) -> None:
    """[M-STATE-01] From every state of a history, the rest of it gives the same outputs and end again."""
    moments = history(number)
    for start in range(len(moments)):
        rest = moments[start:]

        assert [moment.outcome for moment in rest] == _replay(rest)


@pytest.mark.parametrize("number", range(NUM_HISTORIES))
def test_branches_do_not_disturb_each_other(number: int) -> None:
    """[M-STATE-01] What was tried on other branches in between, and thrown away, does not show."""
    moments = history(number)
    expected = [moment.outcome for moment in moments]
    for moment in moments:
        for event in (ResetPrefixCache(reset_running_requests=True), FinishRequests(None), Schedule()):
            branch, _ = step(moment.before, event)
            for _ in range(3):
                branch, _ = step(branch, Schedule())
    gc.collect()

    assert expected == _replay(moments)
