"""What an event is not about stays as it was."""

from collections.abc import Collection

import attrs

from kvsched_fp.config import RunnerType
from kvsched_fp.events import (
    AddRequest,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    ResetPrefixCache,
    Schedule,
    Update,
    UpdateDrafts,
)
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import ALL_EVENTS, Cost, Step, StepInvariant, step_invariant
from kvsched_fp.invariants.on_step.overlap import must_wait
from kvsched_fp.invariants.on_step.sessions import begins_input
from kvsched_fp.invariants.shared import shared
from kvsched_fp.progress import Progress
from kvsched_fp.queues import PriorityQueue
from kvsched_fp.request import RequestStatus, canvas_width


@step_invariant(
    "INV-KEEP-01",
    Cost.FULL,
    "A request that stays live is the request that was added, with the number that it got; but for a "
    "session that begins its next input.",
    "A request never changes.",
    *ALL_EVENTS,
)
def _requests_stay(step: Step) -> str | None:
    before, after = step.before, step.after
    if _has_same_requests(step) and before.add_numbers == after.add_numbers:
        return None
    numbers_before, numbers_after = before.add_numbers, after.add_numbers
    for request_id, request in after.requests.items():
        earlier = before.requests.get(request_id)
        if earlier is None:
            continue
        if request is not earlier and request != earlier and not begins_input(step, request_id):
            return f"request {request_id} is another one than before"
        if numbers_after[request_id] != numbers_before[request_id]:
            return (
                f"request {request_id} was number {numbers_before[request_id]}, is number "
                f"{numbers_after[request_id]}"
            )
    return None


@step_invariant(
    "INV-KEEP-02",
    Cost.FULL,
    "No request comes but by being added, and none goes but by its result, by being ended from outside, "
    "or, as a session that waits for input, by its end.",
    "Nothing is lost.",
    *ALL_EVENTS,
)
def _nobody_comes_or_goes(step: Step) -> str | None:
    before, after = step.before.requests, step.after.requests
    if _has_same_requests(step) and not isinstance(step.event, AddRequest):
        return None
    came = [request_id for request_id in after if request_id not in before]
    may_come, may_go = list[RequestId](), list[RequestId]()
    if isinstance(step.event, AddRequest):
        request_id = step.event.request.request_id
        may_come = [request_id] if request_id not in before else []
        waits = not may_come and (
            step.before.progress[request_id].status is RequestStatus.WAITING_FOR_INPUT
        )
        may_go = [request_id] if waits and not step.event.request.resumable else []
    if came != may_come:
        return f"{type(step.event).__name__}: {sorted(came)} came"
    if isinstance(step.event, FinishRequests | Update):
        return None
    gone = []
    if len(before) + len(came) != len(after):
        gone = [request_id for request_id in before if request_id not in after]
    return None if gone == may_go else f"{type(step.event).__name__}: {sorted(gone)} went"


@shared
def _has_same_requests(step: Step) -> bool:
    """Compare the requests before and after, in C."""
    return step.before.requests == step.after.requests


@step_invariant(
    "INV-KEEP-03",
    Cost.FULL,
    "The counters of a request move only with its rows, its admission and its preemption, and with drafts, "
    "input and a grammar that are its own.",
    "An event about others must not show.",
    *ALL_EVENTS,
)
def _counters_stay(step: Step) -> str | None:
    moved = [
        (request_id, earlier, later)
        for request_id, earlier in step.before.progress.items()
        if (later := step.after.progress.get(request_id, earlier)) is not earlier
    ]
    if not moved:
        return None
    touched = {row[0] for row in step.rows}
    touched.update(step.victims)
    for request_id, earlier, later in moved:
        if request_id in touched or request_id in _addressed(step):
            continue
        is_planned = isinstance(step.event, Schedule)
        expected = _as_not_looked_at(step, request_id) if is_planned else later
        if expected != earlier:
            return f"{type(step.event).__name__}: request {request_id} went from {earlier} to {later}"
    return None


