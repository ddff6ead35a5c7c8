"""What the model runner is told about the step, in the shape that it expects.

Rules
-----
[S-OUT-01] V2: every admitted request is sent whole, first the new ones, then the resumed ones, with all
    its known tokens; running ones are sent as a difference.
[S-OUT-02] V1: only new requests are sent whole. Resumed ones follow the running ones in the difference,
    marked, with all their blocks.
[S-OUT-03] V1: a row that was not in the step before also brings all its known tokens.
[S-OUT-04] A row without new blocks says None.
[S-OUT-05] With pipeline parallelism and without asynchronous scheduling, a row brings the known tokens
    that it computes: the first stage does not see what the last one samples.
[S-OUT-06] The output says how many drafts to propose next: `num_spec_tokens`, or what is set for a
    batch of this size.

Upstream: `v1/core/sched/scheduler.py::Scheduler._make_cached_request_data`,
`v1/core/sched/output.py::NewRequestData.from_request`.
"""

from kvsched_fp.ids import BlockId, RequestId, StepId
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import (
    CachedRequestData,
    NewRequestData,
    SchedulerOutput,
    make_cached_request_data,
    make_scheduler_output,
)
from kvsched_fp.progress import known_tokens, num_known_tokens
from kvsched_fp.schedule.plan import Plan


def make_output(
    plan: Plan, step_id: StepId, prev_step_request_ids: frozenset[RequestId]
) -> SchedulerOutput:
    """Build the output from the plan, before its tokens are counted as computed."""
    if plan.config.use_v2_model_runner:
        sent_whole = plan.scheduled_new + plan.scheduled_resumed  # [S-OUT-01]
        resumed: list[RequestId] = []
    else:
        sent_whole = plan.scheduled_new  # [S-OUT-02]
        resumed = plan.scheduled_resumed
    return make_scheduler_output(
        step_id=step_id,
        scheduled_new_requests=tuple(_new_request(plan, request_id) for request_id in sent_whole),
        scheduled_cached_requests=_cached_requests(plan, resumed, prev_step_request_ids),
        num_scheduled_tokens=OrderedMap.adopt(plan.num_scheduled_tokens),
        total_num_scheduled_tokens=sum(plan.num_scheduled_tokens.values()),
        preempted_request_ids=tuple(plan.preempted_request_ids),
        finished_request_ids=tuple(plan.finished_request_ids),
        new_block_ids_to_zero=_block_ids_to_zero(plan),
        scheduled_spec_token_ids=OrderedMap.adopt(plan.scheduled_spec_token_ids),
        num_spec_tokens_to_schedule=plan.config.num_drafts_for(
            len(plan.num_scheduled_tokens)
        ),  # [S-OUT-06]
        skip_drafts=not plan.drafts_needed,
        has_structured_output_requests=False,
        pending_structured_output_tokens=False,
        num_invalid_spec_tokens=None,
    )


def _new_request(plan: Plan, request_id: RequestId) -> NewRequestData:
    request = plan.requests[request_id]
    return NewRequestData(
        request_id=request_id,
        prompt_token_ids=request.prompt_token_ids,
        block_ids=plan.new_block_ids[request_id],
        num_computed_tokens=plan.progress[request_id].num_computed_tokens,
        prefill_token_ids=(_all_token_ids(plan, request_id) if plan.config.use_v2_model_runner else None),
        lora=request.lora,
        pooling=request.pooling,
    )


def _cached_requests(
    plan: Plan, resumed: list[RequestId], prev_step_request_ids: frozenset[RequestId]
) -> CachedRequestData:
    request_ids = plan.scheduled_running + resumed
    all_token_ids = {}
    if not plan.config.use_v2_model_runner:
        all_token_ids = {
            request_id: _all_token_ids(plan, request_id)
            for request_id in request_ids
            if request_id not in prev_step_request_ids  # [S-OUT-03]
        }
    rows = [plan.progress[request_id] for request_id in request_ids]
    new_block_ids = [plan.new_block_ids[request_id] for request_id in request_ids]
    return make_cached_request_data(
        request_ids=tuple(request_ids),
        resumed_request_ids=tuple(resumed),
        all_token_ids=OrderedMap.adopt(all_token_ids),
        new_block_ids=tuple([ids if any(ids) else None for ids in new_block_ids]),  # [S-OUT-04]
        num_computed_tokens=tuple([progress.num_computed_tokens for progress in rows]),
        num_output_tokens=tuple(
            [len(progress.output_token_ids) + progress.num_output_placeholders for progress in rows]
        ),
        new_token_ids=_new_token_ids(plan, request_ids),
    )


def _all_token_ids(plan: Plan, request_id: RequestId) -> tuple[int, ...]:
    request, progress = plan.requests[request_id], plan.progress[request_id]
    return known_tokens(request, progress, 0, num_known_tokens(request, progress))


def _new_token_ids(plan: Plan, request_ids: list[RequestId]) -> tuple[tuple[int, ...], ...]:
    """Give the known tokens that each row computes, if they are to be sent [S-OUT-05]."""
    if plan.config.pipeline_parallel_size == 1 or plan.config.async_scheduling:
        return ()
    rows = []
    for request_id in request_ids:
        request, progress = plan.requests[request_id], plan.progress[request_id]
        num_drafts = len(plan.scheduled_spec_token_ids.get(request_id, ()))
        start = progress.num_computed_tokens
        end = start + plan.num_scheduled_tokens[request_id] - num_drafts
        num_known = num_known_tokens(request, progress)
        if start < 0:  # the reference counts from the end of its list then (deviation D-05)
            rows.append(known_tokens(request, progress, 0, num_known)[start:end])
        else:
            rows.append(known_tokens(request, progress, start, min(end, num_known)))
    return tuple(rows)


def _block_ids_to_zero(plan: Plan) -> tuple[BlockId, ...] | None:
    if not plan.config.needs_kv_cache_zeroing:
        return None
    return tuple(block_id for ids in plan.kv.new_block_ids for block_id in ids) or None
