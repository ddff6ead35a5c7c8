"""Random histories of a small world: numbers in, events out.

A walk is a list of (kind, number). What a number means depends on the state, so that nearly every one
gives an event that makes sense there; one that cannot gives none.
"""

from collections.abc import Iterator, Sequence

import attrs

from kvsched_fp import (
    MINIMAL,
    AddRequest,
    Event,
    FinishRequests,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SchedulerConfig,
    SchedulerState,
    SetPauseState,
    Update,
    initial_state,
    step,
)
from kvsched_fp.machine import Outcome
from tests.unit.worlds import make_request, make_result

CONFIGS = [
    MINIMAL,
    attrs.evolve(MINIMAL, policy="priority", max_num_seqs=3, scheduler_reserve_full_isl=False),
    attrs.evolve(MINIMAL, use_v2_model_runner=False, long_prefill_token_threshold=2, watermark=0.2),
    attrs.evolve(MINIMAL, enable_prefix_caching=False, num_blocks=4, allow_undersized_pool=True),
    attrs.evolve(MINIMAL, prefill_schedule_interval=3, enable_kv_cache_events=True, max_num_seqs=3),
    attrs.evolve(MINIMAL, include_finished_set=True, num_lookahead_tokens=2, needs_kv_cache_zeroing=True),
]
"""A few worlds in which everything happens within some twenty events."""

KINDS = ["add", "add", "schedule", "schedule", "schedule", "update", "update", "update", "finish", "other"]
Walk = Sequence[tuple[str, int]]


def walk(
    config: SchedulerConfig, numbers: Walk
) -> Iterator[tuple[SchedulerState, Event, SchedulerState, Outcome]]:
    """Go through the states of a walk: before, the event, after, and what came of it."""
    state = initial_state(config)
    for kind, number in numbers:
        event = make_event(state, kind, number)
        if event is not None:
            after, outcome = step(state, event)
            yield state, event, after, outcome
            state = after


def make_event(state: SchedulerState, kind: str, number: int) -> Event | None:
    """Give the event that a number stands for, or None if it makes no sense now."""
    match kind:
        case "schedule":
            return Schedule(throttle_prefills=number % 8 == 0)
        case "update":
            return _make_update(state, number)
        case "add":
            return _make_add(state, number)
        case "finish":
            live = sorted(state.requests)
            return FinishRequests(live[number % len(live)]) if live else None
        case _ if number % 8 == 0:
            return ResetPrefixCache(reset_running_requests=number % 16 == 0)
        case _:
            return SetPauseState([PauseState.UNPAUSED, *PauseState][number % 4])


def _make_update(state: SchedulerState, number: int) -> Update | None:
    """Answer the oldest step: mostly a token for each finished prompt, sometimes none or two."""
    if not state.in_flight:
        return None
    result = make_result(state, state.in_flight[0])
    count = {0: 0, 1: 2}.get(number % 8, 1)
    tokens = {key: tuple(number % 3 + i for i in range(count)) for key in result.sampled_token_ids}
    return Update(attrs.evolve(result, sampled_token_ids=tokens))


def _make_add(state: SchedulerState, number: int) -> AddRequest | None:
    """Add one of six requests of 1 to 9 tokens, half of which begin alike."""
    request_id = f"r{number % 6}"
    in_flight = {key for output in state.in_flight for key in output.num_scheduled_tokens}
    if request_id in state.requests or request_id in in_flight:
        return None
    prompt = 1 + number % 9
    tokens = (7,) * (prompt - 1) if number % 2 else ()
    return AddRequest(
        make_request(
            request_id,
            prompt,
            tokens=tokens,
            max_tokens=1 + number % 4,
            priority=number % 3,
            arrival_time=float(number % 5),
            client_index=number % 2,
        )
    )
