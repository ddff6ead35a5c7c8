"""Situations worth reaching, and how to see from outside that an event was one.

Nothing here looks into the scheduler while it works. Where a decision cannot be seen in its result, the
same state is scheduled again with one thing taken away: if the result differs, that thing decided.
"""

from collections.abc import Iterator
from typing import Any

import attrs

from kvsched_fp import (
    AddRequest,
    EngineOutput,
    Event,
    FinishReason,
    FinishRequests,
    PauseState,
    RequestStatus,
    ResetPrefixCache,
    Schedule,
    SchedulerState,
    SchedulingPolicy,
    Update,
    schedule,
)
from kvsched_fp.invariants import Step, observe
from kvsched_fp.invariants.on_step.budgets import is_used_up
from kvsched_fp.invariants.on_step.overlap import must_wait
from kvsched_fp.kvcache.pool import as_tuple
from kvsched_fp.progress import num_known_tokens

from .situations_of_features import SITUATIONS_OF_FEATURES, situations_of_features

SITUATIONS = (
    "added: an id whose last end is not told yet",
    "preempted: last come",
    "preempted: least important",
    "preempted: victim already placed",
    "preempted: itself, by priority, and the pass went on",
    "preempted: nobody was left to schedule",
    "resumed",
    "admitted: prefix hit",
    "admitted: full hit, last token computed again",
    "cache: evicted",
    "cache: two blocks under one key",
    "cut: chunk",
    "cut: long prefill",
    "refused: budget used up",
    "refused: no seat",
    "refused: watermark",
    "refused: reserve",
    "refused: blocks",
    "refused: prompt that does not fit whole",
    "refused: prompts are held back",
    "refused: late output first",
    "paused: new ones",
    "paused: all",
    "ended from outside while in flight",
    "reset: done",
    "reset: refused",
    "reset: running ones preempted",
    "result: of a request that is gone",
    "result: stale, delivered",
    "result: stale, dropped",
    "result: ends a request that waits",
    "result: cut behind the end",
    "stopped: end of sequence",
    "stopped: stop token",
    "stopped: max_tokens",
    "stopped: max_model_len",
    "stopped: repetition",
    *SITUATIONS_OF_FEATURES,
)
"""All of them; a test run must reach each."""


def situations_of(
    before: SchedulerState, event: Event, after: SchedulerState, outcome: object
) -> Iterator[str]:
    """Name the situations that one event shows."""
    step = observe(before, event, after, outcome)
    yield from situations_of_features(step)
    match event:
        case Schedule():
            yield from _preemptions(step)
            yield from _admissions(step)
            yield from _cuts(step)
            yield from _refusals(step)
        case Update():
            yield from _results(step)
        case FinishRequests():
            if any(
                request_id in output.num_scheduled_tokens
                for request_id in before.requests
                if request_id not in after.requests
                for output in before.in_flight
            ):
                yield "ended from outside while in flight"
        case AddRequest():
            if event.request.request_id in before.finished_request_ids:
                yield "added: an id whose last end is not told yet"
        case ResetPrefixCache():
            if before.running and not after.running:
                yield "reset: running ones preempted"
            if before.kv.pool.cached:
                yield "reset: done" if outcome else "reset: refused"


def _preemptions(step: Step) -> Iterator[str]:
    if not step.victims:
        return
    if not step.rows:
        yield "preempted: nobody was left to schedule"
    if step.before.config.policy is SchedulingPolicy.FCFS:
        yield "preempted: last come"
        return
    yield "preempted: least important"
    for victim in step.victims:
        if _was_placed(step, victim):
            yield "preempted: victim already placed"
    if _preempted_itself(step):
        yield "preempted: itself, by priority, and the pass went on"


def _was_placed(step: Step, victim: Any) -> bool:
    """Tell whether a victim surely had its tokens already when it was chosen.

    It needed no block for any of its known tokens, so it could not fail; and a row behind it was placed,
    so the pass had come by.
    """
    before = step.before
    request, progress = before.requests[victim], before.progress[victim]
    num_wanted = _num_wanted(before, victim)
    num_slots = len(before.kv.tables[victim][0].block_ids) * before.config.block_size
    return (
        progress.num_computed_tokens < num_wanted
        and num_wanted + before.config.num_lookahead_tokens <= num_slots
        and not must_wait(step, request, progress)
        and not progress.is_prefill_chunk  # could be held back
        and _rows_behind(step, victim)
    )


def _preempted_itself(step: Step) -> bool:
    """Tell whether the only victim surely failed at its own turn, and a row behind it was placed.

    No block was free, it needed one, and no row before it took one: so nobody before it preempted it.
    """
    before, victim = step.before, step.victims[0]
    progress = before.progress[victim]
    num_slots = len(before.kv.tables[victim][0].block_ids) * before.config.block_size
    ahead = before.running[: before.running.index(victim)]
    cached = step.output.scheduled_cached_requests
    took = {
        request_id
        for request_id, block_ids in zip(cached.request_ids, cached.new_block_ids, strict=True)
        if block_ids is not None
    }
    return (
        len(step.victims) == 1
        and before.kv.pool.num_free_blocks == 0
        and progress.num_computed_tokens == num_slots
        and progress.num_computed_tokens < _num_wanted(before, victim)
        and not must_wait(step, before.requests[victim], progress)
        and took.isdisjoint(ahead)
        and _rows_behind(step, victim)
    )


def _num_wanted(state: SchedulerState, request_id: Any) -> int:
    """Count all that there is of a running request to compute."""
    progress = state.progress[request_id]
    num_known = num_known_tokens(state.requests[request_id], progress)
    return num_known + progress.num_output_placeholders + len(progress.spec_token_ids)


