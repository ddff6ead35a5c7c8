"""A counterexample to read: what happened, line by line, and where everybody stood after it.

1  add 1a: 3 tokens of prompt, at most 3 of output
   waiting 1a | free 1 2 3
2  schedule: step 1: 1a +3 in blocks 1 2
   running 1a (3 of 3 computed, 3 in flight) | free 3 | in flight 1
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kvsched_fp import machine
from kvsched_fp.events import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.explore.findings import Counterexample
from kvsched_fp.explore.moves import StepFunction
from kvsched_fp.explore.world import World
from kvsched_fp.ids import RequestId
from kvsched_fp.machine import Outcome
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.progress import num_known_tokens
from kvsched_fp.request import RequestStatus
from kvsched_fp.state import SchedulerState, initial_state


class Told(NamedTuple):
    """One event of a history that was played again."""

    event: Event
    """What happened."""
    before: SchedulerState
    """The state that it happened to."""
    after: SchedulerState | None
    """The state that came of it; None if the machine failed."""
    outcome: Outcome
    """What came of it besides."""


def play_again(
    world: World, counterexample: Counterexample, step: StepFunction = machine.step
) -> Iterator[Told]:
    """Play the history of a counterexample; the machine may fail at its last event."""
    state = initial_state(world.config)
    last = len(counterexample.events)
    for number, event in enumerate(counterexample.events, 1):
        try:
            after, outcome = step(state, event)
        except Exception:
            if number < last:
                raise
            yield Told(event, state, None, None)
            return
        yield Told(event, state, after, outcome)
        state = after


def tell_story(
    world: World, counterexample: Counterexample, step: StepFunction = machine.step
) -> Iterator[str]:
    """Tell a counterexample, two lines per event."""
    for number, told in enumerate(play_again(world, counterexample, step), 1):
        yield f"{number:4}  {tell_event(told)}"
        yield f"      {'the machine failed' if told.after is None else tell_state(told.after)}"
    fault = counterexample.fault
    yield f"{fault.name}: {fault.evidence}"


def tell_event(told: Told) -> str:
    """Tell one event."""
    match told.event:
        case AddRequest(request=request):
            what = "input for" if request.request_id in told.before.requests else "add"
            text = f"{what} {request.request_id}: {request.num_prompt_tokens} tokens of prompt"
            return f"{text}, at most {request.sampling_params.max_tokens} of output"
        case Schedule(throttle_prefills=throttle):
            return f"schedule{', prompts held back' if throttle else ''}: {_tell_output(told.outcome)}"
        case Update(result=result):
            rows = [f"{row}={_tokens(ids)}" for row, ids in result.sampled_token_ids.items()]
            return f"update of step {result.step_id}: {', '.join(rows) or 'no tokens'}{_tell_ends(told)}"
        case UpdateDrafts(draft_token_ids=drafts):
            return f"drafts: {_tell_drafts(drafts)}"
        case UpdateDraftsInFlight(step_id=step_id, draft_token_ids=drafts):
            return f"drafts for step {step_id}: {_tell_drafts(drafts)}"
        case _:
            return _tell_outside(told)


def _tell_outside(told: Told) -> str:
    """Tell an event that does not come from the model runner."""
    text = repr(told.event)
    match told.event:
        case FinishRequests(request_ids=request_ids):
            text = f"end {', '.join(request_ids or told.before.requests)} from outside"
        case GrammarReady(request_id=request_id):
            text = f"the grammar of {request_id} is there"
        case GrammarFailed(request_id=request_id):
            text = f"there is no grammar for {request_id}"
        case SetPauseState(pause_state=PauseState.UNPAUSED):
            text = "go on"
        case SetPauseState(pause_state=state):
            text = f"pause {'everything' if state is PauseState.PAUSED_ALL else 'new requests'}"
        case ResetPrefixCache(reset_running_requests=running):
            what = "the prefix cache and all that runs" if running else "the prefix cache"
            text = f"reset {what}: {'done' if told.outcome else 'refused'}"
    return text


def _tell_output(output: object) -> str:
    if not isinstance(output, SchedulerOutput):
        return f"{output!r}"
    new_blocks = {row.request_id: row.block_ids for row in output.scheduled_new_requests}
    cached = output.scheduled_cached_requests
    for request_id, block_ids in zip(cached.request_ids, cached.new_block_ids, strict=True):
        new_blocks[request_id] = block_ids or ()
    rows = []
    for request_id, num_tokens in output.num_scheduled_tokens.items():
        ids = [str(block_id) for group in new_blocks.get(request_id, ()) for block_id in group]
        blocks = f" in blocks {' '.join(ids)}" if ids else ""
        drafts = output.scheduled_spec_token_ids.get(request_id)
        verified = f", {len(drafts)} of them drafts" if drafts else ""
        rows.append(f"{request_id} +{num_tokens}{verified}{blocks}")
    text = f"step {output.step_id}: {'; '.join(rows) or 'nobody'}"
    if output.preempted_request_ids:
        text += f"; preempted {', '.join(output.preempted_request_ids)}"
    return text


def _tell_ends(told: Told) -> str:
    if told.after is None:
        return ""
    ended = [request_id for request_id in told.before.requests if request_id not in told.after.requests]
    return f"; ended {', '.join(sorted(ended))}" if ended else ""


def tell_state(state: SchedulerState) -> str:
    """Tell where everybody stands."""
    parts = []
    for name, queue in (
        ("running", state.running),
        ("waiting with blocks", state.kv_holding_waiting),
        ("waiting", state.waiting),
    ):
        stand = [_tell_request(state, request_id) for request_id in queue]
        if stand:
            parts.append(f"{name} {', '.join(stand)}")
    parts.append(f"free {' '.join(map(str, state.kv.pool.free_blocks())) or 'none'}")
    if state.in_flight:
        parts.append(f"in flight {' '.join(str(output.step_id) for output in state.in_flight)}")
    if state.pause_state is not PauseState.UNPAUSED:
        parts.append(state.pause_state.value)
    return " | ".join(parts)


def _tell_request(state: SchedulerState, request_id: RequestId) -> str:
    progress = state.progress.get(request_id)
    if progress is None:
        return f"{request_id} (not live)"
    notes = []
    if progress.status not in {RequestStatus.RUNNING, RequestStatus.WAITING}:
        notes.append(progress.status.value)
    if progress.num_computed_tokens or progress.output_token_ids:
        num_known = num_known_tokens(state.requests[request_id], progress)
        notes.append(f"{progress.num_computed_tokens} of {num_known} computed")
    for count, what in (
        (progress.num_in_flight_tokens, "in flight"),
        (progress.num_stale_output_tokens, "of them stale"),
        (progress.num_output_placeholders, "placeholders"),
        (len(progress.spec_token_ids), "drafts"),
    ):
        if count:
            notes.append(f"{count} {what}")
    return f"{request_id} ({', '.join(notes)})" if notes else request_id


def _tokens(token_ids: tuple[int, ...]) -> str:
    return " ".join(map(str, token_ids)) or "none"


def _tell_drafts(drafts: Mapping[RequestId, tuple[int, ...]]) -> str:
    return ", ".join(f"{request_id}: {_tokens(ids)}" for request_id, ids in drafts.items())
