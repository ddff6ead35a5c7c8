"""The counters of one request, and what of it is in flight.

A request id that is used again while a step with its former life is in flight is outside of these rules:
the reference charges the late result to the new request, and so does the machine. While that step is
still in flight, the two lives can be told apart by the finished ids that the steps carry. Outside of them,
too, are drafts for a request with a step in flight, where nothing is scheduled ahead: nobody can draft
behind tokens that are not known, and what was counted as computed cannot be told from what was not.
"""

from collections.abc import Iterator
from itertools import pairwise

from kvsched_fp.config import Quirk
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, StateInvariant, state_invariant
from kvsched_fp.invariants.progress_reading import has_answered, repeats_itself
from kvsched_fp.invariants.state_reading import places
from kvsched_fp.progress import Progress, RequestEventType
from kvsched_fp.request import RequestStatus
from kvsched_fp.state import SchedulerState

_ORDER_OF_EVENTS = {
    (RequestEventType.QUEUED, RequestEventType.SCHEDULED),
    (RequestEventType.SCHEDULED, RequestEventType.PREEMPTED),
    (RequestEventType.PREEMPTED, RequestEventType.SCHEDULED),
}

_STATUS_BEHIND: dict[RequestEventType, tuple[RequestStatus, ...]] = {
    RequestEventType.QUEUED: (RequestStatus.WAITING, RequestStatus.WAITING_FOR_GRAMMAR),
    RequestEventType.SCHEDULED: (RequestStatus.RUNNING,),
    RequestEventType.PREEMPTED: (RequestStatus.PREEMPTED,),
}
"""Where a request stands by the last that happened to it."""


@state_invariant(
    "INV-PROGRESS-01",
    Cost.FULL,
    "A request has computed at least nothing, and at most what is known of it, what steps in flight bring "
    "and its drafts; and at most max_model_len, or, with the quirk OUTGROWS_MODEL_LEN, a session all that "
    "is known.",
    "There is no token behind those to compute, and no position behind max_model_len.",
)
def _computed_is_known(state: SchedulerState) -> str | None:
    max_model_len, is_async = state.config.max_model_len, state.config.async_scheduling
    may_outgrow = Quirk.OUTGROWS_MODEL_LEN in state.config.quirks
    num_spec_tokens = state.config.num_spec_tokens
    for request_id, _, progress, num_known in places(state).live:
        num_expected = progress.num_output_placeholders if is_async else num_spec_tokens
        if 0 <= progress.num_computed_tokens <= max_model_len and (
            progress.num_computed_tokens <= num_known + num_expected
        ):
            continue
        longest = max(num_known, max_model_len) if may_outgrow else max_model_len
        most = min(num_known + num_expected, longest)
        if not 0 <= progress.num_computed_tokens <= most:
            return (
                f"request {request_id} has {progress.num_computed_tokens} computed tokens, "
                f"{num_known} known, {num_expected} more at most, max_model_len {max_model_len}"
            )
    return None


@state_invariant(
    "INV-PROGRESS-02",
    Cost.FULL,
    "A request that never ran has nothing computed, in flight, sampled or preempted.",
    "It has not been in any step.",
)
def _fresh_is_blank(state: SchedulerState) -> str | None:
    for request_id, request, progress, _ in places(state).live:
        if (
            progress.status in (RequestStatus.WAITING, RequestStatus.WAITING_FOR_GRAMMAR)
            and not (request.resumable and has_answered(progress))
            and not (
                progress.num_computed_tokens == progress.num_in_flight_tokens == 0
                and progress.num_stale_output_tokens == progress.num_preemptions == 0
                and progress.num_output_placeholders == progress.next_decode_eligible_step == 0
                and not progress.output_token_ids
                and not progress.is_prefill_chunk
            )
        ):
            return f"request {request_id} never ran, but: {_counters(progress)}"
    return None


