"""Histories to test purity on: random walks in small worlds, the same in every process.

The first are those of the unit tests. The others have features, and events as in the conformance suite.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import attrs

from kvsched_fp import (
    MINIMAL,
    Event,
    FinishRequests,
    InvalidEvent,
    Request,
    SamplingParams,
    SchedulerConfig,
    SchedulerState,
    initial_state,
    step,
)
from kvsched_fp.config import RunnerType
from kvsched_fp.ids import RequestId
from kvsched_fp.machine import Outcome
from kvsched_fp.state import live_request_ids
from tests.conformance.histories import History
from tests.unit.walks import CONFIGS, KINDS, walk

FEATURED: list[tuple[SchedulerConfig, frozenset[str]]] = [
    (
        attrs.evolve(
            MINIMAL,
            async_scheduling=True,
            num_spec_tokens=2,
            num_lookahead_tokens=2,
            log_request_events=True,
            spec_decode_metrics="detailed",
        ),
        frozenset({"async", "drafts", "grammars"}),
    ),
    (
        attrs.evolve(
            MINIMAL, max_num_batched_tokens=6, num_spec_tokens=2, pipeline_parallel_size=2, max_loras=1
        ),
        frozenset({"drafts", "pipeline", "sessions", "adapters"}),
    ),
    (
        attrs.evolve(MINIMAL, runner_type="diffusion", async_scheduling=True, num_spec_tokens=2),
        frozenset({"async", "drafts", "diffusion"}),
    ),
    (
        attrs.evolve(MINIMAL, runner_type="pooling", max_num_seqs=3, data_parallel_size=2),
        frozenset({"pooling", "data parallel"}),
    ),
]
"""More small worlds, and what their engines do besides."""

NUM_HISTORIES = len(CONFIGS) + len(FEATURED)


class Moment(NamedTuple):
    """One event of a history."""

    before: SchedulerState
    event: Event
    after: SchedulerState
    outcome: Outcome


def history(number: int, *, length: int = 50) -> list[Moment]:
    """Give the how many-th history: one per configuration, of at most `length` events."""
    rng = Random(number)
    if number >= len(CONFIGS):
        return list(_walk_with_features(rng, *FEATURED[number - len(CONFIGS)], length))
    numbers = [(rng.choice(KINDS), rng.randrange(1000)) for _ in range(length)]
    return [Moment(*moment) for moment in walk(CONFIGS[number], numbers)]


def _walk_with_features(
    rng: Random, config: SchedulerConfig, features: frozenset[str], length: int
) -> Iterator[Moment]:
    state = initial_state(config)
    drawn = History(rng, state, features)
    for _, event in zip(range(length), drawn.events(), strict=False):
        if isinstance(event, FinishRequests) and event.request_ids is not None:
            # The suite takes the order of a set, which depends on the hash seed; one id has no order.
            event = FinishRequests(live_request_ids(state)[:1], event.status)  # noqa: PLW2901
        try:
            after, outcome = step(state, event)
        except InvalidEvent:
            return
        yield Moment(state, event, after, outcome)
        drawn.observe(after)
        state = after


def make_new_request(state: SchedulerState, **fields: bool) -> Request:
    """Make a request that the model can serve, and whose id is not used in any history."""
    return Request(
        request_id=RequestId("new"),
        prompt_token_ids=(7, 7, 7),
        sampling_params=SamplingParams(max_tokens=1),
        pooling=state.config.runner_type is RunnerType.POOLING,
        **fields,
    )