def _rows_behind(step: Step, victim: Any) -> bool:
    running = step.before.running
    behind = running[running.index(victim) + 1 :]
    return any(request_id in step.output.num_scheduled_tokens for request_id in behind)


def _admissions(step: Step) -> Iterator[str]:
    before, after, block_size = step.before, step.after, step.before.config.block_size
    for request_id in step.admitted:
        progress, request = after.progress[request_id], after.requests[request_id]
        if before.progress[request_id].status is RequestStatus.PREEMPTED:
            yield "resumed"
        num_hit_tokens = progress.num_computed_tokens - step.output.num_scheduled_tokens[request_id]
        if num_hit_tokens:
            yield "admitted: prefix hit"
            num_known = num_known_tokens(request, progress)
            last_key = progress.block_hashes[-1] + bytes(4) if progress.block_hashes else None
            if num_hit_tokens == num_known - block_size and last_key in before.kv.pool.cached:
                yield "admitted: full hit, last token computed again"
    for key, blocks in before.kv.pool.cached.items():
        if len(as_tuple(blocks)) > len(as_tuple(after.kv.pool.cached.get(key, ()))):
            yield "cache: evicted"
            break
    if any(isinstance(blocks, tuple) for blocks in after.kv.pool.cached.values()):
        yield "cache: two blocks under one key"


def _cuts(step: Step) -> Iterator[str]:
    before = step.before
    if any(step.after.progress[row[0]].is_prefill_chunk for row in step.rows):
        yield "cut: chunk"
        if _differs(step, _with_config(before, long_prefill_token_threshold=0)):
            yield "cut: long prefill"
    if step.output.total_num_scheduled_tokens == before.config.token_budget and (
        len(step.rows) < len(step.after.requests)
    ):
        yield "refused: budget used up"


def _refusals(step: Step) -> Iterator[str]:
    before, after, config = step.before, step.after, step.before.config
    if before.pause_state is not PauseState.UNPAUSED:
        if _differs(step, attrs.evolve(before, pause_state=PauseState.UNPAUSED)):
            yield f"paused: {'all' if before.pause_state is PauseState.PAUSED_ALL else 'new ones'}"
        return
    if any(
        after.progress[request_id].status is RequestStatus.PREEMPTED
        and after.progress[request_id].num_stale_output_tokens
        and not after.progress[request_id].drop_stale_output
        for request_id in after.deferred
    ):
        yield "refused: late output first"
    refusals = []
    if _differs(step, attrs.evolve(before, last_prefill_step=-1000), throttle_prefills=False):
        refusals.append("refused: prompts are held back")
    if not step.victims and len(after.waiting) > len(after.deferred):
        has_budget = not is_used_up(step)
        if has_budget and len(after.running) + before.num_waiting_for_input >= config.max_num_active:
            refusals.append("refused: no seat")
        for name, changes in _LIFTED.items():
            if _differs(step, _with_config(before, **changes)):
                refusals.append(name)
        if has_budget and not refusals and not config.num_spec_tokens:
            refusals.append("refused: blocks")
    yield from refusals


_LIFTED: dict[str, dict[str, Any]] = {
    "refused: watermark": {"watermark": 0.0},
    "refused: reserve": {"scheduler_reserve_full_isl": False},
    "refused: prompt that does not fit whole": {"enable_chunked_prefill": True},
}
"""What refuses a waiting request, and the setting that does not."""


def _with_config(state: SchedulerState, **changes: Any) -> SchedulerState:
    changed = {name for name, value in changes.items() if getattr(state.config, name) != value}
    if not changed:
        return state
    return attrs.evolve(state, config=attrs.evolve(state.config, **changes))


def _differs(step: Step, other: SchedulerState, *, throttle_prefills: bool | None = None) -> bool:
    """Tell whether `other` would have planned other rows."""
    if throttle_prefills is None:
        throttle_prefills = step.event.throttle_prefills
    if other is step.before:
        return False
    _, output = schedule(other, throttle_prefills=throttle_prefills)
    return output.num_scheduled_tokens != step.output.num_scheduled_tokens


def _results(step: Step) -> Iterator[str]:
    told = {
        output.request_id: output
        for client in step.after.emitted.clients.values()
        for output in client.outputs
    }
    sampled = step.event.result.sampled_token_ids
    for request_id, _, request, earlier, _, _ in step.rows:
        if request is None:
            yield "result: of a request that is gone"
            continue
        if earlier.num_stale_output_tokens and sampled.get(request_id):
            yield "result: stale, delivered" if request_id in told else "result: stale, dropped"
        output = told.get(request_id)
        if output is None or output.finish_reason is None:
            continue
        if earlier.status is RequestStatus.PREEMPTED:
            yield "result: ends a request that waits"
        if len(output.new_token_ids) < len(sampled.get(request_id, ())):
            yield "result: cut behind the end"
        if not output.new_token_ids or output.finish_reason is FinishReason.ERROR:
            continue  # those are of an engine with features
        num_output_tokens = len(earlier.output_token_ids) + len(output.new_token_ids)
        yield f"stopped: {_stop(output, num_output_tokens, request.sampling_params.max_tokens)}"


def _stop(output: EngineOutput, num_output_tokens: int, max_tokens: int) -> str:
    match output.finish_reason:
        case FinishReason.REPETITION:
            return "repetition"
        case FinishReason.LENGTH:
            return "max_tokens" if num_output_tokens == max_tokens else "max_model_len"
        case _:
            return "end of sequence" if output.stop_reason is None else "stop token"
