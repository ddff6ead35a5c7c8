"""Sound states and steps to break, and small tools to break them with."""

from typing import Any, NamedTuple, TypeVar

import attrs

from kvsched_fp import (
    AddRequest,
    EngineOutput,
    Event,
    SchedulerConfig,
    SchedulerState,
    Update,
    schedule,
    step,
    update,
)
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants import Step, observe
from kvsched_fp.kvcache.chunked import IntVector, ObjectVector, make_int_vector, make_object_vector
from kvsched_fp.ordered import OrderedMap
from tests.unit.worlds import make_config, make_request, make_result, make_state, run_step, run_together

T = TypeVar("T")

A, B, C, D, E = map(RequestId, "abcde")


def busy_config(**changes: Any) -> SchedulerConfig:
    """Make a configuration in which everything is reported, with 12 usable blocks of 4 tokens."""
    fields: dict[str, Any] = {
        "usable_blocks": 12,
        "max_num_seqs": 3,
        "enable_kv_cache_events": True,
        "needs_kv_cache_zeroing": True,
        "include_finished_set": True,
    }
    return make_config(**fields | changes)


def ready_state(**changes: Any) -> SchedulerState:
    """Make a state in which `a`, `b` and `c` run with output, `d` and `e` wait, and nothing is in flight.

    `b` shares the two blocks of `a`'s prompt, and two blocks of another prompt are cached and free.
    """
    prefix = tuple(range(8))
    requests = [
        make_request("a", 9, tokens=prefix),
        make_request("z", 8, max_tokens=1),
        make_request("b", 10, tokens=prefix, arrival_time=1.0, priority=1),
        make_request("c", 6, arrival_time=2.0, priority=2, client_index=1),
    ]
    state = run_together(busy_config(**changes), *requests)
    for number, request_id in enumerate("de"):
        waiting = make_request(request_id, 6, arrival_time=3.0 + number, priority=number)
        state, _ = step(state, AddRequest(waiting))
    return state


def busy_state(**changes: Any) -> SchedulerState:
    """Make the state two steps later, with no seat for `d` and `e`; the last step is in flight."""
    state, _ = run_step(ready_state(**changes))
    return schedule(state)[0]


def pressed_state(**changes: Any) -> SchedulerState:
    """Make a state in which `a` needs a block, none is free, and `b` behind it has a token in flight."""
    state = make_state(make_config(usable_blocks=4, **changes), make_request("a", 7))
    state, _ = schedule(state)
    state, _ = step(state, AddRequest(make_request("b", 7, arrival_time=1.0, priority=1)))
    state, _ = schedule(state)
    state = _take_in(state)  # a's first token
    state, _ = schedule(state)
    state = _take_in(state)  # b's first token
    state, _ = schedule(state)
    return _take_in(state)  # a's second token


def deferred_state(**changes: Any) -> SchedulerState:
    """Make a state in which `b` is preempted, has a token in flight, and was deferred for it."""
    state, _ = schedule(pressed_state(**changes))
    return schedule(state)[0]


def _take_in(state: SchedulerState) -> SchedulerState:
    return update(state, make_result(state, state.in_flight[0]))


def run(before: SchedulerState, event: Event) -> Step:
    """Make the step that an event gives."""
    return observe(before, event, *step(before, event))


def answer(state: SchedulerState, **tokens: tuple[int, ...]) -> Update:
    """Make the result of the oldest step in flight."""
    return Update(make_result(state, state.in_flight[0], tokens))


def with_progress(state: SchedulerState, request_id: RequestId, **changes: Any) -> SchedulerState:
    """Change the progress of a request."""
    progress = attrs.evolve(state.progress[request_id], **changes)
    return attrs.evolve(state, progress=state.progress.set(request_id, progress))


def with_request(state: SchedulerState, request_id: RequestId, **changes: Any) -> SchedulerState:
    """Change a request, which is never allowed."""
    request = attrs.evolve(state.requests[request_id], **changes)
    return attrs.evolve(state, requests=state.requests.set(request_id, request))


def with_kv(state: SchedulerState, **changes: Any) -> SchedulerState:
    """Change the KV cache."""
    return attrs.evolve(state, kv=attrs.evolve(state.kv, **changes))


def with_pool(state: SchedulerState, **changes: Any) -> SchedulerState:
    """Change the block pool."""
    return with_kv(state, pool=attrs.evolve(state.kv.pool, **changes))


def with_table(state: SchedulerState, request_id: RequestId, **changes: Any) -> SchedulerState:
    """Change the table of a request; `block_ids` may be any sequence."""
    if "block_ids" in changes:
        changes["block_ids"] = make_int_vector(changes["block_ids"])
    tables = (attrs.evolve(state.kv.tables[request_id][0], **changes),)
    return with_kv(state, tables=state.kv.tables.set(request_id, tables))


def with_ref_count(state: SchedulerState, block_id: int, ref_count: int) -> SchedulerState:
    """Change the reference count of a block."""
    return with_pool(state, ref_counts=with_integer(state.kv.pool.ref_counts, block_id, ref_count))


def with_integer(vector: IntVector, index: int, value: int) -> IntVector:
    """Change one element."""
    elements = list(vector)
    elements[index] = value
    return make_int_vector(elements)


def with_object(vector: ObjectVector[T], index: int, value: T) -> ObjectVector[T]:
    """Change one element."""
    elements = list(vector)
    elements[index] = value
    return make_object_vector(elements)


class Changed(NamedTuple):
    """A step of which something was changed by hand."""

    before: SchedulerState
    event: Event
    after: SchedulerState
    outcome: object


def change(sound: Step, **changes: Any) -> Changed:
    """Change the state before, the state after or the outcome."""
    changed = attrs.evolve(sound, **changes)
    return Changed(changed.before, changed.event, changed.after, changed.outcome)


def with_config(sound: Step, **changes: Any) -> Changed:
    """Change the configuration of the state before."""
    config = attrs.evolve(sound.before.config, **changes)
    return change(sound, before=attrs.evolve(sound.before, config=config))


def change_output(sound: Step, **changes: Any) -> Changed:
    """Change what a schedule told, in the output and in the steps in flight."""
    output = attrs.evolve(sound.output, **changes)
    after = attrs.evolve(sound.after, in_flight=(*sound.after.in_flight[:-1], output))
    return change(sound, after=after, outcome=output)


def change_told(sound: Step, client_index: int, *outputs: EngineOutput, **changes: Any) -> Changed:
    """Change what an update told a client: its outputs, or its other fields."""
    clients = dict(sound.after.emitted.clients)
    if outputs:
        changes["outputs"] = outputs
    clients[client_index] = attrs.evolve(clients[client_index], **changes)
    emitted = attrs.evolve(sound.after.emitted, clients=OrderedMap(clients))
    return change(sound, after=attrs.evolve(sound.after, emitted=emitted))
