"""Who may enter the batch from the waiting queues."""

from collections import Counter

from kvsched_fp.config import RunnerType
from kvsched_fp.events import PauseState, Schedule
from kvsched_fp.grammar import GrammarError
from kvsched_fp.ids import BlockKey, RequestId
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.request import RequestStatus


def start_of(step: Step, request_id: RequestId) -> int:
    """Give where the first row of an admitted request begins."""
    return (
        step.after.progress[request_id].num_computed_tokens - step.output.num_scheduled_tokens[request_id]
    )


@step_invariant(
    "INV-ADMIT-01",
    Cost.CHEAP,
    "Who is admitted waited before, and for nothing from outside that is not there; it stands behind the "
    "ones that ran.",
    "The running requests are served in order of their admission.",
    Schedule,
)
def _admitted_waited(step: Step) -> str | None:
    for request_id in step.admitted:
        earlier = step.before.progress[request_id]
        has_grammar = earlier.grammar is not None and not isinstance(earlier.grammar, GrammarError)
        waited = earlier.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        if not waited and not (earlier.status is RequestStatus.WAITING_FOR_GRAMMAR and has_grammar):
            return f"request {request_id} was {earlier.status.name} and is admitted"
    num_admitted = len(step.admitted)
    if step.after.running[len(step.after.running) - num_admitted :] == step.admitted:
        return None
    return f"{step.admitted} were admitted, running are {step.after.running}"


@step_invariant(
    "INV-ADMIT-02",
    Cost.CHEAP,
    "While new requests are paused, only requests that hold blocks are admitted.",
    "A pause for new requests lets the others finish.",
    Schedule,
)
def _pause_new_is_kept(step: Step) -> str | None:
    if step.before.pause_state is PauseState.UNPAUSED or not step.admitted:
        return None
    holders = set(step.before.kv_holding_waiting)
    strangers = [request_id for request_id in step.admitted if request_id not in holders]
    return f"{strangers} were admitted while paused" if strangers else None


@step_invariant(
    "INV-ADMIT-03",
    Cost.CHEAP,
    "A step that preempts admits nobody.",
    "The blocks that the victims gave back would go to others at once.",
    Schedule,
)
def _nobody_after_a_preemption(step: Step) -> str | None:
    if not step.victims or not step.admitted:
        return None
    return f"{step.victims} were preempted and {step.admitted} admitted in one step"


@step_invariant(
    "INV-ADMIT-04",
    Cost.CHEAP,
    "Nobody overtakes: whoever waited before the last one that was admitted is admitted too, or deferred.",
    "Otherwise a large request at the front waits for ever.",
    Schedule,
    reports=("vLLM PR #57841",),
)
def _nobody_overtakes(step: Step) -> str | None:
    missing = set(step.admitted)
    if not missing:
        return None
    for queue in (step.before.kv_holding_waiting, step.before.waiting):
        for request_id in queue:
            if request_id in missing:
                missing.remove(request_id)
                if not missing:
                    return None
            elif request_id not in step.after.deferred:
                return f"request {request_id} was overtaken by {sorted(missing)}"
    return f"{sorted(missing)} were admitted from no queue"


@step_invariant(
    "INV-ADMIT-05",
    Cost.CHEAP,
    "Nobody is admitted while late output of it is still to be delivered.",
    "It would sample a position again that the late output delivers.",
    Schedule,
    reports=("vLLM PR #48245",),
)
def _late_output_first(step: Step) -> str | None:
    for request_id in step.admitted:
        progress = step.before.progress[request_id]
        if progress.num_stale_output_tokens and not progress.drop_stale_output:
            return (
                f"request {request_id} is admitted with {progress.num_stale_output_tokens} stale tokens "
                "still to be delivered"
            )
    return None


@step_invariant(
    "INV-ADMIT-06",
    Cost.CHEAP,
    "A request is admitted behind whole cached blocks, or behind nothing.",
    "Part of a block cannot be shared.",
    Schedule,
)
def _hits_are_whole_blocks(step: Step) -> str | None:
    config = step.before.config
    for request_id in step.admitted:
        if step.before.progress[request_id].num_computed_tokens:
            continue
        num_hit_tokens = start_of(step, request_id)
        params = step.after.requests[request_id].sampling_params
        block_size = config.block_size
        reads = config.enable_prefix_caching and not params.skip_reading_prefix_cache
        if num_hit_tokens % block_size or (num_hit_tokens and not reads) or num_hit_tokens < 0:
            return f"request {request_id} starts behind {num_hit_tokens} tokens, in blocks of {block_size}"
    return None


@step_invariant(
    "INV-ADMIT-07",
    Cost.CHEAP,
    "Without chunked prefill, a request is admitted with all its known tokens, or as many as the "
    "long-prefill threshold allows; but for an encoder instance.",
    "A runner without chunked prefill cannot go on in the middle of a prompt.",
    Schedule,
)
def _whole_prompts_without_chunks(step: Step) -> str | None:
    config = step.before.config
    takes_pieces = config.enable_chunked_prefill or config.runner_type is RunnerType.ENCODER_ONLY
    if takes_pieces or config.long_prefill_token_threshold:
        return None
    for request_id in step.admitted:
        if step.after.progress[request_id].is_prefill_chunk:
            num_tokens = step.output.num_scheduled_tokens[request_id]
            return f"request {request_id} was admitted with a chunk of {num_tokens} tokens"
    return None


