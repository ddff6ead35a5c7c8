"""What an event is not about stays as it was."""

from collections.abc import Iterator

import attrs

from kvsched_fp.events import AddRequest, FinishRequests, ResetPrefixCache, Schedule, Update
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import ALL_EVENTS, Cost, Step, StepInvariant, step_invariant


@step_invariant(
    "INV-KEEP-01",
    Cost.FULL,
    "A request that stays live is the request that was added, with the number that it got.",
    "A request never changes.",
    *ALL_EVENTS,
)
def _requests_stay(step: Step) -> str | None:
    before, after = step.before, step.after
    for request_id in _survivors(step):
        if after.requests[request_id] is not before.requests[request_id] and (
            after.requests[request_id] != before.requests[request_id]
        ):
            return f"request {request_id} is another one than before"
        if after.add_numbers[request_id] != before.add_numbers[request_id]:
            return (
                f"request {request_id} was number {before.add_numbers[request_id]}, is number "
                f"{after.add_numbers[request_id]}"
            )
    return None


@step_invariant(
    "INV-KEEP-02",
    Cost.FULL,
    "No request comes but by being added, and none goes but by its result or by being ended from outside.",
    "Nothing is lost.",
    *ALL_EVENTS,
)
def _nobody_comes_or_goes(step: Step) -> str | None:
    before, after = step.before.requests, step.after.requests
    came = [request_id for request_id in after if request_id not in before]
    gone = [request_id for request_id in before if request_id not in after]
    may_come = [step.event.request.request_id] if isinstance(step.event, AddRequest) else []
    if came != may_come:
        return f"{type(step.event).__name__}: {sorted(came)} came"
    if gone and not isinstance(step.event, FinishRequests | Update):
        return f"{type(step.event).__name__}: {sorted(gone)} went"
    return None


@step_invariant(
    "INV-KEEP-03",
    Cost.FULL,
    "The counters of a request move only with its rows, its admission and its preemption.",
    "An event about others must not show.",
    *ALL_EVENTS,
)
def _counters_stay(step: Step) -> str | None:
    touched = {row[0] for row in step.rows}.union(step.victims)
    if isinstance(step.event, ResetPrefixCache) and step.event.reset_running_requests:
        touched.update(step.before.running)
    for request_id in _survivors(step):
        earlier, later = step.before.progress[request_id], step.after.progress[request_id]
        if later is earlier or request_id in touched:
            continue
        if isinstance(step.event, Schedule):
            # A look-up that did not lead to an admission is noted in the statistics of the prefill.
            later = attrs.evolve(later, prefill_stats=earlier.prefill_stats)
        if later != earlier:
            return f"{type(step.event).__name__}: request {request_id} went from {earlier} to {later}"
    return None


@step_invariant(
    "INV-KEEP-04",
    Cost.FULL,
    "Tables only grow, until all blocks of a request are given back at once.",
    "The model runner's copy of a table is only ever appended to.",
    *ALL_EVENTS,
)
def _tables_only_grow(step: Step) -> str | None:
    was_preempted = set(step.victims)
    if isinstance(step.event, ResetPrefixCache) and step.event.reset_running_requests:
        was_preempted.update(step.before.running)
    for request_id in _survivors(step):
        earlier, later = step.before.kv.tables.get(request_id), step.after.kv.tables.get(request_id)
        if earlier is later or earlier is None or request_id in was_preempted:
            continue
        if later is None:
            return f"the tables of request {request_id} are gone"
        for group_index, (table, grown) in enumerate(zip(earlier, later, strict=True)):
            if tuple(grown.block_ids)[: len(table.block_ids)] != tuple(table.block_ids):
                return (
                    f"request {request_id}, group {group_index}: {list(table.block_ids)} became "
                    f"{list(grown.block_ids)}"
                )
    return None


@step_invariant(
    "INV-KEEP-05",
    Cost.FULL,
    "Those who go on waiting keep their order.",
    "Nobody overtakes while waiting.",
    *ALL_EVENTS,
)
def _waiting_keep_their_order(step: Step) -> str | None:
    for name, queue, later in (
        ("waiting", step.before.waiting, step.after.waiting),
        ("kv_holding_waiting", step.before.kv_holding_waiting, step.after.kv_holding_waiting),
    ):
        before, after = list(queue), list(later)
        if before == after:
            continue
        was, is_now = set(before), set(after)
        stayed = [request_id for request_id in before if request_id in is_now]
        order = [request_id for request_id in after if request_id in was]
        if stayed != order:
            return f"in {name}, {stayed} became {order}"
    return None


def _survivors(step: Step) -> Iterator[RequestId]:
    after = step.after.requests
    return (request_id for request_id in step.before.requests if request_id in after)


INVARIANTS: tuple[StepInvariant, ...] = (
    _requests_stay,
    _nobody_comes_or_goes,
    _counters_stay,
    _tables_only_grow,
    _waiting_keep_their_order,
)
"""In the order in which they are checked."""
