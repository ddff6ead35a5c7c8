"""Taking in what one step brought for one request.

Rules
-----
[U-TOK-01] While the request is live, the row's tokens are no longer in flight, whether or not it still
    runs and whether or not a token came back.
[U-TOK-02] A result for a request that has left the state is ignored. A result knows its request by id
    only: if the id was used again meanwhile, the new request is charged with it (deviation D-05).
[U-TOK-03] A share that is stale is drained in step with the results; its tokens are delivered, or
    dropped [M-REL-03].
[U-TOK-04] Tokens are appended one by one until one stops the output [U-STOP-01]; the rest is cut off.
[U-TOK-05] A block that the new tokens fill gets its hash at once; it is cached when it is scheduled.
[U-TOK-06] A request that stopped gives everything back at once, in the order of the batch, so that the
    free list does not depend on anything else.
[U-TOK-07] The first output of a request carries the statistics of its prefill.
[U-TOK-08] A result of more tokens than the stale share of its request is of a former request of that id. It
    is refused for as long as the id is live: the reference fails an assertion there.

Upstream: the loop of `v1/core/sched/scheduler.py::Scheduler.update_from_output`,
`_update_request_with_output`.
"""

import attrs
from pyrsistent import PVector

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InvalidEvent
from kvsched_fp.ids import BlockHash, RequestId
from kvsched_fp.kvcache.coordinator import num_cached_tokens
from kvsched_fp.kvcache.hashing import extend_block_hashes
from kvsched_fp.outputs import make_engine_output
from kvsched_fp.release import end_request
from kvsched_fp.request import (
    FINISH_REASONS,
    PrefillStats,
    Progress,
    Request,
    RequestStatus,
    known_tokens,
    move,
)
from kvsched_fp.update.results import Results
from kvsched_fp.update.stop import Stop, check_stop


def take_in_tokens(
    results: Results,
    request_id: RequestId,
    num_scheduled_tokens: int,
    sampled_token_ids: tuple[int, ...],
) -> None:
    """Take in the result of one row of the batch."""
    progress = results.progress.get(request_id)
    if progress is None:
        return  # [U-TOK-02]
    num_stale_output_tokens = progress.num_stale_output_tokens
    if num_stale_output_tokens > 0:
        num_stale_output_tokens = _drain(results, request_id, num_stale_output_tokens, num_scheduled_tokens)
        if progress.drop_stale_output:
            sampled_token_ids = ()
    num_in_flight_tokens = progress.num_in_flight_tokens - num_scheduled_tokens  # [U-TOK-01]
    if not sampled_token_ids:
        results.progress[request_id] = progress.without_output(
            num_in_flight_tokens, num_stale_output_tokens
        )
        return
    request = results.requests[request_id]
    new_token_ids, output_token_ids, stop = _append_until_stop(
        results.config, request, progress, sampled_token_ids
    )
    results.emit(
        request.client_index,
        make_engine_output(
            request_id,
            new_token_ids,
            None if stop is None else FINISH_REASONS[stop.status],
            None if stop is None else stop.reason,
            _finalize_prefill_stats(results, request_id, progress.prefill_stats),  # [U-TOK-07]
        ),
    )
    if stop is not None:
        _leave(results, request_id, progress.status, stop)  # [U-TOK-06]
        return
    results.progress[request_id] = progress.with_output(
        num_in_flight_tokens,
        num_stale_output_tokens,
        output_token_ids,
        _hash_new_blocks(results.config, request, progress, output_token_ids),
    )


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
    for num_new_tokens, token_id in enumerate(sampled_token_ids, 1):
        output_token_ids = output_token_ids.append(token_id)
        num_tokens = num_prompt_tokens + len(output_token_ids)
        stop = check_stop(request.sampling_params, output_token_ids, num_tokens, config.max_model_len)
        if stop is not None:
            return sampled_token_ids[:num_new_tokens], output_token_ids, stop
    return sampled_token_ids, output_token_ids, None


def _hash_new_blocks(
    config: SchedulerConfig, request: Request, progress: Progress, output_token_ids: PVector[int]
) -> tuple[BlockHash, ...]:
    """Extend the hashes by the blocks that are full now [U-TOK-05]."""
    if not config.enable_prefix_caching:
        return progress.block_hashes
    num_tokens = len(request.prompt_token_ids) + len(output_token_ids)
    num_hashed_tokens = len(progress.block_hashes) * config.block_size
    if num_tokens - num_hashed_tokens < config.block_size:
        return progress.block_hashes
    grown = attrs.evolve(progress, output_token_ids=output_token_ids)
    return extend_block_hashes(
        config.block_hasher,
        progress.block_hashes,
        known_tokens(request, grown, num_hashed_tokens, num_tokens),
        num_hashed_tokens,
        config.block_size,
        request.cache_salt,
    )


def _finalize_prefill_stats(
    results: Results, request_id: RequestId, stats: PrefillStats | None
) -> PrefillStats | None:
    """Add how much of the computed prompt went into the prefix cache."""
    if stats is None:
        return None
    num_cached = min(num_cached_tokens(results.kv, request_id), stats.num_prompt_tokens)
    num_created = max(num_cached - stats.num_local_cached_tokens, 0)
    return attrs.evolve(stats, num_cache_creation_tokens=num_created)


def _leave(results: Results, request_id: RequestId, status: RequestStatus, stop: Stop) -> None:
    """End a request that stopped."""
    move(status, stop.status)
    end_request(results, request_id)
    results.stopped.add(request_id)
