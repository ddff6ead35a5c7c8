"""Taking in what one step brought for one request.

Rules
-----
[U-TOK-01] While the request is live, the row's tokens are no longer in flight, whether or not it still
    runs and whether or not a token came back.
[U-TOK-02] A result for a request that has left the state is ignored. A result knows its request by id
    only: if the id was used again meanwhile, the new request is charged with it (deviation D-05).
[U-TOK-03] A share that is stale is drained in step with the results; its tokens are delivered, or
    dropped [M-REL-03]. It resolves no placeholder: those were given up with the preemption.
[U-TOK-04] Tokens are appended one by one until one stops the output [U-STOP-01]; the rest is cut off,
    and what was cut off does not count as computed.
[U-TOK-05] A block that the new tokens fill gets its hash at once; it is cached when it is scheduled, but
    for [U-TOK-10].
[U-TOK-06] A request that stopped gives everything back at once, in the order of the batch, so that the
    free list does not depend on anything else.
[U-TOK-07] The first output of a request carries the statistics of its prefill.
[U-TOK-08] A result of more tokens than the stale share of its request is of a former request of that id. It
    is refused for as long as the id is live: the reference fails an assertion there.
[U-TOK-09] Every token that came back resolves a placeholder, cut off or not.
[U-TOK-10] Where a step is scheduled before its tokens are known (placeholders, drafts), its full blocks
    are cached only now, as far as no step in flight can still be taken back; also those of a request
    that stopped.
[U-TOK-11] A pooling request stops with its pooled output, a request of an encoder instance with its prompt.
[U-TOK-12] Tokens that the grammar does not allow end the request with an error; it is told them all the
    same.

Upstream: the loop of `v1/core/sched/scheduler.py::Scheduler.update_from_output`,
`_update_request_with_output`.
"""

import attrs
from pyrsistent import PVector

from kvsched_fp.config import RunnerType, SchedulerConfig
from kvsched_fp.errors import InvalidEvent
from kvsched_fp.grammar import Grammar, GrammarError
from kvsched_fp.ids import BlockHash, RequestId
from kvsched_fp.kvcache.coordinator import cache_full_blocks, num_cached_tokens
from kvsched_fp.kvcache.naming import hash_new_blocks
from kvsched_fp.outputs import SchedulerOutput, make_engine_output
from kvsched_fp.progress import (
    PrefillStats,
    Progress,
    RequestEvent,
    evolve_progress,
    known_tokens,
    with_output,
    without_output,
)
from kvsched_fp.request import FINISH_REASONS, Request, RequestStatus
from kvsched_fp.sessions import end_or_continue
from kvsched_fp.update.drafts import take_back_rejected
from kvsched_fp.update.results import Results
from kvsched_fp.update.stop import Stop, check_stop


def take_in_row(
    results: Results,
    output: SchedulerOutput,
    request_id: RequestId,
    num_scheduled_tokens: int,
    sampled_token_ids: tuple[int, ...],
    *,
    pooled: bool,
) -> None:
    """Take in the result of one row of the batch."""
    progress = results.progress.get(request_id)
    if progress is None:
        return  # [U-TOK-02]
    num_in_flight_tokens = progress.num_in_flight_tokens - num_scheduled_tokens  # [U-TOK-01]
    num_stale_tokens = progress.num_stale_output_tokens
    is_stale = num_stale_tokens > 0
    if is_stale:
        num_stale_tokens = _drain(results, request_id, num_stale_tokens, num_scheduled_tokens)
    num_computed_tokens, num_placeholders = progress.num_computed_tokens, progress.num_output_placeholders
    metrics = progress.spec_decode_metrics
    drops = is_stale and progress.drop_stale_output
    if request_id in results.drafted and not drops:
        num_computed_tokens, num_placeholders, metrics = take_back_rejected(
            results, output, request_id, progress, sampled_token_ids
        )
    if drops or not sampled_token_ids:
        progress = without_output(
            progress, num_computed_tokens, num_in_flight_tokens, num_stale_tokens, num_placeholders, metrics
        )
        results.progress[request_id] = progress
        if not drops and results.config.runner_type is not RunnerType.GENERATE:
            _end_without_tokens(results, request_id, progress, pooled=pooled)  # [U-TOK-11]
        return
    request = results.requests[request_id]
    new_token_ids, output_token_ids, stop = _append_until_stop(
        results.config, request, progress, sampled_token_ids
    )
    settles_late = not is_stale and (num_placeholders > 0 or results.config.num_spec_tokens > 0)
    if not is_stale:
        num_computed_tokens -= len(sampled_token_ids) - len(new_token_ids)  # [U-TOK-04]
        if num_placeholders > 0:
            num_placeholders -= len(sampled_token_ids)  # [U-TOK-09]
    grammar = progress.grammar
    if request.needs_grammar:
        grammar, stop = _accept(request_id, grammar, new_token_ids, stop)
    advanced = with_output(
        progress,
        num_computed_tokens,
        num_in_flight_tokens,
        num_stale_tokens,
        num_placeholders,
        output_token_ids,
        _extend_hashes(results.config, request, progress, output_token_ids),
        metrics,
        grammar,
    )
    results.progress[request_id] = advanced
    if settles_late and progress.status is RequestStatus.RUNNING:
        _cache_settled_blocks(results, request, advanced)  # [U-TOK-10]
    _tell(results, request, progress, new_token_ids, stop, pooled=False)


def _end_without_tokens(
    results: Results, request_id: RequestId, progress: Progress, *, pooled: bool
) -> None:
    """End a request that needs no token to be done, if it is [U-TOK-11]."""
    request = results.requests[request_id]
    is_encoder = results.config.runner_type is RunnerType.ENCODER_ONLY
    if pooled or (is_encoder and progress.num_computed_tokens >= request.num_prompt_tokens):
        stop = Stop(RequestStatus.FINISHED_STOPPED, None)
        _tell(results, request, progress, (), stop, pooled=pooled)


