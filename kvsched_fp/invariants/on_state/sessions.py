"""Sessions: requests whose input comes in chunks."""

from kvsched_fp.config import Quirk
from kvsched_fp.invariants.entry import Cost, StateInvariant, state_invariant
from kvsched_fp.invariants.progress_reading import has_answered
from kvsched_fp.invariants.state_reading import places
from kvsched_fp.request import RequestStatus
from kvsched_fp.state import SchedulerState


@state_invariant(
    "INV-SESSION-01",
    Cost.FULL,
    "The sessions that wait for input are counted.",
    "Each of them keeps its row of the model runner.",
    reports=("vLLM #53130",),
)
def _waiting_are_counted(state: SchedulerState) -> str | None:
    statuses = [progress.status for _, _, progress, _ in places(state).live]
    num_waiting = statuses.count(RequestStatus.WAITING_FOR_INPUT)
    if state.num_waiting_for_input == num_waiting:
        return None
    return f"{num_waiting} sessions wait for input, {state.num_waiting_for_input} are counted"


@state_invariant(
    "INV-SESSION-02",
    Cost.FULL,
    "Only a session has input in store or waits for it, not both; the end is the last of it.",
    "Behind the end of a session nothing can come.",
)
def _only_sessions_have_input(state: SchedulerState) -> str | None:
    for request_id, request, progress, _ in places(state).live:
        waits = progress.status is RequestStatus.WAITING_FOR_INPUT
        if not progress.chunks and not waits:
            continue
        if not request.resumable:
            return f"request {request_id} is no session and has {len(progress.chunks)} chunks in store"
        if waits and progress.chunks:
            return f"session {request_id} waits for input with {len(progress.chunks)} chunks in store"
        if None in progress.chunks[:-1]:
            ends = [chunk is None for chunk in progress.chunks]
            return f"session {request_id} goes on behind its end: {ends}"
    return None


@state_invariant(
    "INV-SESSION-03",
    Cost.FULL,
    "A session that stopped and waits has known tokens to compute, and nothing that is in flight will be "
    "delivered.",
    "The last token was never computed; and what was computed behind it, was for an answer that is given.",
)
def _stopped_has_rest(state: SchedulerState) -> str | None:
    for request_id, request, progress, num_known in places(state).live:
        is_stopped = request.resumable and has_answered(progress)
        if not is_stopped or progress.status in (RequestStatus.RUNNING, RequestStatus.PREEMPTED):
            continue
        num_stale = progress.num_stale_output_tokens
        if (
            progress.num_computed_tokens >= num_known
            or progress.num_in_flight_tokens != num_stale
            or (num_stale and not progress.drop_stale_output)
        ):
            return (
                f"session {request_id} is {progress.status.name} with {progress.num_computed_tokens} of "
                f"{num_known} known tokens computed, {progress.num_in_flight_tokens} in flight, "
                f"{num_stale} stale, to be dropped: {progress.drop_stale_output}"
            )
    return None


@state_invariant(
    "INV-SESSION-04",
    Cost.FULL,
    "No prompt is longer than max_model_len; with the quirk OUTGROWS_MODEL_LEN, none but that of a session "
    "that has answered.",
    "There is no position behind it to compute, and no block for it.",
)
def _prompts_fit(state: SchedulerState) -> str | None:
    may_outgrow = Quirk.OUTGROWS_MODEL_LEN in state.config.quirks
    max_model_len = state.config.max_model_len
    for request_id, request, progress, _ in places(state).live:
        num_tokens = len(request.prompt_token_ids)
        if num_tokens <= max_model_len:
            continue
        is_continued = request.resumable and has_answered(progress)
        if not (may_outgrow and is_continued):
            return (
                f"request {request_id} has a prompt of {num_tokens} tokens, max_model_len is "
                f"{max_model_len}"
            )
    return None


INVARIANTS: tuple[StateInvariant, ...] = (
    _waiting_are_counted,
    _only_sessions_have_input,
    _stopped_has_rest,
    _prompts_fit,
)
"""In the order in which they are checked."""
