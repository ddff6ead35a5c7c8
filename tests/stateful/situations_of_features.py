"""Situations that only an engine with features meets, and how to see from outside that an event was one.

As in `situations.py`: where a decision cannot be seen in its result, the same state is scheduled again with
one thing taken away.
"""

from collections.abc import Iterator
from typing import Any

import attrs

from kvsched_fp import (
    AddRequest,
    EngineOutput,
    Event,
    FinishReason,
    PauseState,
    RequestStatus,
    Schedule,
    SchedulerState,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
    schedule,
)
from kvsched_fp.config import RunnerType
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants import Step
from kvsched_fp.progress import Progress, num_known_tokens

SITUATIONS_OF_FEATURES = (
    "ahead: behind a token that is not there",
    "ahead: passed over, max_tokens is sure",
    "ahead: passed over, not its turn in the pipeline",
    "pipeline: tokens for the first stage",
    "drafts: accepted",
    "drafts: rejected",
    "drafts: cut by a budget",
    "drafts: cleared by a preemption",
    "drafts: thrown away in the middle of a prompt",
    "drafts: padding",
    "drafts: replaced in flight, some not allowed",
    "drafts: fewer for the batch",
    "drafts: skipped",
    "drafts: cut where the drafter reads",
    "drafts: block given up for EAGLE",
    "drafts: hash looks ahead",
    "drafts: stale, delivered",
    "drafts: stale, dropped",
    "grammar: waited for",
    "grammar: failed",
    "grammar: tokens rejected",
    "refused: adapter",
    "session: waits for input",
    "session: input in store",
    "session: goes on with input in store",
    "session: begins with input",
    "session: ends where it stops",
    "session: ends while it waits",
    "ranks: prompts are held back",
    "stopped: pooled",
    "stopped: encoded",
    "diffusion: committed",
    "diffusion: nothing yet",
)
"""All of them; a test run must reach each."""


def situations_of_features(step: Step) -> Iterator[str]:
    """Name the situations that one event shows."""
    event: Event = step.event
    match event:
        case Schedule():
            yield from _planned(step)
        case Update():
            for request_id, _, request, earlier, _, _ in step.rows:
                if request is not None:
                    yield from _came_back(step, request_id, earlier)
            yield from _told(step)
        case UpdateDrafts(draft_token_ids=drafts):
            for request_id, tokens in drafts.items():
                if tokens and step.before.progress[request_id].is_prefill_chunk:
                    yield "drafts: thrown away in the middle of a prompt"
        case UpdateDraftsInFlight(step_id=step_id):
            output = next(output for output in step.after.in_flight if output.step_id == step_id)
            if output.num_invalid_spec_tokens:
                yield "drafts: replaced in flight, some not allowed"
        case AddRequest(request=request):
            yield from _said(step, request.request_id)


def _planned(step: Step) -> Iterator[str]:
    before, output, config = step.before, step.output, step.before.config
    for request_id in step.admitted:
        if request_id in output.scheduled_spec_token_ids:
            yield "drafts: padding"
    for request_id, _, request, earlier, progress, _ in step.rows:
        if earlier.num_output_placeholders:
            yield "ahead: behind a token that is not there"
        num_wanted = num_known_tokens(request, progress) + len(earlier.spec_token_ids)
        num_wanted += earlier.num_output_placeholders
        if (
            request_id not in step.admitted
            and progress.num_computed_tokens < num_wanted
            and (earlier.spec_token_ids and not progress.is_prefill_chunk)
        ):
            yield "drafts: cut by a budget"
    if any(output.scheduled_cached_requests.new_token_ids):
        yield "pipeline: tokens for the first stage"
    if any(before.progress[victim].spec_token_ids for victim in step.victims):
        yield "drafts: cleared by a preemption"
    if 0 < output.num_spec_tokens_to_schedule < config.num_spec_tokens and step.rows:
        yield "drafts: fewer for the batch"
    if output.skip_drafts and step.rows:
        yield "drafts: skipped"
    if before.pause_state is PauseState.UNPAUSED:
        yield from _decided(step)


