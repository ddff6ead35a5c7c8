"""For every clause of INV-HOLD-01, about who gives blocks back and for whom, a step that breaks it."""

from collections.abc import Callable, Collection

import attrs

from kvsched_fp import Schedule, SchedulerState, add_request
from kvsched_fp.config import ALL_QUIRKS, Quirk
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants import Step
from kvsched_fp.ordered import OrderedMap
from tests.unit.worlds import make_config, make_request, make_state, run_steps

from .good import Changed, change, change_output, run, with_config, with_kv, with_pool, with_progress

S, T, U = RequestId("s"), RequestId("t"), RequestId("u")


def sessions_with_input(names: str = "st", *, quirks: Collection[Quirk] = ()) -> SchedulerState:
    """Make a state in which sessions wait with a block each, all that there are, and each needs three."""
    config = make_config(usable_blocks=max(3, len(names)), quirks=quirks)
    sessions = [make_request(name, 4, resumable=True, max_tokens=1) for name in names]
    state = run_steps(make_state(config, *sessions), 1)
    for name in names:
        state = add_request(state, make_request(name, 5, resumable=True, max_tokens=1))
    return state


def gives_back() -> Step:
    """Let `t` give its block back to `s`."""
    return run(sessions_with_input(), Schedule())


def two_give_back() -> Step:
    """Let `u`, then `t` give their blocks back to `s`."""
    return run(sessions_with_input("stu"), Schedule())


def _nobody_is_told() -> Changed:
    return change_output(gives_back(), preempted_request_ids=())


def _told_and_keeps_its_place() -> Changed:
    sound = gives_back()
    holders = sound.before.kv_holding_waiting.remove({S})
    return change(sound, after=attrs.evolve(sound.after, kv_holding_waiting=holders))


def _with_the_quirk() -> Changed:
    return with_config(gives_back(), quirks=ALL_QUIRKS)


def _while_somebody_runs() -> Changed:
    sound = gives_back()
    return change(sound, before=attrs.evolve(sound.before, running=(RequestId("r"),)))


def _the_first_in_line() -> Changed:
    return change_output(two_give_back(), preempted_request_ids=(T, U))


def _only_one_that_is_not_the_last() -> Changed:
    sound = two_give_back()
    after = attrs.evolve(sound.after, kv_holding_waiting=sound.before.kv_holding_waiting.remove({S, T}))
    return change_output(attrs.evolve(sound, after=after), preempted_request_ids=(T,))


def _all_of_them() -> Changed:
    sound = gives_back()
    after = attrs.evolve(sound.after, running=())
    return change_output(attrs.evolve(sound, after=after), preempted_request_ids=(T, S))


def _not_enough() -> Changed:
    sound = gives_back()
    return change(sound, before=with_pool(sound.before, num_free_blocks=0))


def _another_is_admitted_as_well() -> Changed:
    return change_output(gives_back(), num_scheduled_tokens=OrderedMap({S: 8, RequestId("v"): 1}))


def _somebody_else_is_admitted() -> Changed:
    return change_output(gives_back(), num_scheduled_tokens=OrderedMap({RequestId("v"): 1}))


def _counts_as_computed() -> Changed:
    sound = gives_back()
    return change(sound, after=with_progress(sound.after, T, num_computed_tokens=4))


def _keeps_its_table() -> Changed:
    sound = gives_back()
    tables = sound.after.kv.tables.set(T, sound.before.kv.tables[T])
    return change(sound, after=with_kv(sound.after, tables=tables))


_WITHOUT = "wait without the blocks that they had"
BROKEN_HOLDERS: dict[Callable[[], Changed], str] = {
    _nobody_is_told: f"['t'] {_WITHOUT}, () were told to give theirs back",
    _told_and_keeps_its_place: f"[] {_WITHOUT}, ('t',) were told to give theirs back",
    _with_the_quirk: "('t',) gave their blocks back, while () ran",
    _while_somebody_runs: "('t',) gave their blocks back, while ('r',) ran",
    _the_first_in_line: "('t', 'u') gave their blocks back; in line were ['s', 't', 'u']",
    _only_one_that_is_not_the_last: "('t',) gave their blocks back; in line were ['s', 't', 'u']",
    _all_of_them: "('t', 's') gave their blocks back; in line were ['s', 't']",
    _not_enough: "('t',) gave their blocks back, which is too little for s",
    _another_is_admitted_as_well: "('t',) gave their blocks back, and ('s', 'v') were admitted",
    _somebody_else_is_admitted: "('t',) gave their blocks back, and ('v',) were admitted",
    _counts_as_computed: "['t'] gave their blocks back, and have some, or computed tokens",
    _keeps_its_table: "['t'] gave their blocks back, and have some, or computed tokens",
}
"""How to make a step -> the evidence against it."""