@state_invariant(
    "INV-PROGRESS-03",
    Cost.FULL,
    "A preempted request has nothing computed, expects nothing, and all that it has in flight is stale.",
    "Its blocks are gone, so what is in flight was computed for nothing but its output.",
    reports=("vLLM PR #48245",),
)
def _preempted_starts_over(state: SchedulerState) -> str | None:
    for request_id, _, progress, _ in places(state).live:
        if progress.status is RequestStatus.PREEMPTED and not (
            progress.num_computed_tokens == progress.num_output_placeholders == 0
            and progress.num_preemptions > 0
            and progress.num_stale_output_tokens == progress.num_in_flight_tokens
        ):
            return f"request {request_id} is preempted, but: {_counters(progress)}"
    return None


@state_invariant(
    "INV-PROGRESS-04",
    Cost.FULL,
    "A running request has computed something, and at least what it has in flight without the stale share.",
    "It was admitted with at least one token, and tokens count as computed when they are scheduled.",
)
def _running_has_computed(state: SchedulerState) -> str | None:
    for request_id, _, progress, _ in places(state).running:
        num_live = progress.num_in_flight_tokens - progress.num_stale_output_tokens
        if progress.num_computed_tokens < max(num_live, 1):
            return f"request {request_id} runs, but: {_counters(progress)}"
    return None


@state_invariant(
    "INV-PROGRESS-05",
    Cost.FULL,
    "A running request that is in the middle of its prompt has known tokens to compute.",
    "Prompts are held back by this mark; a wrong one holds back a request that decodes.",
)
def _chunk_has_rest(state: SchedulerState) -> str | None:
    for request_id, _, progress, num_known in places(state).running:
        if progress.is_prefill_chunk and progress.num_computed_tokens >= num_known:
            return (
                f"request {request_id} is marked as a chunk with {progress.num_computed_tokens} of "
                f"{num_known} known tokens computed"
            )
    return None


@state_invariant(
    "INV-PROGRESS-06",
    Cost.FULL,
    "The output of a live request has not stopped: no end token at its end, shorter than each limit, and "
    "no pattern at its end that has been repeated too often.",
    "A request that stopped leaves the state with the token that stopped it, or is a session that waits "
    "for input.",
)
def _live_has_not_stopped(state: SchedulerState) -> str | None:
    for request_id, request, progress, num_known in places(state).live:
        output = progress.output_token_ids
        if not output or progress.status is RequestStatus.WAITING_FOR_INPUT:
            continue
        params = request.sampling_params
        if len(output) >= params.max_tokens or num_known >= state.config.max_model_len:
            return (
                f"request {request_id} is live with {len(output)} of {params.max_tokens} output tokens, "
                f"{num_known} known, max_model_len {state.config.max_model_len}"
            )
        if output[-1] == params.eos_token_id or output[-1] in params.stop_token_ids:
            return f"request {request_id} is live behind the end token {output[-1]}"
        detection = params.repetition_detection
        if detection is not None and len(output) >= params.min_tokens and repeats_itself(output, detection):
            return f"request {request_id} is live and repeats itself: {list(output)}"
    return None


@state_invariant(
    "INV-PROGRESS-07",
    Cost.FULL,
    "A request carries prefill statistics exactly until its first output; a session has none when it goes "
    "on.",
    "They are told once, with that output.",
)
def _stats_until_output(state: SchedulerState) -> str | None:
    for request_id, request, progress, _ in places(state).live:
        is_told, has_output = has_answered(progress), bool(progress.output_token_ids)
        if is_told != has_output and not (is_told and request.resumable):
            return (
                f"request {request_id} with {len(progress.output_token_ids)} output tokens "
                f"has prefill_stats {progress.prefill_stats}"
            )
    return None


@state_invariant(
    "INV-PROGRESS-08",
    Cost.FULL,
    "What happened to a request since its last output is in order: it is queued first, then scheduled and "
    "preempted in turn; and the last of it is where it stands.",
    "A client measures by it how long it waited and how long it ran.",
)
def _story_is_in_order(state: SchedulerState) -> str | None:
    for request_id, _, progress, _ in places(state).live:
        if not progress.events:
            continue
        story = [event.type for event in progress.events]
        follows_on = all(pair in _ORDER_OF_EVENTS for pair in pairwise(story))
        if not follows_on or progress.status not in _STATUS_BEHIND[story[-1]]:
            names = [kind.name for kind in story]
            return f"request {request_id} is {progress.status.name}, behind the events {names}"
    return None


