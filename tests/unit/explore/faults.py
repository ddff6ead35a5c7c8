"""Machines with one planted fault each; processes import them by name."""

import multiprocessing
import os

import attrs

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    InvalidEvent,
    ResetPrefixCache,
    Schedule,
    SchedulerState,
    Update,
    machine,
)
from kvsched_fp.events import PauseState
from kvsched_fp.machine import Outcome

Result = tuple[SchedulerState, Outcome]


def leaks_blocks(state: SchedulerState, event: Event) -> Result:
    """Forget to give the blocks back when one of two running requests ends from outside."""
    after, outcome = machine.step(state, event)
    if isinstance(event, FinishRequests) and len(state.running) == 2:
        after = attrs.evolve(after, kv=attrs.evolve(state.kv, tables=after.kv.tables))
    return after, outcome


def swaps_victims(state: SchedulerState, event: Event) -> Result:
    """Let what runs change places whenever the prefix cache is reset in vain."""
    after, outcome = machine.step(state, event)
    if isinstance(event, ResetPrefixCache) and outcome is False:
        after = attrs.evolve(after, running=after.running[::-1])
    return after, outcome


def fails_when_two_run(state: SchedulerState, event: Event) -> Result:
    """Break down in an update while two requests run."""
    if isinstance(event, Update) and len(state.running) == 2:
        raise KeyError("2a")
    return machine.step(state, event)


def refuses_results(state: SchedulerState, event: Event) -> Result:
    """Refuse the result of the second step."""
    if isinstance(event, Update) and event.result.step_id == 2:
        raise InvalidEvent("step_id", 2, "another step")
    return machine.step(state, event)


def never_serves(state: SchedulerState, event: Event) -> Result:
    """Plan every step as if everything were paused."""
    if not isinstance(event, Schedule):
        return machine.step(state, event)
    paused = attrs.evolve(state, pause_state=PauseState.PAUSED_ALL)
    after, outcome = machine.step(paused, event)
    return attrs.evolve(after, pause_state=state.pause_state), outcome


def runs_out_of_memory(state: SchedulerState, event: Event) -> Result:
    """Have no memory left for the third step."""
    if isinstance(event, Schedule) and state.current_step == 2:
        raise MemoryError
    return machine.step(state, event)


def ends_its_process(state: SchedulerState, event: Event) -> Result:
    """Take a process of the search with it in the third step."""
    if isinstance(event, Schedule) and state.current_step == 2 and multiprocessing.parent_process():
        os._exit(1)
    return machine.step(state, event)


def forgets_a_number(state: SchedulerState, event: Event) -> Result:
    """Forget when a request came, once another one has come."""
    after, outcome = machine.step(state, event)
    if isinstance(event, AddRequest) and len(after.requests) == 2:
        forgotten = min(after.requests)
        after = attrs.evolve(after, add_numbers=after.add_numbers.delete(forgotten))
    return after, outcome
