"""What pays for the rows of a planned step."""

from kvsched_fp.events import PauseState, Schedule
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.state import num_waiting_requests


@step_invariant(
    "INV-BUDGET-01",
    Cost.CHEAP,
    "The total of a step is the sum of its rows.",
    "The model runner sizes its input by the total; a victim's share that was not given back shows here.",
    Schedule,
)
def _total_is_the_sum(step: Step) -> str | None:
    total = sum(step.output.num_scheduled_tokens.values())
    if step.output.total_num_scheduled_tokens == total:
        return None
    return f"the rows have {total} tokens, the total says {step.output.total_num_scheduled_tokens}"


@step_invariant(
    "INV-BUDGET-02",
    Cost.CHEAP,
    "The rows keep within the token budget and max_num_seqs, and with the positions that a drafter needs "
    "for each within the input budget.",
    "The model runner's buffers end there.",
    Schedule,
)
def _budgets_are_kept(step: Step) -> str | None:
    config, total = step.before.config, sum(step.output.num_scheduled_tokens.values())
    num_positions = total + len(step.rows) * config.num_draft_slots
    if (
        total <= config.token_budget
        and num_positions <= config.max_num_batched_tokens
        and len(step.rows) <= config.max_num_seqs
    ):
        return None
    return (
        f"{len(step.rows)} rows of {config.max_num_seqs} have {total} tokens of {config.token_budget} in "
        f"{num_positions} positions of {config.max_num_batched_tokens}"
    )


@step_invariant(
    "INV-BUDGET-03",
    Cost.CHEAP,
    "While all is paused, nothing is scheduled.",
    "The engine relies on it before it changes weights.",
    Schedule,
)
def _pause_is_kept(step: Step) -> str | None:
    if step.before.pause_state is not PauseState.PAUSED_ALL or not step.rows:
        return None
    return f"{len(step.rows)} rows were scheduled while all is paused: {[row[0] for row in step.rows]}"


@step_invariant(
    "INV-BUDGET-04",
    Cost.CHEAP,
    "While several requests are live, no row is longer than the long-prefill threshold.",
    "One long prompt would keep all others waiting.",
    Schedule,
    reports=("vLLM #57951",),
)
def _long_prefill_is_cut(step: Step) -> str | None:
    most = threshold(step)
    if most == 0:
        return None
    for request_id, num_tokens in step.output.num_scheduled_tokens.items():
        if num_tokens > most:
            return f"request {request_id} got {num_tokens} tokens, the threshold is {most}"
    return None


def is_used_up(step: Step) -> bool:
    """Tell whether no budget is left for one more row."""
    return step.before.pause_state is PauseState.PAUSED_ALL or room_for_a_row(step) <= 0


def room_for_a_row(step: Step) -> int:
    """Give the tokens that one more row might have, by both budgets; below 1 for none."""
    config, total = step.before.config, step.output.total_num_scheduled_tokens
    num_positions = total + (len(step.rows) + 1) * config.num_draft_slots
    return min(config.token_budget - total, config.max_num_batched_tokens - num_positions)


def may_hold_prompts(step: Step) -> bool:
    """Tell whether a planned step may have held prompts back."""
    return bool(step.event.throttle_prefills) or step.before.config.local_prefill_interval > 1


def is_held_up(step: Step) -> bool:
    """Tell whether a planned step had a reason to give somebody nothing: a pause, or prompts held back."""
    if step.after.pause_state is PauseState.PAUSED_ALL:
        return True
    return may_hold_prompts(step) and not step.before.prefill_capacity_bound


def usage(step: Step) -> str:
    """Say how much of the budgets the rows use."""
    config, total = step.before.config, step.output.total_num_scheduled_tokens
    return (
        f"{len(step.rows)} rows use {total} of {config.token_budget} tokens and "
        f"{config.max_num_batched_tokens} positions"
    )


def threshold(step: Step) -> int:
    """Give the most tokens of a row while several requests are live; 0 for no limit."""
    config = step.before.config
    num_requests = len(step.before.running) + num_waiting_requests(step.before)
    if config.long_prefill_token_threshold == 0 or num_requests <= 1:
        return 0
    if config.long_prefill_token_threshold_adaptive:
        return max(config.long_prefill_token_threshold, config.max_num_batched_tokens // num_requests)
    return config.long_prefill_token_threshold


INVARIANTS: tuple[StepInvariant, ...] = (
    _total_is_the_sum,
    _budgets_are_kept,
    _pause_is_kept,
    _long_prefill_is_cut,
)
"""In the order in which they are checked."""
