"""For every invariant of a run, a run that breaks it with its last step.

Each step is sound by itself: what is wrong happens between two of them, where no step is looked at.
"""

from collections.abc import Callable

import attrs

from kvsched_fp import AddRequest, FinishRequests, PauseState, Schedule, SchedulerState, SetPauseState
from kvsched_fp.invariants import Step
from kvsched_fp.queues import FCFSQueue
from tests.unit.worlds import make_config, make_request, make_state

from .good import A, C, answer, busy_state, pressed_state, ready_state, run, with_kv, with_progress
from .good_features import apply

Run = tuple[Step, ...]
"""Steps, each but the first from the state that the one before made, or from one that was tampered with."""


def _ends_twice() -> Run:
    """Let the last token of `a` come back twice."""
    config = make_config(include_finished_set=True)
    state = apply(make_state(config, make_request("a", 6, max_tokens=1)), Schedule())
    return run(state, answer(state)), run(state, answer(state))


def _runner_is_not_told() -> Run:
    ends = run(ready_state(), FinishRequests((A,)))
    return ends, run(attrs.evolve(ends.after, finished_request_ids=()), Schedule())


def _says_something_else() -> Run:
    answers = run(busy_state(), answer(busy_state()))
    output = answers.after.progress[A].output_token_ids
    altered = with_progress(answers.after, A, output_token_ids=output.set(0, output[0] + 1))
    return answers, run(altered, FinishRequests((A,)))


def _computed_by_nobody() -> Run:
    plans = run(ready_state(), Schedule())
    answers = run(plans.after, answer(plans.after))
    num_computed_tokens = answers.after.progress[C].num_computed_tokens
    altered = with_progress(answers.after, C, num_computed_tokens=num_computed_tokens - 1)
    return plans, answers, run(altered, Schedule())


def _runner_does_not_know_of_an_end() -> Run:
    """Let `a` end without a word, and another get a block of it."""
    goes_on = run(ready_state(), SetPauseState(PauseState.UNPAUSED))
    ended = attrs.evolve(apply(goes_on.after, FinishRequests((A,))), finished_request_ids=())
    told = attrs.evolve(ended, finished_request_ids=goes_on.after.finished_request_ids)
    return goes_on, run(told, Schedule())


def _keeps_events_to_itself() -> Run:
    config = make_config(enable_kv_cache_events=True)
    plans = run(make_state(config, make_request("a", 6)), Schedule())
    silent = with_kv(plans.after, pending_events=())
    return plans, run(silent, answer(silent))


def _overtakes() -> Run:
    """Let the first two that wait change places, and one of them find a seat."""
    ends = run(ready_state(), FinishRequests((A,)))
    return ends, run(_swap_waiting(ends.after), Schedule())


def _does_not_come_back() -> Run:
    """Let `b` be preempted, and change places with `c`, which is new."""
    preempts = run(pressed_state(), Schedule())
    answers = run(preempts.after, answer(preempts.after))
    adds = run(answers.after, AddRequest(make_request("c", 3)))
    return preempts, answers, adds, run(_swap_waiting(adds.after), Schedule())


def _swap_waiting(state: SchedulerState) -> SchedulerState:
    """Let the first two requests that wait change places."""
    assert isinstance(state.waiting, FCFSQueue)
    first, second, *others = state.waiting.entries
    return attrs.evolve(state, waiting=FCFSQueue().put_back([second, first, *others]))


BROKEN_RUNS: dict[str, Callable[[], Run]] = {
    "INV-LIFE-01": _ends_twice,
    "INV-LIFE-02": _runner_is_not_told,
    "INV-DELIVER-01": _says_something_else,
    "INV-ACCOUNT-01": _computed_by_nobody,
    "INV-HANDS-01": _runner_does_not_know_of_an_end,
    "INV-MIRROR-01": _keeps_events_to_itself,
    "INV-TURN-01": _overtakes,
    "INV-TURN-02": _does_not_come_back,
}
