"""What comes from outside between the steps.

Requests arrive and are ended, the engine pauses and goes on, the prefix cache is reset.

Rules
-----
[M-LIFE-01] A request is added with an id that is not live and a prompt that fits `max_model_len`; it waits
    behind the others (FCFS) or in its place (priority). Its full blocks are hashed at once.
[M-LIFE-05] An id may be used again at once, and is then charged with what is late (deviation D-05). Without
    that quirk, a request is refused while a step of an earlier one of its id is in flight, or a message
    about that is pending.
[M-LIFE-04] A request with the id of a live session brings its next input, or, if it is not resumable
    itself, the end of the session.
[M-GRAM-01] A request that needs a grammar waits until it is told the grammar, or that there is none;
    which of the two, it is told once.
[M-LIFE-02] Requests that are ended from outside leave at once, in the order given, whatever they were
    doing; their results that are still in flight will be ignored, unless the id is live again [U-TOK-02].
[M-LIFE-03] Pausing changes nothing but what the next steps may schedule.
[K-RESET-01] The prefix cache is reset only if no block is held.
[K-RESET-02] A reset that includes running requests preempts them first, the last one first, so that they
    wait in the order in which they ran; their tokens in flight will be dropped [M-REL-03]. For the
    V1 output they count as not scheduled in the step before. If sessions hold blocks while they wait, it is
    not done all the same, and what ran stays preempted (deviation D-12).

Upstream: `v1/core/sched/scheduler.py::Scheduler.add_request`, `finish_requests`, `set_pause_state`,
`reset_prefix_cache`.
"""

from collections.abc import Iterable

from kvsched_fp.config import Quirk, RunnerType, SchedulerConfig, SpecDecodeMetricsLevel
from kvsched_fp.errors import InvalidEvent
from kvsched_fp.events import (
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    PauseState,
    check_flag,
    check_pause_state,
    check_request,
    check_time,
)
from kvsched_fp.grammar import Grammar, GrammarError
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache import coordinator
from kvsched_fp.kvcache.naming import hash_new_blocks
from kvsched_fp.progress import Chunk, Progress, RequestEventType, RequestSpecDecodeMetrics, evolve_progress
from kvsched_fp.release import end_request, preempt_request
from kvsched_fp.request import Request, RequestStatus, move
from kvsched_fp.sessions import begin_chunk, enqueue, require_room
from kvsched_fp.state import SchedulerState, evolve_state, live_request_ids
from kvsched_fp.transient import OpenState


def add_request(state: SchedulerState, request: Request, *, time: float = 0.0) -> SchedulerState:
    """Let a new request in [M-LIFE-01], or the next input of a session [M-LIFE-04].

    `time` is put into the events of the request. Raises `InvalidEvent` for an id that is live and no
    session's, or of which something is pending [M-LIFE-05]; a session that got its end marker or has
    computed more than is kept [M-SESS-02], or too little room [M-SESS-09]; a prompt longer than
    `max_model_len`, a request that the configured model cannot serve, or a `time` that is not finite.
    """
    check_request("request", request)
    check_time("time", time)
    require_servable(request, state.config)
    request_id = request.request_id
    open_state = OpenState(state, time)
    live = state.requests.get(request_id)
    if live is None:
        if Quirk.CHARGES_REUSED_ID not in state.config.quirks:
            _require_answered(state, request_id)
        _let_in(open_state, request, state.num_added)
        return open_state.close(num_added=state.num_added + 1)
    if not live.resumable:
        raise InvalidEvent("request_id", request_id, "an id that is not live")
    _take_chunk(open_state, request)
    return open_state.close()


def _require_answered(state: SchedulerState, request_id: RequestId) -> None:
    """Refuse an id of which something is pending [M-LIFE-05]."""
    is_in_flight = any(request_id in output.num_scheduled_tokens for output in state.in_flight)
    if is_in_flight or request_id in state.grammar_errors:
        raise InvalidEvent("request_id", request_id, "an id of which no step is in flight")


def _let_in(open_state: OpenState, request: Request, num_added: int) -> None:
    """Let a request wait for the first time."""
    config = open_state.config
    request_id = request.request_id
    metrics = None
    if config.spec_decode_metrics is not SpecDecodeMetricsLevel.NONE:
        metrics = RequestSpecDecodeMetrics(config.num_spec_tokens, (0,) * (config.num_spec_tokens + 1))
    progress = Progress(
        status=RequestStatus.WAITING_FOR_GRAMMAR if request.needs_grammar else RequestStatus.WAITING,
        block_hashes=hash_new_blocks(config, request, (), request.prompt_token_ids),
        spec_decode_metrics=metrics,
    )
    events = open_state.with_event(progress, RequestEventType.QUEUED)
    open_state.requests[request_id] = request
    open_state.progress[request_id] = evolve_progress(progress, events=events)
    open_state.add_numbers[request_id] = num_added
    enqueue(open_state, request_id)


