"""The oracle: our state machine, reduced to the same two questions as the reference."""

import attrs

from kvsched_fp import Event, SchedulerConfig, SchedulerState, Update, initial_state, step
from kvsched_fp.bitmask import grammar_rows
from kvsched_fp.grammar import AutomatonGrammar, GrammarError
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.coordinator import KVCache
from kvsched_fp.kvcache.pool import as_tuple
from kvsched_fp.state import live_request_ids, num_unfinished_requests

from .plain import Plain, to_plain

_SETS_IN_THE_REFERENCE = ("preempted_request_ids", "finished_request_ids", "resumed_request_ids")
"""Fields that we keep in order and the reference keeps as sets: compared sorted.

Sorted as lists, not as sets: an id that we would list twice shows up.
"""


class OracleScheduler:
    """A state, and the states it goes through."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.state = initial_state(config)

    def apply(self, event: Event) -> Plain:
        """Let `event` happen; give what came of it, in normal form."""
        self.state, outcome = step(self.state, event)
        told = self.state.emitted if isinstance(event, Update) else outcome
        return {"event": type(event).__name__, "outcome": _without_order_of_sets(to_plain(told))}

    def view(self) -> Plain:
        """Give the whole state, in normal form."""
        return state_to_plain(self.state)


def state_to_plain(state: SchedulerState) -> Plain:
    """Give the normal form of a whole state."""
    return {
        "requests": [_request_to_plain(state, request_id) for request_id in live_request_ids(state)],
        "running": to_plain(state.running),
        "waiting": list(state.waiting),
        "kv_holding_waiting": list(state.kv_holding_waiting),
        "deferred": to_plain(state.deferred),
        "kv": _kv_cache_to_plain(state.kv),
        "num_waiting_for_input": state.num_waiting_for_input,
        "grammar_errors": to_plain(state.grammar_errors),
        "pause_state": state.pause_state.name,
        "num_unfinished_requests": num_unfinished_requests(state),
        "current_step": state.current_step,
        "num_executed_steps": state.num_executed_steps,
        "last_prefill_step": state.last_prefill_step,
        "prefill_capacity_bound": state.prefill_capacity_bound,
        "finished_request_ids": sorted(state.finished_request_ids),
        "finished_by_client": [[client, sorted(ids)] for client, ids in state.finished_by_client.items()],
        "preempted_request_ids": sorted(state.preempted_request_ids),
        "prev_step_request_ids": sorted(state.prev_step_request_ids),
        "in_flight": [
            [output.step_id, to_plain(output.num_scheduled_tokens)] for output in state.in_flight
        ],
        "grammar_rows": [to_plain(grammar_rows(state, output)) for output in state.in_flight],
    }


def _request_to_plain(state: SchedulerState, request_id: RequestId) -> Plain:
    request, progress = state.requests[request_id], state.progress[request_id]
    grammar: Plain = None
    if isinstance(progress.grammar, GrammarError):
        grammar = progress.grammar.message
    elif isinstance(progress.grammar, AutomatonGrammar):
        grammar = progress.grammar.state
    chunks = [
        None
        if chunk is None
        else [list(chunk.prompt_token_ids), chunk.sampling_params.max_tokens, chunk.arrival_time]
        for chunk in progress.chunks
    ]
    return {
        "request_id": request_id,
        **to_plain(attrs.evolve(progress, grammar=None, chunks=())),
        "grammar": grammar,
        "chunks": chunks,
        "prompt_token_ids": list(request.prompt_token_ids),
        "max_tokens": request.sampling_params.max_tokens,
        "arrival_time": request.arrival_time,
    }


def _kv_cache_to_plain(kv: KVCache) -> Plain:
    pool = kv.pool
    return {
        "tables": [[request_id, to_plain(tables)] for request_id, tables in sorted(kv.tables.items())],
        "ref_counts": list(pool.ref_counts),
        "keys": [to_plain(key) for key in pool.keys],
        "free_blocks": pool.free_blocks(),
        "num_free_blocks": pool.num_free_blocks,
        "cached": [[key.hex(), list(as_tuple(blocks))] for key, blocks in sorted(pool.cached.items())],
        "pending_events": to_plain(kv.pending_events),
        "prefix_cache_stats": to_plain(kv.prefix_cache_stats),
    }


def _without_order_of_sets(plain: Plain) -> Plain:
    if isinstance(plain, list):
        return [_without_order_of_sets(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    return {
        key: sorted(value)
        if key in _SETS_IN_THE_REFERENCE and value is not None
        else _without_order_of_sets(value)
        for key, value in plain.items()
    }