@step_invariant(
    "INV-ADMIT-08",
    Cost.CHEAP,
    "Each one admitted leaves the watermark free, if others ran; with the full reserve it also leaves room "
    "for the rest of its known tokens, though who is admitted next may take that.",
    "Otherwise it is preempted as soon as it grows.",
    Schedule,
    reports=("vLLM #25538", "vLLM PR #28018"),
)
def _room_is_left(step: Step) -> str | None:
    config, after = step.before.config, step.after
    num_others = len(after.running)
    num_free, taken = after.kv.pool.num_free_blocks, Counter[int]()
    for request_id in reversed(step.admitted):
        num_others -= 1
        room = config.watermark_blocks if num_others else 0
        tables = after.kv.tables[request_id]
        if config.scheduler_reserve_full_isl:
            request, progress = after.requests[request_id], after.progress[request_id]
            num_known = len(request.prompt_token_ids) + len(progress.output_token_ids)
            num_blocks = -(-min(num_known, config.max_model_len) // config.block_size)
            room += sum(max(num_blocks - len(table.block_ids), 0) for table in tables)
        if num_free < room:
            return (
                f"{num_free} blocks were free behind the admission of {request_id}, it had to leave {room}"
            )
        num_free += _num_taken(step, request_id, taken)
    return None


def _num_taken(step: Step, request_id: RequestId, taken: Counter[int]) -> int:
    """Count the blocks that were free until a request was admitted, and enter its blocks into `taken`.

    Those are held by it, and by nobody else but those admitted after it, who are in `taken`.
    """
    ref_counts, earlier = step.after.kv.pool.ref_counts, step.before.kv.tables.get(request_id)
    num_taken = 0
    for group_index, table in enumerate(step.after.kv.tables[request_id]):
        num_held = earlier[group_index].block_ids.length if earlier else 0
        for block_id in table.block_ids.between(num_held, table.block_ids.length):
            taken[block_id] += 1
            num_taken += taken[block_id] == ref_counts[block_id]
    return num_taken


@step_invariant(
    "INV-ADMIT-09",
    Cost.CHEAP,
    "Whoever is admitted takes a seat that no running request and no session that waits for input has.",
    "A session that waits keeps its row of the model runner.",
    Schedule,
)
def _seats_are_kept(step: Step) -> str | None:
    num_active = len(step.after.running) + step.before.num_waiting_for_input
    if not step.admitted or num_active <= step.before.config.max_num_active:
        return None
    return (
        f"with {step.admitted}, {len(step.after.running)} requests run and "
        f"{step.before.num_waiting_for_input} wait for input, {step.before.config.max_num_active} are "
        "allowed"
    )


@step_invariant(
    "INV-ADMIT-10",
    Cost.CHEAP,
    "With drop_eagle_block, a request that is admitted behind cached blocks had one more, which it gave "
    "up.",
    "What the drafter needs was computed in that block, and is not kept.",
    Schedule,
)
def _last_hit_is_given_up(step: Step) -> str | None:
    config = step.before.config
    if not config.drop_eagle_block:
        return None
    # A block may have lost its key in the step, or got it by a row that was placed before.
    cached, now = step.before.kv.pool.cached, step.after.kv.pool.cached
    for request_id in step.admitted:
        progress = step.after.progress[request_id]
        num_hit_tokens = start_of(step, request_id)
        if step.before.progress[request_id].num_computed_tokens or num_hit_tokens == 0:
            continue
        num_hits = num_hit_tokens // config.block_size
        given_up = [BlockKey(name + bytes(4)) for name in progress.block_hashes[num_hits : num_hits + 1]]
        if not any(key in cached or key in now for key in given_up):
            return f"request {request_id} starts behind {num_hits} cached blocks, and no other is cached"
    return None


@step_invariant(
    "INV-ADMIT-11",
    Cost.CHEAP,
    "Who is overtaken and cannot have its grammar, ends with the next update.",
    "It was looked at, and would wait for ever.",
    Schedule,
)
def _hopeless_are_noticed(step: Step) -> str | None:
    missing = set(step.admitted)
    if not missing or not step.before.deferred:
        return None
    for queue in (step.before.kv_holding_waiting, step.before.waiting):
        for request_id in queue:
            missing.discard(request_id)
            if not missing:
                return None
            grammar = step.before.progress[request_id].grammar
            if isinstance(grammar, GrammarError) and request_id not in step.after.grammar_errors:
                return f"request {request_id} cannot have its grammar, and nobody is told"
    return None


INVARIANTS: tuple[StepInvariant, ...] = (
    _admitted_waited,
    _pause_new_is_kept,
    _nobody_after_a_preemption,
    _nobody_overtakes,
    _late_output_first,
    _hits_are_whole_blocks,
    _whole_prompts_without_chunks,
    _room_is_left,
    _seats_are_kept,
    _last_hit_is_given_up,
    _hopeless_are_noticed,
)
"""In the order in which they are checked."""
