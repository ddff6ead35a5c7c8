"""Faults that chance alone hardly shows are found by the profile `ci`, whatever its seeds are."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from typing import Any
from unittest import mock

import attrs
import pytest
from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from kvsched_fp import Event, SchedulerConfig, SchedulerState, lifecycle, machine, release, sessions
from kvsched_fp.progress import Chunk, Progress
from kvsched_fp.schedule.plan import Plan
from kvsched_fp.testing import PROFILES, PureAdapter, scheduler_machine
from kvsched_fp.trace.codec import Told, what_was_told

Fault = Callable[[], AbstractContextManager[Any]]
"""Puts a fault into the machine for a while."""

_PREEMPTED, _BEGIN_CHUNK, _TAKE_BACK = release._preempted, sessions.begin_chunk, Plan.take_back


def forget_what_was_dropped(progress: Progress, events: Any, *, drop_stale_output: bool) -> Progress:
    """[M-REL-04] Let a second preemption revive the output that an earlier one dropped."""
    after = _PREEMPTED(progress, events, drop_stale_output=drop_stale_output)
    return attrs.evolve(after, drop_stale_output=drop_stale_output)


def keep_arrival(open_state: Any, request_id: Any, chunk: Chunk) -> None:
    """[M-SESS-02] Let a session keep the arrival time of its first input."""
    arrival_time = open_state.requests[request_id].arrival_time
    _BEGIN_CHUNK(open_state, request_id, attrs.evolve(chunk, arrival_time=arrival_time))


def lose(name: str) -> Fault:
    """[S-BUD-03] Give a victim's tokens back, but for those of one budget."""

    def take_back(plan: Plan, request_id: Any) -> None:
        before = getattr(plan, name)
        _TAKE_BACK(plan, request_id)
        setattr(plan, name, before)

    return lambda: mock.patch.object(Plan, "take_back", take_back)


def lose_draft_slots(plan: Plan, request_id: Any) -> None:
    """[S-BUD-03] Give a victim's tokens back, but not the positions of its drafter."""
    _TAKE_BACK(plan, request_id)
    plan.input_budget -= plan.draft_slots


def _patch_begin_chunk() -> AbstractContextManager[Any]:
    patches = [mock.patch.object(module, "begin_chunk", keep_arrival) for module in (sessions, lifecycle)]
    return _both(*patches)


@contextmanager
def _both(*patches: AbstractContextManager[object]) -> Iterator[None]:
    """Two patches as one."""
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


FAULTS: Mapping[str, Fault] = {
    "forgets what was dropped": lambda: mock.patch.object(release, "_preempted", forget_what_was_dropped),
    "loses the input budget": lose("input_budget"),
    "loses the token budget": lose("token_budget"),
    "loses the drafter's positions": lambda: mock.patch.object(Plan, "take_back", lose_draft_slots),
    "keeps the arrival time": _patch_begin_chunk,
}


class Faulty(PureAdapter):
    """The pure functions, and beside them one machine with each of the faults, until its outcome differs.

    A fault that is found ends no run, so the runs are those in which nothing is found yet.
    """

    def __init__(self) -> None:
        self.found: set[str] = set()
        """The faults that have shown."""
        self._states: dict[str, SchedulerState] = {}

    def start(self, config: SchedulerConfig) -> None:
        """Begin with all that are not found."""
        super().start(config)
        self._states = dict.fromkeys(FAULTS.keys() - self.found, self.state)

    def happen(self, event: Event) -> Told:
        """Do what is right, and what is wrong, and note who differs."""
        told = super().happen(event)
        for name, before in list(self._states.items()):
            with FAULTS[name]():
                after, mine = _try(before, event)
            self._states[name] = self.state if after == self.state else after
            if mine != told:
                self.found.add(name)
                del self._states[name]
        return told

    def view(self) -> None:
        """Show nothing of the state: outcomes have to tell."""


def _try(state: SchedulerState, event: Event) -> tuple[SchedulerState, object]:
    try:
        after, outcome = machine.step(state, event)
    except Exception as error:  # a fault may show in any way
        return state, error
    return after, what_was_told(event, after, outcome)


@pytest.mark.parametrize("first_seed", [0, 1000, 2000])
def test_what_needs_luck_is_found(first_seed: int) -> None:
    """A budget that a victim loses, output that was dropped, the arrival time of a session, and so on."""
    adapter = Faulty()
    kit = scheduler_machine(adapter, trace_dir=None)
    for number, settings in zip(count(first_seed), PROFILES["ci"].batches(), strict=False):
        if len(adapter.found) == len(FAULTS):
            break
        run_state_machine_as_test(seed(number)(type("Batch", (kit,), {})), settings=settings)

    assert set(FAULTS) == adapter.found
