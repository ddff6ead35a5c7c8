"""A scheduler's values as short lines for a human reader.

What a step is printed as: `step 3: a +1 block 5 | b new +4 blocks 6 7; preempted c; used 5/9`, rows in the
order of the batch. A row that verifies drafts ends with them: `a +3 drafts 50 51`; `_` is a draft that only
the worker knows, or padding. Tokens are printed as ids, block hashes as the tokens that they were first
seen for: `a[0:4]` are the first four tokens of `a`.
"""

from collections.abc import Iterable, Mapping

from kvsched_fp import (
    EngineOutput,
    Progress,
    RequestStatus,
    SchedulerConfig,
    SchedulerOutput,
    SchedulerState,
    explain,
    grammar_rows,
)
from kvsched_fp.ids import BlockHash, BlockId, RequestId
from kvsched_fp.kvcache.hashing import split_block_key
from kvsched_fp.kvcache.kv_events import BlockRemoved, BlockStored
from kvsched_fp.kvcache.pool import as_tuple
from kvsched_fp.outputs import BlockIds, ClientOutputs, PrefixCacheStats, SpecDecodingStats
from kvsched_fp.progress import PrefillStats, RequestSpecDecodeMetrics, num_known_tokens
from kvsched_fp.state import live_request_ids

Labels = Mapping[BlockHash, str]
"""What each block hash stands for."""


def render_config(config: SchedulerConfig) -> str:
    """Print the sizes of a world."""
    return (
        f"{config.num_blocks - 1} usable blocks of {config.block_size} tokens, "
        f"{config.token_budget} tokens a step, at most {config.max_num_active} running, "
        f"{config.policy.value}"
    )


def render_step(before: SchedulerState, after: SchedulerState, output: SchedulerOutput) -> str:
    """Print what one `schedule()` decided."""
    rows = [_row(before, output, request_id) for request_id in output.num_scheduled_tokens]
    parts = [" | ".join(rows) or "nothing"]
    if output.preempted_request_ids:
        parts.append(_listed("preempted", output.preempted_request_ids))
    if output.finished_request_ids:
        parts.append(_listed("finished", output.finished_request_ids))
    if output.new_block_ids_to_zero is not None:
        parts.append(_listed("to zero", output.new_block_ids_to_zero))
    if output.skip_drafts:
        parts.append("no more drafts")
    pool = after.kv.pool
    num_usable = pool.num_blocks - 1
    parts.append(f"used {num_usable - pool.num_free_blocks}/{num_usable}")
    return f"step {output.step_id}: " + "; ".join(parts)


def _row(before: SchedulerState, output: SchedulerOutput, request_id: RequestId) -> str:
    num_new_tokens = output.num_scheduled_tokens[request_id]
    drafts = _drafts(output.scheduled_spec_token_ids.get(request_id, ()))
    if request_id in before.running:
        rows = output.scheduled_cached_requests
        blocks = rows.new_block_ids[rows.request_ids.index(request_id)]
        return f"{request_id} +{num_new_tokens}{_blocks(blocks)}{drafts}"
    progress = before.progress[request_id]
    kind = "resumed" if progress.status is RequestStatus.PREEMPTED else "new"
    num_computed_tokens, blocks = _admission(output, request_id)
    start = f" from {num_computed_tokens}" if num_computed_tokens else ""
    return f"{request_id} {kind} +{num_new_tokens}{start}{_blocks(blocks)}{drafts}"


def _admission(output: SchedulerOutput, request_id: RequestId) -> tuple[int, BlockIds | None]:
    for new in output.scheduled_new_requests:
        if new.request_id == request_id:
            return new.num_computed_tokens, new.block_ids
    rows = output.scheduled_cached_requests
    index = rows.request_ids.index(request_id)
    return rows.num_computed_tokens[index], rows.new_block_ids[index]


def _blocks(block_ids: BlockIds | None) -> str:
    if block_ids is None:
        return ""
    groups = " + ".join(" ".join(map(str, group)) for group in block_ids)
    return f" block{'s' if sum(map(len, block_ids)) > 1 else ''} {groups}"


def _drafts(token_ids: Iterable[int]) -> str:
    texts = ["_" if token_id < 0 else str(token_id) for token_id in token_ids]
    return _listed(" drafts", texts) if texts else ""


def _listed(title: str, items: Iterable[object]) -> str:
    return " ".join([title, *map(str, items)])


def render_emitted(state: SchedulerState) -> str:
    """Print what the last update told the clients."""
    clients = state.emitted.clients
    told = {index: text for index, client in clients.items() if (text := _client(client))}
    if not told:
        return "no output"
    if set(told) == {0}:
        return told[0]
    return "\n".join(f"client {index}: {text}" for index, text in told.items())


