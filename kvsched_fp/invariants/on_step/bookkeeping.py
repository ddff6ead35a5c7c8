"""What every event moves: counters, the steps in flight, and the ids that are told on."""

import attrs

from kvsched_fp.events import Event, ResetPrefixCache, Schedule, Update, UpdateDraftsInFlight
from kvsched_fp.invariants.entry import ALL_EVENTS, Cost, Step, StepInvariant, step_invariant
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.state import SchedulerState

_OTHERS: tuple[type[Event], ...] = tuple(kind for kind in ALL_EVENTS if kind is not Schedule)


@step_invariant(
    "INV-STEP-01",
    Cost.CHEAP,
    "A schedule gives an output, a reset of the prefix cache tells whether it was done, the rest gives "
    "nothing.",
    "The caller acts on it.",
    *ALL_EVENTS,
)
def _outcome_fits(step: Step) -> str | None:
    expected: type = type(None)
    if isinstance(step.event, Schedule):
        expected = SchedulerOutput
    elif isinstance(step.event, ResetPrefixCache):
        expected = bool
    if type(step.outcome) is expected:
        return None
    return f"{type(step.event).__name__} gave a {type(step.outcome).__name__}"


@step_invariant(
    "INV-STEP-02",
    Cost.CHEAP,
    "A schedule is the next step, and counts as executed if it scheduled anything.",
    "The step id pairs a result with its step; the prefill interval is counted in executed steps.",
    Schedule,
)
def _schedule_counts(step: Step) -> str | None:
    before, after = step.before, step.after
    executed = step.output.total_num_scheduled_tokens > 0
    if (
        step.output.step_id == after.current_step == before.current_step + 1
        and after.num_executed_steps == before.num_executed_steps + executed
    ):
        return None
    return (
        f"step {step.output.step_id} of {step.output.total_num_scheduled_tokens} tokens takes "
        f"(current_step, num_executed_steps) from {_steps(before)[:2]} to {_steps(after)[:2]}"
    )


@step_invariant(
    "INV-STEP-03",
    Cost.CHEAP,
    "Only a schedule counts steps, and only a schedule notes whether capacity is short.",
    "Nothing else is a step.",
    *_OTHERS,
)
def _others_do_not_count(step: Step) -> str | None:
    before, after = _steps(step.before), _steps(step.after)
    return (
        None if before == after else f"{type(step.event).__name__} moved the counters: {before} -> {after}"
    )


@step_invariant(
    "INV-STEP-04",
    Cost.CHEAP,
    "A schedule appends its output to the steps in flight, an update takes the oldest, drafts in flight "
    "take the place of those of their step, the rest leaves them.",
    "Every step is answered once, in order.",
    *ALL_EVENTS,
)
def _in_flight_is_a_queue(step: Step) -> str | None:
    expected = step.before.in_flight
    if isinstance(step.event, Schedule):
        expected = (*expected, step.outcome)
    elif isinstance(step.event, Update):
        expected = expected[1:]
    elif isinstance(step.event, UpdateDraftsInFlight):
        expected = tuple(_without_drafts(step, output) for output in expected)
        if expected == tuple(_without_drafts(step, output) for output in step.after.in_flight):
            return None
    if step.after.in_flight == expected:
        return None
    return (
        f"{type(step.event).__name__}: steps {[output.step_id for output in step.before.in_flight]} were "
        f"in flight, {[output.step_id for output in step.after.in_flight]} are"
    )


@step_invariant(
    "INV-STEP-05",
    Cost.CHEAP,
    "A schedule tells the model runner every id that finished since the step before, once, in order.",
    "The runner keeps a row for each request until it hears of its end.",
    Schedule,
)
def _finished_are_told(step: Step) -> str | None:
    if step.output.finished_request_ids == step.before.finished_request_ids and not (
        step.after.finished_request_ids
    ):
        return None
    return (
        f"{step.before.finished_request_ids} had finished, {step.output.finished_request_ids} were told, "
        f"{step.after.finished_request_ids} are left"
    )


@step_invariant(
    "INV-STEP-06",
    Cost.CHEAP,
    "A schedule tells the model runner every id that was preempted since the step before, then its own "
    "victims.",
    "The runner gives up the row of a request that lost its blocks.",
    Schedule,
)
def _preempted_are_told(step: Step) -> str | None:
    earlier, told = step.before.preempted_request_ids, step.output.preempted_request_ids
    if told[: len(earlier)] == earlier and not step.after.preempted_request_ids:
        return None
    return f"{earlier} had been preempted, {told} were told, {step.after.preempted_request_ids} are left"


@step_invariant(
    "INV-STEP-07",
    Cost.CHEAP,
    "Between two schedules, finished and preempted ids are only added, and who finishes is not live.",
    "An id that is not told keeps a row in the model runner.",
    *_OTHERS,
)
def _told_later(step: Step) -> str | None:
    before, after = step.before, step.after
    if (
        after.finished_request_ids == before.finished_request_ids
        and after.preempted_request_ids == before.preempted_request_ids
    ):
        return None
    for name, earlier, later in (
        ("finished", before.finished_request_ids, after.finished_request_ids),
        ("preempted", before.preempted_request_ids, after.preempted_request_ids),
    ):
        if later[: len(earlier)] != earlier:
            return f"{name} ids {earlier} became {later}"
    for request_id in after.finished_request_ids[len(before.finished_request_ids) :]:
        if request_id in after.requests:
            return f"request {request_id} finished and is live"
    return None


def _without_drafts(step: Step, output: SchedulerOutput) -> SchedulerOutput:
    """Leave out what drafts in flight may change."""
    if output.step_id != step.event.step_id:
        return output
    return attrs.evolve(output, scheduled_spec_token_ids=OrderedMap(), num_invalid_spec_tokens=None)


def _steps(state: SchedulerState) -> tuple[int, int, int, bool]:
    return (
        state.current_step,
        state.num_executed_steps,
        state.last_prefill_step,
        state.prefill_capacity_bound,
    )


INVARIANTS: tuple[StepInvariant, ...] = (
    _outcome_fits,
    _schedule_counts,
    _others_do_not_count,
    _in_flight_is_a_queue,
    _finished_are_told,
    _preempted_are_told,
    _told_later,
)
"""In the order in which they are checked."""
