"""Who loses its place in a planned step."""

from kvsched_fp.config import Quirk, SchedulingPolicy
from kvsched_fp.events import Schedule, Update
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.invariants.on_step.batch import could_go_on
from kvsched_fp.invariants.on_step.budgets import is_held_up
from kvsched_fp.invariants.room_reading import (
    all_fall_short,
    holders_with_input,
    lacks_blocks,
)
from kvsched_fp.progress import Progress
from kvsched_fp.request import RequestStatus
from kvsched_fp.state import SchedulerState


@step_invariant(
    "INV-PREEMPT-01",
    Cost.CHEAP,
    "The victims are exactly the requests that ran before the step and do not run after it.",
    "Planning a step ends nobody, and keeps whom it does not preempt.",
    Schedule,
)
def _victims_ran(step: Step) -> str | None:
    before, after = step.before.running, step.after.running
    if not step.victims and after[: len(before)] == before:
        return None
    remaining = set(after)
    gone = {request_id for request_id in before if request_id not in remaining}
    if gone == set(step.victims) and len(gone) == len(step.victims):
        return None
    return f"{sorted(gone)} do not run any more, {step.victims} were preempted"


@step_invariant(
    "INV-PREEMPT-02",
    Cost.CHEAP,
    "The requests that go on running keep their order.",
    "The order of service is the order of admission.",
    Schedule,
)
def _survivors_keep_their_order(step: Step) -> str | None:
    before, after = step.before.running, step.after.running
    if not step.victims and after[: len(before)] == before:
        return None
    victims = set(step.victims)
    expected = tuple(request_id for request_id in before if request_id not in victims)
    if after[: len(expected)] == expected:
        return None
    return f"running were {before}, victims {step.victims}, running are {after}"


@step_invariant(
    "INV-PREEMPT-03",
    Cost.CHEAP,
    "A victim waits, preempted once more, with nothing computed, no placeholders, no drafts, no blocks, no "
    "row, and all that it has in flight stale; what was to be dropped of that still is.",
    "Whatever it keeps is charged to nobody.",
    Schedule,
    reports=("vLLM PR #31944", "vLLM PR #48245"),
)
def _victims_start_over(step: Step) -> str | None:
    for request_id in step.victims:
        earlier, progress = step.before.progress[request_id], step.after.progress[request_id]
        if (
            progress.status is RequestStatus.PREEMPTED
            and progress.num_preemptions == earlier.num_preemptions + 1
            and progress.num_computed_tokens == progress.num_output_placeholders == 0
            and not progress.spec_token_ids
            and progress.num_in_flight_tokens == earlier.num_in_flight_tokens
            and progress.num_stale_output_tokens == progress.num_in_flight_tokens
            and (progress.drop_stale_output or not _was_to_be_dropped(earlier))
            and progress.output_token_ids == earlier.output_token_ids
            and request_id not in step.output.num_scheduled_tokens
            and request_id not in step.after.kv.tables
        ):
            continue
        return (
            f"victim {request_id} is {progress.status.name}, {progress.num_preemptions} times preempted "
            f"(was {earlier.num_preemptions}), with {progress.num_computed_tokens} tokens computed, "
            f"{progress.num_output_placeholders} placeholders, drafts {progress.spec_token_ids}, "
            f"{progress.num_in_flight_tokens} in flight, {progress.num_stale_output_tokens} stale, "
            f"in the batch: {request_id in step.output.num_scheduled_tokens}, "
            f"tables: {request_id in step.after.kv.tables}"
        )
    return None


def _was_to_be_dropped(earlier: Progress) -> bool:
    return earlier.drop_stale_output and earlier.num_stale_output_tokens > 0


@step_invariant(
    "INV-PREEMPT-04",
    Cost.CHEAP,
    "First come, first served: the victims are the last of the running, the very last one first.",
    "The later request gives way.",
    Schedule,
)
def _last_goes_first(step: Step) -> str | None:
    if not step.victims or step.before.config.policy is not SchedulingPolicy.FCFS:
        return None
    last = tuple(reversed(step.before.running[-len(step.victims) :]))
    return None if step.victims == last else f"victims {step.victims}, running were {step.before.running}"


@step_invariant(
    "INV-PREEMPT-05",
    Cost.CHEAP,
    "By priority: no victim is more important than a request that goes on running, or than a later victim.",
    "The less important request gives way.",
    Schedule,
)
def _least_important_goes_first(step: Step) -> str | None:
    if not step.victims or step.before.config.policy is not SchedulingPolicy.PRIORITY:
        return None
    most = max((_rank(step.before, request_id) for request_id in step.after.running), default=None)
    for request_id in reversed(step.victims):
        rank = _rank(step.before, request_id)
        if most is not None and rank < most:
            return f"victim {request_id} has (priority, arrival) {rank}, one with {most} went on"
        most = rank
    return None


