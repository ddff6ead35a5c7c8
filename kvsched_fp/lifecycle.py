"""What comes from outside between the steps.

Requests arrive and are ended, the engine pauses and goes on, the prefix cache is reset.

Rules
-----
[M-LIFE-01] A request is added with an id that is not live and a prompt that fits `max_model_len`; it waits
    behind the others (FCFS) or in its place (priority). Its full blocks are hashed at once.
[M-LIFE-02] Requests that are ended from outside leave at once, in the order given, whatever they were
    doing; their results that are still in flight will be ignored, unless the id is live again [U-TOK-02].
[M-LIFE-03] Pausing changes nothing but what the next steps may schedule.
[K-RESET-01] The prefix cache is reset only if no block is held.
[K-RESET-02] A reset that includes running requests preempts them first, the last one first, so that they
    wait in the order in which they ran; their tokens in flight will be dropped [M-REL-03]. For the
    V1 output they count as not scheduled in the step before.

Upstream: `v1/core/sched/scheduler.py::Scheduler.add_request`, `finish_requests`, `set_pause_state`,
`reset_prefix_cache`.
"""

from collections.abc import Iterable

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InvalidEvent
from kvsched_fp.events import FinishRequests, PauseState, check_flag, check_pause_state, check_request
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache import coordinator
from kvsched_fp.kvcache.hashing import extend_block_hashes
from kvsched_fp.queues import queue_entry
from kvsched_fp.release import end_request, preempt_request
from kvsched_fp.request import Progress, Request, RequestStatus, move
from kvsched_fp.state import SchedulerState, live_request_ids
from kvsched_fp.transient import OpenState


def add_request(state: SchedulerState, request: Request) -> SchedulerState:
    """Let a new request in [M-LIFE-01].

    Raises `InvalidEvent` for an id that is live, or a prompt longer than `max_model_len`.
    """
    check_request("request", request)
    request_id = request.request_id
    if request_id in state.requests:
        raise InvalidEvent("request_id", request_id, "an id that is not live")
    require_prompt_fits(request, state.config)
    return attrs.evolve(
        state,
        requests=state.requests.set(request_id, request),
        progress=state.progress.set(request_id, _first_progress(state, request)),
        add_numbers=state.add_numbers.set(request_id, state.num_added),
        num_added=state.num_added + 1,
        waiting=state.waiting.add(queue_entry(request)),
    )


def require_prompt_fits(request: Request, config: SchedulerConfig) -> None:
    """Raise `InvalidEvent` for a prompt longer than `max_model_len` [M-LIFE-01]."""
    if request.num_prompt_tokens > config.max_model_len:
        raise InvalidEvent(
            "prompt_token_ids",
            f"{request.num_prompt_tokens} tokens",
            f"at most max_model_len = {config.max_model_len} tokens",
        )


def _first_progress(state: SchedulerState, request: Request) -> Progress:
    config = state.config
    if not config.enable_prefix_caching:
        return Progress()
    hashes = extend_block_hashes(
        config.block_hasher,
        (),
        request.prompt_token_ids,
        0,
        config.block_size,
        request.cache_salt,
    )
    return Progress(block_hashes=hashes)


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
    open_state.remove_from_queues(set(ids))
    for request_id in ids:
        move(open_state.progress[request_id].status, status)
        end_request(open_state, request_id)
    return open_state.close()


def set_pause_state(state: SchedulerState, pause_state: PauseState) -> SchedulerState:
    """Pause, or go on [M-LIFE-03]. Raises `InvalidEvent` for anything but a `PauseState`."""
    check_pause_state("pause_state", pause_state)
    return attrs.evolve(state, pause_state=pause_state)


def reset_prefix_cache(
    state: SchedulerState, *, reset_running_requests: bool = False
) -> tuple[SchedulerState, bool]:
    """Forget all cached blocks; tell whether it was done [K-RESET-01, K-RESET-02].

    Raises `InvalidEvent` if `reset_running_requests` is not a bool.
    """
    check_flag("reset_running_requests", reset_running_requests)
    if reset_running_requests:
        state = _preempt_all(state)
    kv, done = coordinator.reset_prefix_cache(state.kv, state.config)
    return attrs.evolve(state, kv=kv), done


def _preempt_all(state: SchedulerState) -> SchedulerState:
    open_state = OpenState(state)
    while open_state.running:
        preempt_request(open_state, open_state.running.pop(), drop_stale_output=True)
    return open_state.close(prev_step_request_ids=frozenset())