def _take_chunk(open_state: OpenState, request: Request) -> None:
    """Take the next input of a session, or its end [M-SESS-03, M-SESS-09]."""
    request_id = request.request_id
    progress = open_state.progress[request_id]
    chunk = None
    if request.resumable:
        chunk = Chunk(request.prompt_token_ids, request.sampling_params, request.arrival_time)
    if progress.chunks[-1:] == (None,):
        raise InvalidEvent("request_id", request_id, "nothing more: this session got its end")
    config = open_state.config
    if chunk is not None and Quirk.OUTGROWS_MODEL_LEN not in config.quirks:
        require_room(config, open_state.requests[request_id], progress, chunk)
    if progress.status is not RequestStatus.WAITING_FOR_INPUT:
        open_state.progress[request_id] = evolve_progress(progress, chunks=(*progress.chunks, chunk))
    elif chunk is not None:
        begin_chunk(open_state, request_id, chunk)
    else:
        _end(open_state, (request_id,), RequestStatus.FINISHED_ABORTED)


def require_servable(request: Request, config: SchedulerConfig) -> None:
    """Refuse a request that the configured model cannot serve [M-LIFE-01]."""
    if request.num_prompt_tokens > config.max_model_len:
        raise InvalidEvent(
            "prompt_token_ids",
            f"{request.num_prompt_tokens} tokens",
            f"at most max_model_len = {config.max_model_len} tokens",
        )
    pools = config.runner_type is RunnerType.POOLING
    if request.pooling is not pools:
        raise InvalidEvent("pooling", request.pooling, f"{pools}, for a {config.runner_type.value} model")
    if request.needs_grammar and pools:
        raise InvalidEvent("needs_grammar", True, "False for a pooling model: it samples nothing")
    if request.resumable and config.runner_type in {RunnerType.POOLING, RunnerType.ENCODER_ONLY}:
        allowed = f"False for a {config.runner_type.value} model: nothing is sampled that could go on"
        raise InvalidEvent("resumable", True, allowed)  # deviation D-15
    if request.lora is not None and config.max_loras is None:
        raise InvalidEvent("lora", request.lora, "None: max_loras is not configured")


def finish_requests(
    state: SchedulerState,
    request_ids: Iterable[RequestId] | None,
    status: RequestStatus = RequestStatus.FINISHED_ABORTED,
) -> SchedulerState:
    """End requests from outside [M-LIFE-02]; None ends all, in the order in which they were added.

    Raises `InvalidEvent` for an id that is not live, or a status that is not final.
    """
    event = FinishRequests(request_ids, status)
    ids = tuple(live_request_ids(state)) if event.request_ids is None else event.request_ids
    for request_id in ids:
        if request_id not in state.requests:
            raise InvalidEvent("request_ids", request_id, "ids of live requests")
    open_state = OpenState(state)
    _end(open_state, ids, status)
    return open_state.close()


def _end(open_state: OpenState, request_ids: tuple[RequestId, ...], status: RequestStatus) -> None:
    open_state.remove_from_queues(set(request_ids))
    for request_id in request_ids:
        before = open_state.progress[request_id].status
        open_state.num_waiting_for_input -= before is RequestStatus.WAITING_FOR_INPUT
        move(before, status)
        end_request(open_state, request_id)


def set_grammar(state: SchedulerState, request_id: RequestId, grammar: Grammar) -> SchedulerState:
    """Hand a request the grammar that it waits for [M-GRAM-01].

    Raises `InvalidEvent` for a request that does not wait for one, or what is no grammar.
    """
    event = GrammarReady(request_id, grammar)
    return _answer_grammar(state, event.request_id, event.grammar)


def fail_grammar(state: SchedulerState, request_id: RequestId, message: str) -> SchedulerState:
    """Tell a request that it cannot have the grammar that it waits for [M-GRAM-01].

    Raises `InvalidEvent` for a request that does not wait for one, or a message that is no text.
    """
    event = GrammarFailed(request_id, message)
    return _answer_grammar(state, event.request_id, GrammarError(event.message))


def _answer_grammar(
    state: SchedulerState, request_id: RequestId, answer: Grammar | GrammarError
) -> SchedulerState:
    progress = state.progress.get(request_id)
    waits = progress is not None and progress.status is RequestStatus.WAITING_FOR_GRAMMAR
    if progress is None or not waits or progress.grammar is not None:
        raise InvalidEvent("request_id", request_id, "a request that waits for its grammar")
    answered = evolve_progress(progress, grammar=answer)
    return evolve_state(state, progress=state.progress.set(request_id, answered))


def set_pause_state(state: SchedulerState, pause_state: PauseState) -> SchedulerState:
    """Pause, or go on [M-LIFE-03]. Raises `InvalidEvent` for anything but a `PauseState`."""
    check_pause_state("pause_state", pause_state)
    return evolve_state(state, pause_state=pause_state)


def reset_prefix_cache(
    state: SchedulerState, *, reset_running_requests: bool = False, time: float = 0.0
) -> tuple[SchedulerState, bool]:
    """Forget all cached blocks; tell whether it was done [K-RESET-01, K-RESET-02].

    `time` is put into the events of requests. Raises `InvalidEvent` if `reset_running_requests` is not a
    bool, or `time` not finite.
    """
    check_flag("reset_running_requests", reset_running_requests)
    check_time("time", time)
    if reset_running_requests:
        state = _preempt_all(state, time)
    kv, done = coordinator.reset_prefix_cache(state.kv, state.config)
    return evolve_state(state, kv=kv), done


def _preempt_all(state: SchedulerState, time: float) -> SchedulerState:
    open_state = OpenState(state, time)
    while open_state.running:
        preempt_request(open_state, open_state.running.pop(), drop_stale_output=True)
    return open_state.close(prev_step_request_ids=frozenset())