def _drain(results: Results, request_id: RequestId, num_stale_tokens: int, num_tokens: int) -> int:
    """Give what is left of a stale share behind `num_tokens` of a result [U-TOK-03, U-TOK-08]."""
    if num_tokens > num_stale_tokens:
        raise InvalidEvent(
            "step_id",
            results.step_id,
            f"a step with at most {num_stale_tokens} tokens of request {request_id!r}; this one has "
            f"{num_tokens}, of an earlier request of that id: end {request_id!r} first",
        )
    return num_stale_tokens - num_tokens


def _append_until_stop(
    config: SchedulerConfig,
    request: Request,
    progress: Progress,
    sampled_token_ids: tuple[int, ...],
) -> tuple[tuple[int, ...], PVector[int], Stop | None]:
    """Append tokens until one stops the output [U-TOK-04].

    Gives the tokens that count, the output with them, and the stop, if any.
    """
    output_token_ids = progress.output_token_ids
    num_prompt_tokens = len(request.prompt_token_ids)
    for token_id in sampled_token_ids:
        output_token_ids = output_token_ids.append(token_id)
        num_tokens = num_prompt_tokens + len(output_token_ids)
        stop = check_stop(request.sampling_params, output_token_ids, num_tokens, config.max_model_len)
        if stop is not None:
            num_new_tokens = len(output_token_ids) - len(progress.output_token_ids)
            return sampled_token_ids[:num_new_tokens], output_token_ids, stop
    return sampled_token_ids, output_token_ids, None


def _accept(
    request_id: RequestId,
    grammar: Grammar | GrammarError | None,
    new_token_ids: tuple[int, ...],
    stop: Stop | None,
) -> tuple[Grammar, Stop | None]:
    """Let the grammar go past the new tokens; a rejection is a stop of its own [U-TOK-12]."""
    if grammar is None or isinstance(grammar, GrammarError):
        # Its id was used before, and the old request's result is late (deviation D-05).
        raise InvalidEvent("sampled_token_ids", request_id, "requests that have their grammar")
    grammar, all_accepted = grammar.accept_tokens(new_token_ids)
    if all_accepted:
        return grammar, stop
    return grammar, Stop(RequestStatus.FINISHED_ERROR, None if stop is None else stop.reason)


def _extend_hashes(
    config: SchedulerConfig, request: Request, progress: Progress, output_token_ids: PVector[int]
) -> tuple[BlockHash, ...]:
    """Extend the hashes by the blocks that are full now, which few rows have [U-TOK-05]."""
    if not config.enable_prefix_caching:
        return progress.block_hashes
    num_tokens = len(request.prompt_token_ids) + len(output_token_ids)
    num_hashed_tokens = len(progress.block_hashes) * config.block_size
    if num_tokens - num_hashed_tokens < config.block_size:
        return progress.block_hashes
    grown = evolve_progress(progress, output_token_ids=output_token_ids)
    new_token_ids = known_tokens(request, grown, num_hashed_tokens, num_tokens)
    return hash_new_blocks(config, request, progress.block_hashes, new_token_ids)


def _cache_settled_blocks(results: Results, request: Request, progress: Progress) -> None:
    """Enter the blocks into the prefix index that no step in flight can take back [U-TOK-10]."""
    tables = results.kv.tables[request.request_id]
    num_settled = progress.num_computed_tokens - progress.num_in_flight_tokens
    cached = cache_full_blocks(results.kv, request, progress, tables, num_settled)
    if cached is not tables:
        results.kv.tables[request.request_id] = cached


def _tell(
    results: Results,
    request: Request,
    progress: Progress,
    new_token_ids: tuple[int, ...],
    stop: Stop | None,
    *,
    pooled: bool,
) -> None:
    """Tell the client, and let a request that stopped end or go on; `progress` is that from before."""
    request_id = request.request_id
    stats = progress.prefill_stats
    if stats is not None:
        stats = _finalize_prefill_stats(results, request_id, stats)  # [U-TOK-07]
    stop_reason, metrics, events = progress.stop_reason, None, progress.events
    if stop is not None:
        stop_reason = stop_reason if stop.reason is None else stop.reason
        metrics = results.progress[request_id].spec_decode_metrics
        events += _leave(results, request_id, stop.status, stop_reason)
    finish_reason = None if stop is None else FINISH_REASONS[stop.status]
    results.emit(
        request.client_index,
        make_engine_output(
            request_id, new_token_ids, finish_reason, stop_reason, stats, metrics, events, None, pooled
        ),
    )


def _leave(
    results: Results, request_id: RequestId, status: RequestStatus, stop_reason: int | str | None
) -> tuple[RequestEvent, ...]:
    """Let a request that stopped end, or its session go on [U-TOK-06]; give what happened to it by that."""
    results.stopped.add(request_id)
    if not end_or_continue(results, request_id, status, stop_reason):
        return ()
    results.continuing.append(request_id)
    progress = results.progress[request_id]
    results.progress[request_id] = evolve_progress(progress, events=())
    return progress.events


def _finalize_prefill_stats(results: Results, request_id: RequestId, stats: PrefillStats) -> PrefillStats:
    """Add how much of the computed prompt went into the prefix cache."""
    num_cached = min(num_cached_tokens(results.kv, request_id), stats.num_prompt_tokens)
    num_created = max(num_cached - stats.num_local_cached_tokens, 0)
    return attrs.evolve(stats, num_cache_creation_tokens=num_created)