def _addressed(step: Step) -> Collection[RequestId]:
    """Give the requests that an event names."""
    match step.event:
        case AddRequest(request=request):
            return (request.request_id,)
        case GrammarReady(request_id=request_id) | GrammarFailed(request_id=request_id):
            return (request_id,)
        case UpdateDrafts(draft_token_ids=drafts):
            return drafts
        case ResetPrefixCache(reset_running_requests=True):
            return step.before.running
    return ()


def _as_not_looked_at(step: Step, request_id: RequestId) -> Progress:
    """Undo what a schedule notes about a request that gets nothing.

    A look-up that did not lead to an admission shows in the statistics of the prefill; a session that gave
    its blocks back has computed nothing, and one that starts again is hashed anew; a grammar that is there
    is waited for no longer; a canvas that is narrower than the drafter proposes cuts the placeholders, and
    one whose end is sure is held back.
    """
    config, request = step.before.config, step.before.requests[request_id]
    earlier, later = step.before.progress[request_id], step.after.progress[request_id]
    later = attrs.evolve(later, prefill_stats=earlier.prefill_stats)
    if request_id in step.gave_back:
        later = attrs.evolve(later, num_computed_tokens=earlier.num_computed_tokens)
    if (earlier.status, later.status) == (RequestStatus.WAITING_FOR_GRAMMAR, RequestStatus.WAITING):
        later = attrs.evolve(later, status=earlier.status)
    if request.resumable and config.num_hash_lookahead_tokens and not later.num_computed_tokens:
        later = attrs.evolve(later, block_hashes=earlier.block_hashes)
    if config.runner_type is not RunnerType.DIFFUSION or earlier.status is not RequestStatus.RUNNING:
        return later
    width = canvas_width(request, config.num_spec_tokens)
    if later.spec_token_ids == earlier.spec_token_ids[:width]:
        later = attrs.evolve(later, spec_token_ids=earlier.spec_token_ids)
    if later.next_decode_eligible_step == step.after.current_step + 1 and must_wait(step, request, earlier):
        later = attrs.evolve(later, next_decode_eligible_step=earlier.next_decode_eligible_step)
    return later


@step_invariant(
    "INV-KEEP-04",
    Cost.FULL,
    "Tables only grow, until all blocks of a request are given back at once.",
    "The model runner's copy of a table is only ever appended to.",
    *ALL_EVENTS,
)
def _tables_only_grow(step: Step) -> str | None:
    tables = step.after.kv.tables
    for request_id, earlier in step.before.kv.tables.items():
        later = tables.get(request_id)
        if later is earlier or request_id not in step.after.requests or _has_lost_all(step, request_id):
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


def _has_lost_all(step: Step, request_id: RequestId) -> bool:
    """Tell whether a request was preempted, or had to give its blocks back while it waited."""
    if isinstance(step.event, ResetPrefixCache):
        return step.event.reset_running_requests and request_id in step.before.running
    return request_id in step.victims or request_id in step.gave_back


@step_invariant(
    "INV-KEEP-05",
    Cost.FULL,
    "Those who go on waiting keep their order. A session that stops while it waits waits anew; and by "
    "priority, one that is looked at takes the place of its latest arrival.",
    "Nobody overtakes while waiting.",
    *ALL_EVENTS,
)
def _waiting_keep_their_order(step: Step) -> str | None:
    for name, queue, later in (
        ("waiting", step.before.waiting, step.after.waiting),
        ("kv_holding_waiting", step.before.kv_holding_waiting, step.after.kv_holding_waiting),
    ):
        if queue is later or not queue or not later:
            continue
        before, after = list(queue), list(later)
        if before == after:
            continue
        was, is_now = set(before).difference(step.went_on), set(after)
        if isinstance(step.event, Schedule) and isinstance(queue, PriorityQueue):
            requests = step.before.requests
            was = {request_id for request_id in was if not requests[request_id].resumable}
        before = [request_id for request_id in before if request_id in was]
        stayed = [request_id for request_id in before if request_id in is_now]
        order = [request_id for request_id in after if request_id in was]
        if stayed != order:
            return f"in {name}, {stayed} became {order}"
    return None


INVARIANTS: tuple[StepInvariant, ...] = (
    _requests_stay,
    _nobody_comes_or_goes,
    _counters_stay,
    _tables_only_grow,
    _waiting_keep_their_order,
)
"""In the order in which they are checked."""