@step_invariant(
    "INV-PREEMPT-06",
    Cost.CHEAP,
    "A step that preempts schedules somebody; or it preempts all who ran, none of whom could go on, was in "
    "flight or waited for its turn, and somebody waits with blocks in hand, not for input, for whom that "
    "is enough (without the quirk PREEMPTS_IN_VAIN).",
    "What the victims had computed is thrown away for somebody's sake, or for nobody's.",
    Schedule,
    reports=("vLLM PR #39375",),
)
def _victims_make_room(step: Step) -> str | None:
    before = step.before
    if not step.victims or step.rows or Quirk.PREEMPTS_IN_VAIN in before.config.quirks:
        return None
    holders = holders_with_input(step.after)
    if not holders or all_fall_short(before, holders[0]):
        return f"{step.victims} were preempted, nothing was scheduled, and nobody could go on with blocks"
    for request_id in before.running:
        if (
            request_id not in step.victims
            or _goes_on_later(step, before.progress[request_id])
            or could_go_on(step, request_id, before)
        ):
            return f"{step.victims} were preempted for nobody, and {request_id} goes on or could have"
    return None


def _goes_on_later(step: Step, earlier: Progress) -> bool:
    """Tell whether a request that ran has a step in flight, or its turn in a later one."""
    return earlier.num_in_flight_tokens > 0 or earlier.next_decode_eligible_step > step.after.current_step


@step_invariant(
    "INV-PREEMPT-07",
    Cost.CHEAP,
    "By priority, of equals in priority and arrival the one that has run longer goes on (without the quirk "
    "OLDEST_OF_EQUALS_GIVES_WAY).",
    "Two that take turns throw each other out for ever, each before the other has got further.",
    Schedule,
)
def _oldest_of_equals_stays(step: Step) -> str | None:
    config = step.before.config
    if not step.victims or Quirk.OLDEST_OF_EQUALS_GIVES_WAY in config.quirks:
        return None
    if config.policy is not SchedulingPolicy.PRIORITY:
        return None
    latest: dict[tuple[int, float], RequestId] = {}
    victims = set(step.victims)
    for request_id in reversed(step.before.running):
        rank = _rank(step.before, request_id)
        if request_id not in victims:
            latest.setdefault(rank, request_id)
        elif rank in latest:
            return f"{request_id} was preempted, {latest[rank]} went on, which has run shorter"
    return None


@step_invariant(
    "INV-PREEMPT-08",
    Cost.CHEAP,
    "A step that preempts and schedules nobody, and holds no prompt back, does not leave somebody who runs "
    "without the blocks to go on beside somebody who waits with blocks in hand, not for input, and for "
    "whom what the others have is enough; unless one who runs is in flight or waits for its turn (without "
    "the quirk PREEMPTS_IN_VAIN).",
    "Each would wait for the blocks of the other.",
    Schedule,
)
def _nobody_waits_for_who_waits(step: Step) -> str | None:
    before, after = step.before, step.after
    if step.rows or step.victims or not after.running or Quirk.PREEMPTS_IN_VAIN in before.config.quirks:
        return None
    if is_held_up(step):
        return None
    if any(_goes_on_later(step, before.progress[request_id]) for request_id in after.running):
        return None
    holders = holders_with_input(after)
    lacking = [request_id for request_id in after.running if lacks_blocks(after, request_id)]
    if not holders or not lacking or all_fall_short(after, holders[0]):
        return None
    return f"{lacking} run and lack blocks, {holders} wait with blocks in hand, and nobody goes on"


def _rank(state: SchedulerState, request_id: RequestId) -> tuple[int, float]:
    request = state.requests[request_id]
    return (request.priority, request.arrival_time)


@step_invariant(
    "INV-PREEMPT-09",
    Cost.CHEAP,
    "What a victim has in flight is to be dropped exactly if blocks have to be delivered, or if a share of "
    "it was to be dropped already. Neither a row nor its result changes what is to be dropped; but a "
    "session that stops drops all.",
    "Late output that is dropped is computed again; what is delivered is told once.",
    Schedule,
    Update,
)
def _late_output_is_dropped_for_a_reason(step: Step) -> str | None:
    for request_id in step.victims:
        due = step.before.config.requires_kv_delivery or _was_to_be_dropped(
            step.before.progress[request_id]
        )
        if step.after.progress[request_id].drop_stale_output != due:
            return f"victim {request_id} has late output to be dropped: {not due}; it should be: {due}"
    for request_id, _, _, earlier, progress, _ in step.rows:
        if progress is None or earlier is None:
            continue
        due = earlier.drop_stale_output or request_id in step.went_on
        if progress.drop_stale_output != due:
            return f"request {request_id} has late output to be dropped: {not due}; it should be: {due}"
    return None


INVARIANTS: tuple[StepInvariant, ...] = (
    _victims_ran,
    _survivors_keep_their_order,
    _victims_start_over,
    _last_goes_first,
    _least_important_goes_first,
    _victims_make_room,
    _oldest_of_equals_stays,
    _nobody_waits_for_who_waits,
    _late_output_is_dropped_for_a_reason,
)
"""In the order in which they are checked."""
