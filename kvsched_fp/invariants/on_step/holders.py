"""Those who wait with blocks in hand: sessions that have their next input, or wait for it."""

from kvsched_fp.config import Quirk
from kvsched_fp.events import Schedule
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.invariants.on_step.budgets import is_held_up
from kvsched_fp.invariants.room_reading import falls_short, holders_with_input
from kvsched_fp.state import SchedulerState


@step_invariant(
    "INV-HOLD-01",
    Cost.CHEAP,
    "Who waits with blocks in hand gives them back only where nobody ran, to one before it in line that "
    "has input as well, and for which that is enough; from the last in line on; and at most that one is "
    "admitted in the step (without the quirk KEEPS_BLOCKS_WHILE_WAITING; else it never does).",
    "What it has computed would be thrown away for nothing.",
    Schedule,
)
def _given_back_for_a_reason(step: Step) -> str | None:
    before, after, gave = step.before, step.after, step.gave_back
    if before.kv_holding_waiting is after.kv_holding_waiting and not gave:
        return None
    still_have = {*after.kv_holding_waiting, *after.running}
    lost = [it for it in before.kv_holding_waiting if it not in still_have]
    if sorted(lost) != sorted(gave):
        return f"{lost} wait without the blocks that they had, {gave} were told to give theirs back"
    return _why_not(step) if gave else None


def _why_not(step: Step) -> str | None:
    """Say what is wrong about those who gave their blocks back."""
    before, after, gave = step.before, step.after, step.gave_back
    if Quirk.KEEPS_BLOCKS_WHILE_WAITING in before.config.quirks or before.running:
        return f"{gave} gave their blocks back, while {before.running} ran"
    line, first = _at_rest(before), step.admitted[:1]
    if len(line) == len(gave) or line[len(line) - len(gave) :] != list(reversed(gave)):
        return f"{gave} gave their blocks back; in line were {line}"
    if falls_short(before, line[0], line[1:]):
        return f"{gave} gave their blocks back, which is too little for {line[0]}"
    if step.admitted != first or not set(first) <= set(line):
        return f"{gave} gave their blocks back, and {step.admitted} were admitted"
    kept = [it for it in gave if it in after.kv.tables or after.progress[it].num_computed_tokens]
    return f"{kept} gave their blocks back, and have some, or computed tokens" if kept else None


@step_invariant(
    "INV-HOLD-02",
    Cost.CHEAP,
    "Where nobody runs, no step with nobody in it leaves two waiting with blocks in hand who have input "
    "and nothing in flight, if what the others have is enough for the first; unless it holds prompts back, "
    "or whole prompts only go in, or sessions that wait for input keep all rows (without the quirk "
    "KEEPS_BLOCKS_WHILE_WAITING).",
    "Each would wait for the blocks of the other.",
    Schedule,
)
def _no_two_wait_for_each_other(step: Step) -> str | None:
    before, after = step.before, step.after
    config = before.config
    if step.rows or after.running or step.victims or Quirk.KEEPS_BLOCKS_WHILE_WAITING in config.quirks:
        return None
    if is_held_up(step):
        return None
    if before.num_waiting_for_input >= config.max_num_active or not config.enable_chunked_prefill:
        return None
    line = _at_rest(after)
    if len(line) < 2 or falls_short(after, line[0], line[1:]):
        return None
    return f"{line} wait with blocks in hand, and nobody goes on"


def _at_rest(state: SchedulerState) -> list[RequestId]:
    """List the holders with input that have nothing in flight, first in line first."""
    return [it for it in holders_with_input(state) if not state.progress[it].num_in_flight_tokens]


INVARIANTS: tuple[StepInvariant, ...] = (
    _given_back_for_a_reason,
    _no_two_wait_for_each_other,
)
"""In the order in which they are checked."""