def _decided(step: Step) -> Iterator[str]:
    """Take one thing away after the other, and see whether it decided."""
    before, config = step.before, step.before.config
    if config.async_scheduling and config.runner_type is RunnerType.GENERATE:
        if _differs(step, _with_all(before, next_decode_eligible_step=0)):
            yield "ahead: passed over, not its turn in the pipeline"
        if _differs(step, _with_longer_outputs(before)):
            yield "ahead: passed over, max_tokens is sure"
    lifted: dict[str, dict[str, Any]] = {
        "drafts: cut where the drafter reads": {"num_prefill_lookahead_tokens": 0},
        "drafts: block given up for EAGLE": {"drop_eagle_block": False},
        "refused: adapter": {"max_loras": None},
    }
    for name, changes in lifted.items():
        if any(getattr(config, field) != value for field, value in changes.items()):
            other = attrs.evolve(before, config=attrs.evolve(config, **changes))
            if _differs(step, other):
                yield name
    if config.data_parallel_size > 1 and step.event.throttle_prefills:
        _, free = schedule(before)
        if free.num_scheduled_tokens != step.output.num_scheduled_tokens:
            yield "ranks: prompts are held back"
    if any(
        step.after.progress[request_id].status is RequestStatus.WAITING_FOR_GRAMMAR
        for request_id in step.after.deferred
    ):
        yield "grammar: waited for"


def _with_all(state: SchedulerState, **changes: Any) -> SchedulerState:
    progress = state.progress
    for request_id in state.running:
        progress = progress.set(request_id, attrs.evolve(progress[request_id], **changes))
    return attrs.evolve(state, progress=progress)


def _with_longer_outputs(state: SchedulerState) -> SchedulerState:
    requests = state.requests
    for request_id in state.running:
        params = attrs.evolve(requests[request_id].sampling_params, max_tokens=10_000)
        requests = requests.set(request_id, attrs.evolve(requests[request_id], sampling_params=params))
    return attrs.evolve(state, requests=requests)


def _differs(step: Step, other: SchedulerState) -> bool:
    """Tell whether `other` would have planned other rows."""
    _, output = schedule(other, throttle_prefills=step.event.throttle_prefills)
    return output.num_scheduled_tokens != step.output.num_scheduled_tokens


def _came_back(step: Step, request_id: RequestId, earlier: Progress) -> Iterator[str]:
    """Name what a row of a live request shows."""
    sampled = step.event.result.sampled_token_ids.get(request_id, ())
    drafts = step.output.scheduled_spec_token_ids.get(request_id, ())
    is_stale = earlier.num_stale_output_tokens > 0
    if step.before.config.runner_type is RunnerType.DIFFUSION:
        if drafts and not is_stale:
            yield "diffusion: committed" if sampled else "diffusion: nothing yet"
        return
    if not drafts or not sampled:
        return
    if is_stale:
        yield f"drafts: stale, {'dropped' if earlier.drop_stale_output else 'delivered'}"
        return
    if len(sampled) > 1:
        yield "drafts: accepted"
    if len(sampled) <= len(drafts):
        yield "drafts: rejected"


def _told(step: Step) -> Iterator[str]:
    outputs = [output for client in step.after.emitted.clients.values() for output in client.outputs]
    for output in outputs:
        if output.finish_reason is not None:
            yield from _stopped(step, output)
    block_size = step.after.config.block_size
    if step.after.config.num_hash_lookahead_tokens and step.after.config.enable_prefix_caching:
        for request_id, progress in step.after.progress.items():
            num_full_blocks = num_known_tokens(step.after.requests[request_id], progress) // block_size
            if len(progress.block_hashes) < num_full_blocks:
                yield "drafts: hash looks ahead"


def _stopped(step: Step, output: EngineOutput) -> Iterator[str]:
    request_id = output.request_id
    if output.error is not None:
        yield "grammar: failed"
    elif output.finish_reason is FinishReason.ERROR:
        yield "grammar: tokens rejected"
    elif output.pooled:
        yield "stopped: pooled"
    elif not output.new_token_ids:
        yield "stopped: encoded"
    if request_id in step.went_on:
        is_waiting = step.after.progress[request_id].status is RequestStatus.WAITING_FOR_INPUT
        yield f"session: {'waits for input' if is_waiting else 'goes on with input in store'}"
    elif step.before.requests[request_id].resumable and step.before.progress[request_id].chunks:
        yield "session: ends where it stops"


def _said(step: Step, request_id: RequestId) -> Iterator[str]:
    """Name what the input of a session, or its end, leads to."""
    earlier = step.before.progress.get(request_id)
    if earlier is None:
        return
    if earlier.status is not RequestStatus.WAITING_FOR_INPUT:
        yield "session: input in store"
    elif request_id in step.after.requests:
        yield "session: begins with input"
    else:
        yield "session: ends while it waits"