def _client(client: ClientOutputs) -> str:
    parts = [_engine_output(output) for output in client.outputs]
    if client.finished_request_ids is not None:
        parts.append(_listed("told finished", client.finished_request_ids))
    return " | ".join(parts)


def _engine_output(output: EngineOutput) -> str:
    tokens = "pooled" if output.pooled else ",".join(map(str, output.new_token_ids))
    text = f"{output.request_id}={tokens}"
    reasons = [str(part) for part in (output.stop_reason, output.error) if part is not None]
    if output.finish_reason is not None:
        text += f" ({': '.join([output.finish_reason.value, *reasons])})"
    elif reasons:
        text += f" (still {': '.join(reasons)})"
    if output.events:
        text += f" [{', '.join(f'{event.type.value} {event.time:g}' for event in output.events)}]"
    return text


def render_queues(state: SchedulerState) -> str:
    """Print who runs and who waits, in order."""
    queues: dict[str, Iterable[RequestId]] = {"running": state.running, "waiting": state.waiting}
    if len(state.kv_holding_waiting):
        queues["holding"] = state.kv_holding_waiting
    if state.deferred:
        queues["deferred"] = sorted(state.deferred)
    return " | ".join(_listed(name, list(ids) or ["-"]) for name, ids in queues.items())


def render_blocks(state: SchedulerState) -> str:
    """Print the block tables, then the free list in eviction order."""
    parts = []
    for request_id in live_request_ids(state):
        block_ids = state.kv.block_ids(request_id)
        if block_ids is not None:
            parts.append(f"{request_id}:{_plain(block_ids)}")
    parts.append(_listed("free:", state.kv.pool.free_blocks() or ["-"]))
    return " | ".join(parts)


def _plain(block_ids: BlockIds) -> str:
    return " +".join("".join(f" {block_id}" for block_id in group) for group in block_ids)


def render_cache(state: SchedulerState, labels: Labels) -> str:
    """Print the prefix index: the tokens, and the blocks that hold them, the first cached first."""
    cached = sorted((as_tuple(blocks), key) for key, blocks in state.kv.pool.cached.items())
    return " | ".join(_cached(labels[split_block_key(key)[0]], blocks) for blocks, key in cached) or "empty"


def _cached(label: str, block_ids: tuple[BlockId, ...]) -> str:
    return f"{label} in {' and '.join(map(str, block_ids))}"


def render_requests(state: SchedulerState) -> str:
    """Print the counters of every live request, in the order in which they were added."""
    return "\n".join(_progress(state, request_id) for request_id in live_request_ids(state)) or "none"


def _progress(state: SchedulerState, request_id: RequestId) -> str:
    progress: Progress = state.progress[request_id]
    num_known = num_known_tokens(state.requests[request_id], progress)
    text = (
        f"{request_id} {progress.status.value}: computed {progress.num_computed_tokens} of {num_known}, "
        f"{progress.num_in_flight_tokens} in flight"
    )
    if progress.num_stale_output_tokens:
        fate = "drop" if progress.drop_stale_output else "deliver"
        text += f", {progress.num_stale_output_tokens} of them stale, to {fate}"
    if progress.num_preemptions:
        text += f", preempted {progress.num_preemptions}x"
    if progress.num_output_placeholders:
        count = progress.num_output_placeholders
        text += f", {count} placeholder{'s' if count > 1 else ''}"
    if progress.spec_token_ids:
        text += f", next{_drafts(progress.spec_token_ids)}"
    if progress.chunks:
        text += f", to come: {' '.join('end' if chunk is None else 'input' for chunk in progress.chunks)}"
    return text


def render_stats(state: SchedulerState) -> str:
    """Print the statistics that the last update emitted."""
    lines = []
    for client in state.emitted.clients.values():
        stats = client.scheduler_stats
        if stats is not None:
            lines.append(
                f"running {stats.num_running_requests}, waiting {stats.num_waiting_requests}, "
                f"skipped {stats.num_skipped_waiting_requests}, usage {stats.kv_cache_usage:.2f}"
            )
            lines.append(_prefix_cache_stats(stats.prefix_cache_stats))
            if stats.spec_decoding_stats is not None:
                lines.append(_spec_decoding_stats(stats.spec_decoding_stats))
        lines.extend(
            _spec_decode_metrics(output.request_id, output.spec_decode_metrics)
            for output in client.outputs
            if output.spec_decode_metrics is not None
        )
        lines.extend(
            _prefill_stats(output.request_id, output.prefill_stats)
            for output in client.outputs
            if output.prefill_stats is not None
        )
    return "\n".join(lines) or "none"


def _prefix_cache_stats(stats: PrefixCacheStats) -> str:
    return (
        f"look-ups: {stats.requests} first ({stats.hits} of {stats.queries} tokens found), "
        f"{stats.preempted_requests} again ({stats.preempted_hits} of {stats.preempted_queries})"
        + ("; reset" if stats.reset else "")
    )


