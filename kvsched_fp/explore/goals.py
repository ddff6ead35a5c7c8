"""Situations that a world must reach: otherwise its search shows less than it seems to.

A goal is a predicate on one move: the situation before, the event, the one after, and what came of it.
"""

from collections.abc import Callable
from typing import NamedTuple

from kvsched_fp.events import AddRequest, Event, FinishRequests, PauseState, ResetPrefixCache, Update
from kvsched_fp.explore.situation import Situation
from kvsched_fp.grammar import GrammarError
from kvsched_fp.machine import Outcome
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.progress import num_known_tokens
from kvsched_fp.request import RequestStatus


class Move(NamedTuple):
    """One event, and the situations on both sides of it."""

    before: Situation
    """Before it."""
    event: Event
    """What happened."""
    after: Situation
    """After it."""
    outcome: Outcome
    """What came of it besides."""


class Goal(NamedTuple):
    """A situation that a world must reach."""

    sentence: str
    """What it is."""
    is_reached: Callable[[Move], bool]
    """Whether a move reaches it."""


def _preemption(move: Move) -> bool:
    output = move.outcome
    if not isinstance(output, SchedulerOutput):
        return False
    return len(output.preempted_request_ids) > len(move.before.state.preempted_request_ids)


def _prefix_hit(move: Move) -> bool:
    """Look for a new row that starts behind blocks, of a request that held none."""
    output = move.outcome
    return isinstance(output, SchedulerOutput) and any(
        row.num_computed_tokens > 0 and row.request_id not in move.before.state.kv.tables
        for row in output.scheduled_new_requests
    )


def _resumed(move: Move) -> bool:
    output, before = move.outcome, move.before.state
    return isinstance(output, SchedulerOutput) and any(
        request_id in before.progress and before.progress[request_id].status is RequestStatus.PREEMPTED
        for request_id in output.num_scheduled_tokens
    )


def _full_pool(move: Move) -> bool:
    return move.after.state.kv.pool.num_free_blocks == 0


def _abort_in_flight(move: Move) -> bool:
    return isinstance(move.event, FinishRequests) and any(
        progress.num_in_flight_tokens > 0 and request_id not in move.after.state.progress
        for request_id, progress in move.before.state.progress.items()
    )


def _shared_block(move: Move) -> bool:
    return any(count > 1 for count in move.after.state.kv.pool.ref_counts)


def _eviction(move: Move) -> bool:
    """Look for a key that was lost by taking its block, not by a reset."""
    before, after = move.before.state.kv.pool.cached, move.after.state.kv.pool.cached
    return isinstance(move.outcome, SchedulerOutput) and any(key not in after for key in before)


def _two_steps_in_flight(move: Move) -> bool:
    """Look for one request in two steps."""
    in_flight = move.after.state.in_flight
    return len(in_flight) > 1 and any(
        request_id in in_flight[-2].num_scheduled_tokens
        for request_id in in_flight[-1].num_scheduled_tokens
    )


def _stale_output(move: Move) -> bool:
    return any(
        progress.num_stale_output_tokens > 0 and not progress.drop_stale_output
        for progress in move.after.state.progress.values()
    )


def _dropped_output(move: Move) -> bool:
    return any(
        progress.num_stale_output_tokens > 0 and progress.drop_stale_output
        for progress in move.after.state.progress.values()
    )


def _runs_with_dropped(move: Move) -> bool:
    progress_of = move.after.state.progress
    return any(progress_of[request_id].num_stale_output_tokens for request_id in move.after.state.running)


def _drafts(move: Move, *, accepted: bool) -> bool:
    """Look for a row that brought all tokens that its drafts allow, or fewer."""
    if not isinstance(move.event, Update):
        return False
    drafts = move.before.state.in_flight[0].scheduled_spec_token_ids
    sampled = move.event.result.sampled_token_ids
    return any(
        (len(tokens) > len(drafts[request_id])) is accepted
        for request_id, tokens in sampled.items()
        if tokens and drafts.get(request_id)
    )


def _drafts_accepted(move: Move) -> bool:
    return _drafts(move, accepted=True)


def _drafts_rejected(move: Move) -> bool:
    return _drafts(move, accepted=False)


def _paused_with_work(move: Move) -> bool:
    state = move.after.state
    return state.pause_state is not PauseState.UNPAUSED and bool(state.requests)


def _reset(move: Move, *, done: bool) -> bool:
    return (
        isinstance(move.event, ResetPrefixCache)
        and move.outcome is done
        and bool(move.before.state.kv.pool.cached)
    )


def _reset_done(move: Move) -> bool:
    return _reset(move, done=True)


def _reset_refused(move: Move) -> bool:
    return _reset(move, done=False)


def _grammar_error(move: Move) -> bool:
    """Look for a request that an update ends because there is no grammar for it."""
    return isinstance(move.event, Update) and any(
        isinstance(progress.grammar, GrammarError) and request_id not in move.after.state.progress
        for request_id, progress in move.before.state.progress.items()
    )


