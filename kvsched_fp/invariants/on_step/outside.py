"""What comes from outside between the steps: requests that come and are ended, pauses, resets."""

import attrs

from kvsched_fp.events import AddRequest, FinishRequests, ResetPrefixCache, SetPauseState
from kvsched_fp.invariants.entry import ALL_EVENTS, Cost, Step, StepInvariant, step_invariant
from kvsched_fp.invariants.on_step.sessions import is_input
from kvsched_fp.queues import FCFSQueue
from kvsched_fp.request import RequestStatus


@step_invariant(
    "INV-ADD-01",
    Cost.CHEAP,
    "A request that is added is live, waits (for its grammar if it needs one), and is the latest; nothing "
    "else comes or goes.",
    "It must be found, once. The next input of a session is another matter (INV-INPUT-01).",
    AddRequest,
)
def _added_waits(step: Step) -> str | None:
    before, after, request = step.before, step.after, step.event.request
    if is_input(step):
        return None
    progress = after.progress.get(request.request_id)
    waits_for = RequestStatus.WAITING_FOR_GRAMMAR if request.needs_grammar else RequestStatus.WAITING
    if (
        request.request_id not in before.requests
        and after.requests.get(request.request_id) == request
        and progress is not None
        and progress.status is waits_for
        and after.add_numbers.get(request.request_id) == before.num_added == after.num_added - 1
        and len(after.requests) == len(before.requests) + 1
        and len(after.waiting) == len(before.waiting) + 1
        and after.running == before.running
    ):
        return None
    return (
        f"added {request.request_id}: {len(before.requests)} requests became {len(after.requests)}, "
        f"{len(before.waiting)} waiting became {len(after.waiting)}, number {before.num_added}, {progress}"
    )


@step_invariant(
    "INV-ADD-02",
    Cost.CHEAP,
    "First come, first served: a request that is added is the last.",
    "It came last.",
    AddRequest,
)
def _added_is_last(step: Step) -> str | None:
    waiting = step.after.waiting
    if not isinstance(waiting, FCFSQueue) or is_input(step):
        return None
    last = waiting.entries.right.request_id
    if last == step.event.request.request_id:
        return None
    return f"added {step.event.request.request_id}, {last} is the last"


@step_invariant(
    "INV-FINISH-01",
    Cost.CHEAP,
    "Requests that are ended from outside are gone at once, and the runner will be told so in the order of "
    "the event; nobody else goes.",
    "Their clients do not wait for anything.",
    FinishRequests,
)
def _ended_are_gone(step: Step) -> str | None:
    before, after = step.before, step.after
    ids = step.event.request_ids
    if ids is None:
        ids = tuple(sorted(before.requests, key=lambda request_id: before.add_numbers[request_id]))
    # An id that was used again, and ends again before its first end was told, is told once.
    finished = tuple(dict.fromkeys((*before.finished_request_ids, *ids)))
    left = [
        request_id for request_id in ids if request_id in after.requests or request_id in after.kv.tables
    ]
    if (
        after.finished_request_ids == finished
        and not left
        and len(after.requests) == len(before.requests) - len(ids)
    ):
        return None
    return (
        f"ended {ids}: {after.finished_request_ids} will be told, not {finished}, {left} are left, "
        f"{len(before.requests)} requests became {len(after.requests)}"
    )


@step_invariant(
    "INV-PAUSE-01",
    Cost.CHEAP,
    "A pause changes the pause state and nothing else.",
    "Going on is as if there had been no pause.",
    SetPauseState,
)
def _pause_is_all(step: Step) -> str | None:
    if step.after == attrs.evolve(step.before, pause_state=step.event.pause_state):
        return None
    changed = [
        field.name
        for field in attrs.fields(type(step.after))
        if getattr(step.before, field.name) != getattr(step.after, field.name)
    ]
    return (
        f"a pause to {step.event.pause_state.name} changed {changed}; it is {step.after.pause_state.name}"
    )


@step_invariant(
    "INV-PAUSE-02",
    Cost.CHEAP,
    "The pause state stays until it is set.",
    "Nobody goes on by accident.",
    *(kind for kind in ALL_EVENTS if kind is not SetPauseState),
)
def _pause_stays(step: Step) -> str | None:
    if step.after.pause_state is step.before.pause_state:
        return None
    return f"{step.before.pause_state.name} became {step.after.pause_state.name}"


@step_invariant(
    "INV-RESET-01",
    Cost.CHEAP,
    "A reset is done exactly when no block is held; then the prefix index is empty, else it is as it was.",
    "A block that is held keeps its content, and its key.",
    ResetPrefixCache,
)
def _reset_is_all_or_nothing(step: Step) -> str | None:
    pool, earlier = step.after.kv.pool, step.before.kv.pool
    nobody_holds = pool.num_free_blocks == pool.num_blocks - 1
    kept = len(pool.cached)
    if step.outcome == nobody_holds and kept == (0 if nobody_holds else len(earlier.cached)):
        return None
    return (
        f"done: {step.outcome}, {pool.num_free_blocks} of {pool.num_blocks} blocks free, "
        f"{len(earlier.cached)} keys became {kept}"
    )


@step_invariant(
    "INV-RESET-02",
    Cost.CHEAP,
    "A reset that includes the running requests preempts them all, the last one first, and drops what they "
    "have in flight; one that does not preempts nobody.",
    "What is in flight was computed on the blocks from before.",
    ResetPrefixCache,
)
def _reset_preempts_all(step: Step) -> str | None:
    before, after = step.before, step.after
    victims = after.preempted_request_ids[len(before.preempted_request_ids) :]
    if not step.event.reset_running_requests:
        if after.running == before.running and not victims:
            return None
        return f"running were {before.running}, running are {after.running}, preempted {victims}"
    if after.running or victims != before.running[::-1]:
        return f"running were {before.running}, running are {after.running}, preempted {victims}"
    for request_id in victims:
        progress = after.progress[request_id]
        if progress.status is not RequestStatus.PREEMPTED or not progress.drop_stale_output:
            dropped = progress.drop_stale_output
            return f"request {request_id} is {progress.status.name}, to be dropped: {dropped}"
    return None


INVARIANTS: tuple[StepInvariant, ...] = (
    _added_waits,
    _added_is_last,
    _ended_are_gone,
    _pause_is_all,
    _pause_stays,
    _reset_is_all_or_nothing,
    _reset_preempts_all,
)
"""In the order in which they are checked."""
