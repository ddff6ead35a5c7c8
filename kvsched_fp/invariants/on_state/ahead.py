"""What a request expects of the steps in flight, and what it brings to the next one.

Placeholders and drafts of a request live in its `Progress`; what was scheduled of them stands in the steps
in flight. Outside of these rules is a row with placeholders or drafts that samples and brings nothing,
which no model runner does: nobody takes back what was counted for it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kvsched_fp.config import RunnerType
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, StateInvariant, state_invariant
from kvsched_fp.invariants.state_reading import places
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.request import RequestStatus
from kvsched_fp.state import SchedulerState


@state_invariant(
    "INV-AHEAD-01",
    Cost.FULL,
    "A request that runs has exactly one placeholder for each token that its live rows in flight may "
    "bring, sampled ones and drafts; no other has any.",
    "They count as known; one too few, and a position is computed twice; one too many, and one is left "
    "out.",
    reports=("vLLM PR #48245",),
)
def _placeholders_are_in_flight(state: SchedulerState) -> str | None:
    if not state.config.async_scheduling:
        return None
    num_sampled = state.config.num_sampled_tokens_per_step
    live_rows = _live_rows(state)
    for request_id, _, progress, _ in places(state).live:
        num_placeholders = progress.num_output_placeholders
        rows = [row for row in live_rows.get(request_id, ()) if row.samples]
        num_expected = sum(num_sampled + row.num_drafts for row in rows)
        if num_placeholders != num_expected or (
            num_placeholders and progress.status is not RequestStatus.RUNNING
        ):
            return (
                f"request {request_id} is {progress.status.name} and has {num_placeholders} placeholders; "
                f"its rows in flight may bring {num_expected}"
            )
    return None


@state_invariant(
    "INV-AHEAD-02",
    Cost.FULL,
    "With asynchronous scheduling, a running request behind its prompt has computed all that is known of "
    "it and all placeholders, but what is sampled last; in the middle of its prompt it has no placeholder.",
    "The next step computes the token that is sampled last, whether or not it is there.",
)
def _one_token_behind(state: SchedulerState) -> str | None:
    if not state.config.async_scheduling:
        return None
    num_sampled = state.config.num_sampled_tokens_per_step
    for request_id in state.running:
        progress = state.progress[request_id]
        num_placeholders = progress.num_output_placeholders
        num_known = len(state.requests[request_id].prompt_token_ids) + len(progress.output_token_ids)
        is_sound = num_placeholders == 0
        if not progress.is_prefill_chunk:
            is_sound = progress.num_computed_tokens == num_known + num_placeholders - num_sampled
        if not is_sound:
            return (
                f"request {request_id} has {progress.num_computed_tokens} computed tokens, {num_known} "
                f"known and {num_placeholders} placeholders; in its prompt: {progress.is_prefill_chunk}"
            )
    return None


@state_invariant(
    "INV-AHEAD-03",
    Cost.FULL,
    "No request has more drafts for its next step than the drafter proposes, in any step in flight either.",
    "The model runner has no room for one more.",
)
def _drafts_are_few(state: SchedulerState) -> str | None:
    most = state.config.num_spec_tokens
    for output in state.in_flight:
        for request_id, drafts in output.scheduled_spec_token_ids.items():
            if not 0 < len(drafts) <= most:
                return f"request {request_id} has {len(drafts)} drafts in step {output.step_id}, of {most}"
    for request_id in state.running:
        drafts = state.progress[request_id].spec_token_ids
        if len(drafts) > most:
            return f"request {request_id} has the drafts {drafts}, {most} are proposed"
    return None


@state_invariant(
    "INV-AHEAD-04",
    Cost.FULL,
    "No request waits longer for its next decode than the pipeline has stages.",
    "It would never be served.",
)
def _decodes_again_soon(state: SchedulerState) -> str | None:
    config = state.config
    is_paced = config.use_v2_model_runner or config.runner_type is RunnerType.DIFFUSION
    latest = state.current_step + config.pipeline_parallel_size if is_paced else 0
    for request_id, _, progress, _ in places(state).live:
        if not 0 <= progress.next_decode_eligible_step <= latest:
            return (
                f"request {request_id} may be decoded from step {progress.next_decode_eligible_step} on; "
                f"this is step {state.current_step}, of {config.pipeline_parallel_size} stages"
            )
    return None


@state_invariant(
    "INV-AHEAD-05",
    Cost.FULL,
    "Without asynchronous scheduling, what a request has computed behind its known tokens are drafts in "
    "flight.",
    "There is nothing else to compute there.",
)
def _drafts_are_ahead(state: SchedulerState) -> str | None:
    if state.config.async_scheduling or state.config.num_spec_tokens == 0:
        return None  # without a drafter, INV-PROGRESS-01 says it
    live_rows = _live_rows(state)
    for request_id, _, progress, num_known in places(state).live:
        num_drafts = sum(row.num_drafts for row in live_rows.get(request_id, ()))
        if progress.num_computed_tokens > num_known + num_drafts:
            return (
                f"request {request_id} has {progress.num_computed_tokens} computed tokens, {num_known} "
                f"known and {num_drafts} drafts in flight"
            )
    return None


class _Row(NamedTuple):
    """A row in flight."""

    num_tokens: int
    """Its tokens."""
    num_drafts: int
    """Of those, the drafts."""
    samples: bool
    """Whether it computes the last token that is there."""


def _live_rows(state: SchedulerState) -> dict[RequestId, list[_Row]]:
    """Give the rows in flight of each live request, stale ones left out, the oldest first."""
    rows_of: dict[RequestId, list[_Row]] = {}
    for output in state.in_flight:
        for request_id in output.finished_request_ids:
            rows_of.pop(request_id, None)  # those rows belong to a former life of the id
        for request_id, row in _rows(state, output):
            rows_of.setdefault(request_id, []).append(row)
    for request_id in state.finished_request_ids:
        rows_of.pop(request_id, None)
    for request_id, rows in rows_of.items():
        num_stale = state.progress[request_id].num_stale_output_tokens
        while num_stale > 0 and rows:
            num_stale -= rows.pop(0).num_tokens
    return rows_of


def _rows(state: SchedulerState, output: SchedulerOutput) -> Iterator[tuple[RequestId, _Row]]:
    """Give the rows of live requests in one step."""
    starts = {
        data.request_id: (
            data.num_computed_tokens,
            len(data.prompt_token_ids if data.prefill_token_ids is None else data.prefill_token_ids),
        )
        for data in output.scheduled_new_requests
    }
    cached = output.scheduled_cached_requests
    columns = (cached.request_ids, cached.num_computed_tokens, cached.num_output_tokens)
    for request_id, num_computed_tokens, num_output_tokens in zip(*columns, strict=True):
        if request_id in state.requests:
            num_prompt_tokens = len(state.requests[request_id].prompt_token_ids)
            starts[request_id] = (num_computed_tokens, num_prompt_tokens + num_output_tokens)
    for request_id, num_tokens in output.num_scheduled_tokens.items():
        if request_id not in state.requests:
            continue
        num_computed_tokens, num_known = starts[request_id]
        num_drafts = len(output.scheduled_spec_token_ids.get(request_id, ()))
        samples = num_computed_tokens + num_tokens >= num_known
        yield request_id, _Row(num_tokens, num_drafts, samples)


INVARIANTS: tuple[StateInvariant, ...] = (
    _placeholders_are_in_flight,
    _one_token_behind,
    _drafts_are_few,
    _decodes_again_soon,
    _drafts_are_ahead,
)
"""In the order in which they are checked."""