def _spec_decoding_stats(stats: SpecDecodingStats) -> str:
    per_position = zip(stats.num_accepted_tokens_per_pos, stats.num_draft_tokens_per_pos, strict=True)
    return (
        f"drafts: {stats.num_accepted_tokens} of {stats.num_draft_tokens} accepted, "
        f"in {stats.num_drafts} rows, "
        f"by position {' '.join(f'{some}/{all_}' for some, all_ in per_position)}"
    )


def _spec_decode_metrics(request_id: RequestId, metrics: RequestSpecDecodeMetrics) -> str:
    counts = [f"{count}x{index}" for index, count in enumerate(metrics.histogram) if count]
    text = f"drafts of {request_id}: {metrics.num_draft_tokens}, accepted {' '.join(counts) or 'none'}"
    steps = zip(metrics.per_step_accepted, metrics.per_step_drafted, strict=True)
    in_order = [f"{some}/{all_}" for some, all_ in steps]
    return _listed(f"{text}, in order", in_order) if in_order else text


def _prefill_stats(request_id: RequestId, stats: PrefillStats) -> str:
    return (
        f"prefill of {request_id}: {stats.num_prompt_tokens} tokens, "
        f"{stats.num_local_cached_tokens} found, {stats.num_computed_tokens} computed, "
        f"{stats.num_cache_creation_tokens} stored"
    )


def render_output(output: SchedulerOutput) -> str:
    """Print the shape of an output: what the model runner is sent whole, and what as a difference."""
    lines = []
    for new in output.scheduled_new_requests:
        tokens = (
            "no tokens" if new.prefill_token_ids is None else f"all {len(new.prefill_token_ids)} tokens"
        )
        lines.append(
            f"whole: {new.request_id} prompt {len(new.prompt_token_ids)}, {tokens}, "
            f"computed {new.num_computed_tokens},{_blocks(new.block_ids)}"
        )
    rows = output.scheduled_cached_requests
    for index, request_id in enumerate(rows.request_ids):
        all_tokens = rows.all_token_ids.get(request_id)
        lines.append(
            f"difference: {request_id}{' resumed' if request_id in rows.resumed_request_ids else ''} "
            f"computed {rows.num_computed_tokens[index]}, output {rows.num_output_tokens[index]},"
            f"{_blocks(rows.new_block_ids[index]) or ' no blocks'}"
            + ("" if all_tokens is None else f", all {len(all_tokens)} tokens")
            + (_listed(", tokens", rows.new_token_ids[index]) if rows.new_token_ids else "")
        )
    if output.num_spec_tokens_to_schedule:
        lines.append(f"propose {output.num_spec_tokens_to_schedule} drafts")
    return "\n".join(lines) or "nothing"


def render_flight(state: SchedulerState) -> str:
    """Print the steps in flight with their drafts, and how many of those are padding that came in."""
    return "\n".join(map(_in_flight, state.in_flight)) or "nothing in flight"


def _in_flight(output: SchedulerOutput) -> str:
    rows = [f"{name}{_drafts(drafts)}" for name, drafts in output.scheduled_spec_token_ids.items()]
    text = f"step {output.step_id}: {' | '.join(rows) or 'no drafts'}"
    if output.num_invalid_spec_tokens is None:
        return text
    counts = [f"{name} {count}" for name, count in output.num_invalid_spec_tokens.items()]
    return f"{text}; padded {' | '.join(counts) or 'nothing'}"


def render_mask(state: SchedulerState, output: SchedulerOutput) -> str:
    """Print which rows of a step sample under a grammar, and how many drafts of each can be followed."""
    rows = grammar_rows(state, output)
    if rows is None:
        return "no mask"
    columns = zip(rows.request_ids, rows.num_acceptable_drafts, strict=True)
    waits = ", after the tokens in flight" if output.pending_structured_output_tokens else ""
    return " | ".join(f"{request_id} drafts {count}" for request_id, count in columns) + waits


def render_reasons(state: SchedulerState) -> str:
    """Print what each request would get in the next step, and why."""
    lines = [
        f"{reason.request_id} +{reason.num_tokens} [{reason.rule_id}] {reason.text}"
        for reason in explain(state)
    ]
    return "\n".join(lines) or "nobody"


def render_events(state: SchedulerState, labels: Labels) -> str:
    """Print what the last update told a router about the prefix index, in order."""
    lines = []
    for event in state.emitted.kv_events:
        if isinstance(event, BlockStored):
            parent = event.parent_block_hash
            behind = "" if parent is None else f" behind {labels[parent]}"
            lines.append(_listed("stored", [labels[name] for name in event.block_hashes]) + behind)
        elif isinstance(event, BlockRemoved):
            lines.append(_listed("removed", [labels[name] for name in event.block_hashes]))
        else:
            lines.append("cleared")
    return "\n".join(lines) or "none"
