"""The counters of the scheduler, and the fields that a configuration turns off."""

from kvsched_fp.config import SchedulerConfig, SpecDecodeMetricsLevel
from kvsched_fp.invariants.entry import Cost, StateInvariant, state_invariant
from kvsched_fp.invariants.state_reading import places
from kvsched_fp.outputs import PrefixCacheStats
from kvsched_fp.state import SchedulerState

_NO_STATS = PrefixCacheStats()


@state_invariant(
    "INV-COUNT-01",
    Cost.CHEAP,
    "0 <= executed steps <= steps, and the last step that carried prompt is one of the executed ones.",
    "The prefill interval is counted in executed steps.",
)
def _steps_are_counted(state: SchedulerState) -> str | None:
    if 0 <= state.num_executed_steps <= state.current_step and (
        state.last_prefill_step == -state.config.local_prefill_interval
        or 0 < state.last_prefill_step <= state.num_executed_steps
    ):
        return None
    return (
        f"{state.current_step} steps, {state.num_executed_steps} executed, the last one with prompt is "
        f"{state.last_prefill_step}"
    )


@state_invariant(
    "INV-COUNT-02",
    Cost.FULL,
    "The live requests have different add numbers, each below the number of requests added.",
    "They order an end of all requests.",
)
def _add_numbers_differ(state: SchedulerState) -> str | None:
    numbers = list(state.add_numbers.values())
    if len(set(numbers)) == len(numbers) and all(0 <= number < state.num_added for number in numbers):
        return None
    return f"{state.num_added} requests added, the live ones are numbers {sorted(numbers)}"


@state_invariant(
    "INV-COUNT-03",
    Cost.CHEAP,
    "What the configuration turns off leaves no trace in the state.",
    "Equal situations must be equal values.",
)
def _off_is_empty(state: SchedulerState) -> str | None:
    kept = _kept_for_nobody(state, state.config)
    return f"{kept} is kept, and the configuration turns it off" if kept else None


def _kept_for_nobody(state: SchedulerState, config: SchedulerConfig) -> str | None:
    if state.finished_by_client and not config.include_finished_set:
        return f"finished_by_client of {len(state.finished_by_client)} clients"
    if state.prev_step_request_ids and config.use_v2_model_runner:
        return f"prev_step_request_ids {sorted(state.prev_step_request_ids)}"
    if state.kv.pending_events and not config.enable_kv_cache_events:
        return f"pending_events: {len(state.kv.pending_events)} of them"
    if not config.log_stats and state.kv.prefix_cache_stats != _NO_STATS:
        return f"prefix_cache_stats {state.kv.prefix_cache_stats}"
    if state.last_prefill_step > 0 and config.local_prefill_interval == 1:
        return f"last_prefill_step {state.last_prefill_step}"
    return None


@state_invariant(
    "INV-COUNT-04",
    Cost.FULL,
    "What the configuration turns off leaves no trace in a request.",
    "Equal situations must be equal values.",
)
def _off_is_empty_in_requests(state: SchedulerState) -> str | None:
    config = state.config
    off = [
        name
        for name, is_on in (
            ("num_output_placeholders", config.async_scheduling),
            ("next_decode_eligible_step", config.async_scheduling),
            ("spec_token_ids", config.num_spec_tokens > 0),
            ("events", config.log_request_events),
        )
        if not is_on
    ]
    keeps_metrics = config.spec_decode_metrics is not SpecDecodeMetricsLevel.NONE
    for request_id, _, progress, _ in places(state).live:
        if (
            progress.num_output_placeholders
            or progress.next_decode_eligible_step
            or progress.spec_token_ids
            or progress.events
        ):
            for name in off:
                if getattr(progress, name):
                    return f"request {request_id} has {name} {getattr(progress, name)}, which is turned off"
        if (progress.spec_decode_metrics is not None) != keeps_metrics:
            return f"request {request_id} has the metrics {progress.spec_decode_metrics}"
    return None


INVARIANTS: tuple[StateInvariant, ...] = (
    _steps_are_counted,
    _add_numbers_differ,
    _off_is_empty,
    _off_is_empty_in_requests,
)
"""In the order in which they are checked."""