def _overtaken_grammar(move: Move) -> bool:
    """Look for a request that runs while one that came before it waits for its grammar."""
    state = move.after.state
    return any(
        state.progress[other].status is RequestStatus.WAITING_FOR_GRAMMAR
        and state.add_numbers[other] < state.add_numbers[request_id]
        for request_id in state.running
        for other in state.waiting
    )


def _adapter_kept_out(move: Move) -> bool:
    """Look for a step that skips a request whose adapter would be one too many."""
    state = move.after.state
    loras = {state.requests[request_id].lora for request_id in state.running} - {None}
    if not isinstance(move.outcome, SchedulerOutput) or len(loras) != state.config.max_loras:
        return False
    return len(state.running) < _num_rows(move) and any(
        state.requests[request_id].lora not in {None, *loras} for request_id in state.deferred
    )


def _num_rows(move: Move) -> int:
    return move.after.state.config.max_num_active


def _urgent_first(move: Move) -> bool:
    """Look for a request that is admitted before one that came earlier and is less important."""
    output, before, after = move.outcome, move.before.state, move.after.state
    if not isinstance(output, SchedulerOutput):
        return False
    return any(
        before.add_numbers[other] < before.add_numbers[request_id]
        and before.requests[other].priority > before.requests[request_id].priority
        for request_id in set(after.running) - set(before.running)
        for other in after.waiting
    )


def _held_prompt(move: Move) -> bool:
    """Look for a step that leaves the next request behind, with budget, a row and blocks for it."""
    output, state = move.outcome, move.after.state
    if not isinstance(output, SchedulerOutput) or not len(state.waiting):
        return False
    next_id = state.waiting.peek()
    num_known = num_known_tokens(state.requests[next_id], state.progress[next_id])
    return (
        0 < output.total_num_scheduled_tokens < state.config.token_budget
        and 0 < len(state.running) < _num_rows(move)
        and num_known <= state.kv.pool.num_free_blocks * state.config.block_size
        and next_id not in state.deferred
        and state.pause_state is PauseState.UNPAUSED
        and not _preemption(move)
    )


def _next_input(move: Move) -> bool:
    """Look for a session that goes on with its next input and the blocks that it kept."""
    if not isinstance(move.event, AddRequest):
        return False
    request_id = move.event.request.request_id
    return request_id in move.before.state.requests and request_id in move.after.state.kv.tables


def _chunked_prompt(move: Move) -> bool:
    state = move.after.state
    return any(
        progress.is_prefill_chunk
        and progress.num_computed_tokens < num_known_tokens(state.requests[request_id], progress)
        for request_id, progress in state.progress.items()
    )


def _two_running(move: Move) -> bool:
    return len(move.after.state.running) > 1


GOALS: dict[str, Goal] = {
    "batch": Goal("two requests run at once", _two_running),
    "chunk": Goal("a prompt is computed in pieces", _chunked_prompt),
    "preemption": Goal("a request is preempted for lack of blocks", _preemption),
    "resumed": Goal("a preempted request runs again", _resumed),
    "full-pool": Goal("no block is free", _full_pool),
    "prefix-hit": Goal("a request starts behind blocks that it found", _prefix_hit),
    "shared-block": Goal("two requests hold one block", _shared_block),
    "eviction": Goal("a cached block is taken for something else", _eviction),
    "abort-in-flight": Goal("a request ends from outside while it is in a step", _abort_in_flight),
    "two-in-flight": Goal("a request is in two steps at once", _two_steps_in_flight),
    "stale-output": Goal("output of a preempted request is in flight, to be delivered", _stale_output),
    "dropped-output": Goal("output of a preempted request is in flight, to be dropped", _dropped_output),
    "runs-with-dropped": Goal("a request runs again while its old output comes back", _runs_with_dropped),
    "drafts-accepted": Goal("all drafts of a row are accepted", _drafts_accepted),
    "drafts-rejected": Goal("drafts are rejected", _drafts_rejected),
    "paused": Goal("the engine is paused while requests are live", _paused_with_work),
    "reset-done": Goal("a prefix cache that is not empty is reset", _reset_done),
    "reset-refused": Goal("a reset is refused, since blocks are held", _reset_refused),
    "grammar-error": Goal("a request ends because there is no grammar for it", _grammar_error),
    "grammar-overtaken": Goal("a later request runs while one waits for its grammar", _overtaken_grammar),
    "adapter-kept-out": Goal("a request waits for an adapter to leave, with a row free", _adapter_kept_out),
    "urgent-first": Goal("a more important request is admitted before an earlier one", _urgent_first),
    "held-prompt": Goal("a prompt is held back, with budget and a row free", _held_prompt),
    "next-input": Goal("a session goes on with the blocks that it kept", _next_input),
}
"""All goals, by name."""
