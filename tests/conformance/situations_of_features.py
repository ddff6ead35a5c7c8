"""What happened that only an engine with features sees (`random_features.py`)."""

from collections.abc import Iterator

from kvsched_fp import (
    AddRequest,
    Event,
    GrammarFailed,
    GrammarReady,
    RequestStatus,
    Schedule,
    SchedulerState,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.config import RunnerType
from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import EngineOutput, SchedulerOutput
from kvsched_fp.progress import Progress
from kvsched_fp.schedule import run_phases
from kvsched_fp.schedule.plan import Plan
from kvsched_fp.schedule.running import waits

_OF_STEPS = (
    "several steps in flight",
    "a row planned on placeholders",
    "no step for a request that is sure to be done",
    "no decode before its turn in the pipeline",
    "tokens sent to the first stage",
    "drafts to verify",
    "drafts cut by a budget",
    "drafting slots used up what was left of a budget",
    "a block for the look-ahead of a drafter",
    "a hit gave up its last block to the drafter",
    "a hit on blocks whose hash looks ahead",
    "drafts lost by a preemption",
    "a new decode padded with drafts",
    "fewer drafts for a batch of this size",
    "drafts said to be useless",
    "a victim gave its drafting slots back",
    "a prompt not cut where the drafter reads ahead",
    "a request skipped by the drafter's look-ahead",
    "a request skipped for its grammar",
    "a session skipped for its input",
    "a request skipped for its adapter",
    "a canvas held back, its steps in flight",
    "a canvas narrower than the served one",
    "a row under a grammar",
    "a row under a grammar that waits for a token",
    "a parked session took the place of an active request",
    "prompts held back by the engine of several ranks",
)
_OF_RESULTS = (
    "all drafts accepted",
    "some drafts rejected",
    "drafts that a grammar does not allow not counted",
    "blocks cached when the tokens came back",
    "stale output with drafts delivered",
    "stale output with drafts dropped",
    "stale output dropped since blocks have to be delivered",
    "tokens of a session's stale step dropped",
    "a late result of a request that has left",
    "a pooled output",
    "a pooled output of a prompt that came in pieces",
    "a prompt of an encoder instance done",
    "a canvas with tokens",
    "a canvas without tokens",
    "tokens that a grammar rejected",
    "ended for want of a grammar",
    "a session parked",
    "a session went on with the next chunk",
    "a session ended by its marker",
    "events of a request told",
    "statistics of drafts told",
    "metrics of a request's drafts told",
)
_OF_OTHERS = (
    "drafts ignored in the middle of a prompt",
    "drafts cut by a grammar",
    "drafts replaced in flight",
    "drafts in flight padded",
    "a grammar came",
    "a grammar failed",
    "a chunk begun at once",
    "a chunk queued",
    "the end of a session queued",
    "the end of a parked session",
)
FEATURE_SITUATIONS = (*_OF_STEPS, *_OF_RESULTS, *_OF_OTHERS)
"""Everything that is counted here."""


def situations_of_features(before: SchedulerState, event: Event, after: SchedulerState) -> Iterator[str]:
    """Name what happened between two states; one name may come several times."""
    match event:
        case Schedule(throttle_prefills):
            yield from _of_step(before, after)
            yield from _of_refusals(before, throttle_prefills=throttle_prefills)
        case Update():
            yield from _of_update(before, event, after)
        case UpdateDrafts(drafts):
            for request_id, tokens in drafts.items():
                progress = before.progress[request_id]
                if tokens and progress.is_prefill_chunk:
                    yield "drafts ignored in the middle of a prompt"
                elif len(after.progress[request_id].spec_token_ids) < len(tokens) and -1 not in tokens:
                    yield "drafts cut by a grammar"
        case UpdateDraftsInFlight(step_id):
            output = next(output for output in after.in_flight if output.step_id == step_id)
            yield "drafts replaced in flight"
            if output.num_invalid_spec_tokens:
                yield "drafts in flight padded"
        case GrammarReady():
            yield "a grammar came"
        case GrammarFailed():
            yield "a grammar failed"
        case AddRequest(request) if request.request_id in before.requests:
            yield from _of_chunk(before.progress[request.request_id], is_end=not request.resumable)


def _of_step(before: SchedulerState, after: SchedulerState) -> Iterator[str]:
    output = after.in_flight[-1]
    config = before.config
    for request_id in output.num_scheduled_tokens:
        yield from _of_planned_row(before, output, request_id)
        yield from _of_blocks(before, after, request_id)
    for request_id in output.preempted_request_ids:
        if request_id in before.running and before.progress[request_id].spec_token_ids:
            yield "drafts lost by a preemption"
            if config.max_num_new_slots_for_drafting:
                yield "a victim gave its drafting slots back"
    num_active = len(after.running) + after.num_waiting_for_input
    is_full = bool(
        after.num_waiting_for_input and num_active >= config.max_num_active and len(after.waiting)
    )
    is_narrow = config.runner_type is RunnerType.DIFFUSION and any(
        0 < len(drafts) < config.num_spec_tokens for drafts in output.scheduled_spec_token_ids.values()
    )
    fewer_drafts = output.num_spec_tokens_to_schedule < config.num_spec_tokens
    happened = {
        "several steps in flight": len(after.in_flight) > 1,
        "tokens sent to the first stage": bool(output.scheduled_cached_requests.new_token_ids),
        "fewer drafts for a batch of this size": fewer_drafts and bool(output.num_scheduled_tokens),
        "drafts said to be useless": output.skip_drafts and bool(output.num_scheduled_tokens),
        "a row under a grammar": output.has_structured_output_requests,
        "a row under a grammar that waits for a token": output.pending_structured_output_tokens,
        "a parked session took the place of an active request": is_full,
        "a canvas narrower than the served one": is_narrow,
    }
    yield from (situation for situation, did in happened.items() if did)


def _of_planned_row(
    before: SchedulerState, output: SchedulerOutput, request_id: RequestId
) -> Iterator[str]:
    earlier = before.progress[request_id]
    if earlier.num_output_placeholders:
        yield "a row planned on placeholders"
    drafts = output.scheduled_spec_token_ids.get(request_id, ())
    if drafts and request_id in before.running:
        yield "drafts to verify"
        if len(drafts) < len(earlier.spec_token_ids):
            yield "drafts cut by a budget"
    elif drafts:
        yield "a new decode padded with drafts"


def _of_blocks(before: SchedulerState, after: SchedulerState, request_id: RequestId) -> Iterator[str]:
    config, progress = before.config, after.progress[request_id]
    num_tokens = min(progress.num_computed_tokens, config.max_model_len)
    num_blocks = after.kv.tables[request_id][0].block_ids.length
    if config.num_lookahead_tokens and num_blocks > -(-num_tokens // config.block_size):
        yield "a block for the look-ahead of a drafter"
    if request_id in before.running or before.progress[request_id].num_computed_tokens:
        return
    if progress.num_computed_tokens > after.in_flight[-1].num_scheduled_tokens[request_id]:
        if config.drop_eagle_block:
            yield "a hit gave up its last block to the drafter"
        if config.num_hash_lookahead_tokens:
            yield "a hit on blocks whose hash looks ahead"


_REFUSALS = {
    "S-RUN-07": "no step for a request that is sure to be done",
    "S-RUN-08": "no decode before its turn in the pipeline",
    "S-DRAFT-03": "a request skipped by the drafter's look-ahead",
    "S-WAIT-13": "a request skipped for its adapter",
}


class _Listener(Plan):
    """A plan that notes which rules passed requests over."""

    __slots__ = ("noted",)

    def __init__(self, state: SchedulerState, *, throttle_prefills: bool) -> None:
        super().__init__(state, throttle_prefills=throttle_prefills, time=0.0)
        self.noted: list[str] = []

    def passed_over(self, request_id: RequestId) -> None:
        request, progress = self.requests[request_id], self.progress[request_id]
        rule_id = waits(self, request, progress)
        is_diffusion = self.config.runner_type is RunnerType.DIFFUSION
        if rule_id == "S-RUN-08" and is_diffusion and request.max_denoise_steps is not None:
            self.noted.append("a canvas held back, its steps in flight")
        elif rule_id in _REFUSALS:
            self.noted.append(_REFUSALS[rule_id])

    def refused(self, request_id: RequestId, rule_id: str) -> None:
        if rule_id == "S-WAIT-12":
            waits_for_input = self.progress[request_id].status is RequestStatus.WAITING_FOR_INPUT
            self.noted.append(
                "a session skipped for its input"
                if waits_for_input
                else "a request skipped for its grammar"
            )
        elif rule_id in _REFUSALS:
            self.noted.append(_REFUSALS[rule_id])


def _of_refusals(before: SchedulerState, *, throttle_prefills: bool) -> Iterator[str]:
    listener = _Listener(before, throttle_prefills=throttle_prefills)
    run_phases(listener)
    yield from listener.noted
    if throttle_prefills and listener.hold_prefills and before.config.data_parallel_size > 1:
        yield "prompts held back by the engine of several ranks"
    if listener.token_budget > 0 and 0 < listener.input_budget <= listener.draft_slots:
        yield "drafting slots used up what was left of a budget"
    lookahead = before.config.num_prefill_lookahead_tokens
    for request_id, num_tokens in listener.num_scheduled_tokens.items():
        progress = listener.progress[request_id]
        num_known = listener.requests[request_id].num_prompt_tokens + len(progress.output_token_ids)
        if lookahead and num_known - progress.num_computed_tokens - num_tokens == lookahead:
            yield "a prompt not cut where the drafter reads ahead"


def _of_update(before: SchedulerState, event: Update, after: SchedulerState) -> Iterator[str]:
    output = before.in_flight[0]
    for client in after.emitted.clients.values():
        if client.scheduler_stats is not None and client.scheduler_stats.spec_decoding_stats is not None:
            yield "statistics of drafts told"
        for told in client.outputs:
            yield from _of_output(before, told, after)
    for request_id in output.num_scheduled_tokens:
        if request_id in before.progress:
            yield from _of_row(before, event, after, output, request_id)
        else:
            yield "a late result of a request that has left"


def _of_output(before: SchedulerState, told: EngineOutput, after: SchedulerState) -> Iterator[str]:
    if told.events:
        yield "events of a request told"
    if told.spec_decode_metrics is not None:
        yield "metrics of a request's drafts told"
    if told.pooled:
        yield "a pooled output"
        num_prompt_tokens = before.requests[told.request_id].num_prompt_tokens
        if before.in_flight[0].num_scheduled_tokens[told.request_id] < num_prompt_tokens:
            yield "a pooled output of a prompt that came in pieces"
    if told.error is not None:
        yield "ended for want of a grammar"
        return
    request = before.requests[told.request_id]
    if told.finish_reason is None:
        return
    if request.needs_grammar and told.finish_reason.name == "ERROR":
        yield "tokens that a grammar rejected"
    if before.config.runner_type is RunnerType.ENCODER_ONLY and not told.new_token_ids:
        yield "a prompt of an encoder instance done"
    if request.resumable:
        yield from _of_stopped_session(before, told, after)


def _of_stopped_session(before: SchedulerState, told: EngineOutput, after: SchedulerState) -> Iterator[str]:
    later = after.progress.get(told.request_id)
    if later is None:
        if before.progress[told.request_id].chunks[:1] == (None,):
            yield "a session ended by its marker"
    elif later.status is RequestStatus.WAITING_FOR_INPUT:
        yield "a session parked"
    else:
        yield "a session went on with the next chunk"


def _of_row(
    before: SchedulerState,
    event: Update,
    after: SchedulerState,
    output: SchedulerOutput,
    request_id: RequestId,
) -> Iterator[str]:
    progress = before.progress[request_id]
    drafts = output.scheduled_spec_token_ids.get(request_id, ())
    tokens = event.result.sampled_token_ids.get(request_id, ())
    if before.config.runner_type is RunnerType.DIFFUSION and drafts:
        yield "a canvas with tokens" if tokens else "a canvas without tokens"
    elif drafts and tokens:
        yield "all drafts accepted" if len(tokens) > len(drafts) else "some drafts rejected"
        if output.num_invalid_spec_tokens and request_id in output.num_invalid_spec_tokens:
            yield "drafts that a grammar does not allow not counted"
        if progress.num_stale_output_tokens:
            dropped = progress.drop_stale_output
            yield "stale output with drafts dropped" if dropped else "stale output with drafts delivered"
    drops = progress.num_stale_output_tokens and progress.drop_stale_output
    if tokens and drops and before.config.requires_kv_delivery and progress.num_preemptions:
        yield "stale output dropped since blocks have to be delivered"
    if tokens and drops and before.requests[request_id].resumable:
        yield "tokens of a session's stale step dropped"
    tables, later = before.kv.tables.get(request_id), after.kv.tables.get(request_id)
    if tables and later and later[0].num_cached_blocks > tables[0].num_cached_blocks:
        yield "blocks cached when the tokens came back"


def _of_chunk(progress: Progress, *, is_end: bool) -> Iterator[str]:
    if progress.status is RequestStatus.WAITING_FOR_INPUT:
        yield "the end of a parked session" if is_end else "a chunk begun at once"
    else:
        yield "the end of a session queued" if is_end else "a chunk queued"