@state_invariant(
    "INV-FLIGHT-01",
    Cost.CHEAP,
    "The steps in flight are the last ones planned, without a gap, the oldest first.",
    "Results come back in the order of the steps, and each step is answered once.",
)
def _steps_are_consecutive(state: SchedulerState) -> str | None:
    step_ids = [output.step_id for output in state.in_flight]
    first = state.current_step - len(step_ids) + 1
    if step_ids == list(range(first, state.current_step + 1)):
        return None
    return f"steps {step_ids} are in flight at step {state.current_step}"


@state_invariant(
    "INV-FLIGHT-02",
    Cost.FULL,
    "A live request has as many tokens in flight as its rows in the steps in flight, stale ones included.",
    "The count decides when late output has drained and the request may be admitted again.",
)
def _in_flight_is_the_sum(state: SchedulerState) -> str | None:
    num_tokens: dict[RequestId, int] = {}
    for output in state.in_flight:
        for request_id in output.finished_request_ids:
            num_tokens.pop(request_id, None)  # those rows belong to a former life of the id
        for request_id, num_scheduled_tokens in output.num_scheduled_tokens.items():
            num_tokens[request_id] = num_tokens.get(request_id, 0) + num_scheduled_tokens
    for request_id in state.finished_request_ids:
        num_tokens.pop(request_id, None)
    for request_id, _, progress, _ in places(state).live:
        if progress.num_in_flight_tokens != num_tokens.get(request_id, 0):
            return (
                f"request {request_id} counts {progress.num_in_flight_tokens} tokens in flight, its rows "
                f"in flight have {num_tokens.get(request_id, 0)}"
            )
    return None


@state_invariant(
    "INV-FLIGHT-03",
    Cost.FULL,
    "The stale share is part of what is in flight; a request that runs has one only if it will be dropped.",
    "A running request could sample a position again that a stale output still delivers.",
)
def _stale_is_in_flight(state: SchedulerState) -> str | None:
    for request_id, _, progress, _ in places(state).live:
        if not 0 <= progress.num_stale_output_tokens <= progress.num_in_flight_tokens:
            return f"request {request_id}: {_counters(progress)}"
    for request_id, _, progress, _ in places(state).running:
        if progress.num_stale_output_tokens and not progress.drop_stale_output:
            return f"request {request_id} runs with stale output to deliver: {_counters(progress)}"
    return None


@state_invariant(
    "INV-HASH-01",
    Cost.FULL,
    "With prefix caching, a request has one hash per full block of known tokens that has the look-ahead of "
    "the hash behind it; without, none.",
    "A missing hash hides blocks from later requests; one too many names tokens that are not there.",
)
def _one_hash_per_full_block(state: SchedulerState) -> str | None:
    caching, block_size = state.config.enable_prefix_caching, state.config.block_size
    lookahead = state.config.num_hash_lookahead_tokens
    for request_id, _, progress, num_known in places(state).live:
        num_hashes = max(num_known - lookahead, 0) // block_size if caching else 0
        if len(progress.block_hashes) != num_hashes:
            return (
                f"request {request_id} with {num_known} known tokens has {len(progress.block_hashes)} "
                f"block hashes, not {num_hashes}"
            )
    return None


def _counters(progress: Progress) -> str:
    return ", ".join(_nonzero(progress)) or "all counters are zero"


def _nonzero(progress: Progress) -> Iterator[str]:
    for name in (
        "num_computed_tokens",
        "num_in_flight_tokens",
        "num_stale_output_tokens",
        "num_output_placeholders",
        "next_decode_eligible_step",
        "num_preemptions",
        "is_prefill_chunk",
    ):
        if getattr(progress, name):
            yield f"{name} {getattr(progress, name)}"
    if progress.output_token_ids:
        yield f"{len(progress.output_token_ids)} output tokens"


INVARIANTS: tuple[StateInvariant, ...] = (
    _computed_is_known,
    _fresh_is_blank,
    _preempted_starts_over,
    _running_has_computed,
    _chunk_has_rest,
    _live_has_not_stopped,
    _stats_until_output,
    _story_is_in_order,
    _steps_are_consecutive,
    _in_flight_is_the_sum,
    _stale_is_in_flight,
    _one_hash_per_full_block,
)
"""In the order in which they are checked."""
