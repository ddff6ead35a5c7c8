"""Where the scheduler stands with one live request (`Progress`), and what it keeps about it.

Rules
-----
[M-REQ-03] `num_tokens` is what is known: prompt and output. `num_computed_tokens` counts
    optimistically: it includes the tokens of steps that are still in flight.
"""

import enum
from collections.abc import Callable
from typing import Self

import attrs
from pyrsistent import PVector, pvector

from kvsched_fp.grammar import Grammar, GrammarError
from kvsched_fp.ids import BlockHash
from kvsched_fp.records import quick_copier, quick_evolver
from kvsched_fp.request import Request, RequestStatus, SamplingParams


@attrs.frozen
class PrefillStats:
    """How the prompt was filled at the first admission, in tokens.

    Upstream: `v1/metrics/stats.py::PrefillStats`.
    """

    num_prompt_tokens: int = 0
    """Tokens of the prompt; 0 until the first look-up."""
    num_computed_tokens: int = 0
    """Tokens that had to be computed."""
    num_local_cached_tokens: int = 0
    """Tokens that the prefix cache already held."""
    num_cache_creation_tokens: int = 0
    """Computed tokens that went into the prefix cache; set when the stats are handed out."""


@attrs.frozen
class RequestSpecDecodeMetrics:
    """What became of the drafts of one request.

    Upstream: `v1/metrics/stats.py::RequestSpecDecodeMetrics`.
    """

    num_spec_tokens: int
    """The most drafts per step."""
    histogram: tuple[int, ...]
    """How many verifications accepted 0, 1, ... drafts."""
    num_draft_tokens: int = 0
    """All drafts, those that the grammar does not allow not counted."""
    per_step_accepted: tuple[int, ...] = ()
    """Accepted drafts, verification by verification (`DETAILED` only)."""
    per_step_drafted: tuple[int, ...] = ()
    """Drafts, verification by verification (`DETAILED` only)."""

    def observe(self, num_draft_tokens: int, num_accepted: int, *, detailed: bool) -> Self:
        """Count one verification."""
        histogram = list(self.histogram)
        histogram[num_accepted] += 1
        made = attrs.evolve(
            self, histogram=tuple(histogram), num_draft_tokens=self.num_draft_tokens + num_draft_tokens
        )
        if not detailed:
            return made
        return attrs.evolve(
            made,
            per_step_accepted=(*self.per_step_accepted, num_accepted),
            per_step_drafted=(*self.per_step_drafted, num_draft_tokens),
        )


class RequestEventType(enum.Enum):
    """What may happen to a request. Upstream: `v1/engine/__init__.py::EngineCoreEventType`."""

    QUEUED = "queued"
    SCHEDULED = "scheduled"
    PREEMPTED = "preempted"


@attrs.frozen
class RequestEvent:
    """Something that happened to a request."""

    type: RequestEventType
    """What."""
    time: float
    """When, on the clock of the event that made it happen."""


@attrs.frozen
class Chunk:
    """The next input of a session. Upstream: `v1/request.py::StreamingUpdate`."""

    prompt_token_ids: tuple[int, ...]
    """Tokens that follow what is known."""
    sampling_params: SamplingParams
    """When the output to it ends."""
    arrival_time: float
    """Seconds on the caller's clock."""


@attrs.frozen(weakref_slot=False)
class Progress:
    """Where the scheduler stands with one live request: all counters.

    The hot paths make one per phase, by the functions below.
    """

    status: RequestStatus = RequestStatus.WAITING
    """A live status."""
    num_computed_tokens: int = 0
    """Tokens with KV computed or in flight [M-REQ-03]."""
    num_in_flight_tokens: int = 0
    """Tokens of steps whose result has not come back."""
    is_prefill_chunk: bool = False
    """Whether the last step that it was in left prompt to compute."""
    output_token_ids: PVector[int] = pvector()
    """The tokens sampled so far."""
    block_hashes: tuple[BlockHash, ...] = ()
    """One hash per full block of known tokens."""
    num_preemptions: int = 0
    """How many times it was preempted."""
    num_stale_output_tokens: int = 0
    """The share of `num_in_flight_tokens` that was scheduled before the last preemption."""
    drop_stale_output: bool = False
    """Whether tokens that come back for the stale share are dropped, not delivered."""
    prefill_stats: PrefillStats | None = PrefillStats()
    """None once the first output has carried them away."""
    num_output_placeholders: int = 0
    """Output tokens that the steps in flight will bring, drafts included (asynchronous scheduling)."""
    spec_token_ids: tuple[int, ...] = ()
    """Drafts to verify in its next step; -1 for one that only the worker knows."""
    next_decode_eligible_step: int = 0
    """The first step that may decode it again (asynchronous scheduling, V2)."""
    spec_decode_metrics: RequestSpecDecodeMetrics | None = None
    """What became of its drafts, if asked for in the config."""
    grammar: Grammar | GrammarError | None = None
    """The grammar after all of its output; why there is none; or None while there is none yet."""
    chunks: tuple[Chunk | None, ...] = ()
    """Input of its session that has not been begun, in order; None is the end."""
    events: tuple[RequestEvent, ...] = ()
    """What happened to it since its last output, if `log_request_events`."""
    stop_reason: int | str | None = None
    """What stopped the last output of a session; a stop token, or "repetition_detected"."""


evolve_progress = quick_evolver(Progress)
"""Copy a `Progress` with the fields changed that are given by name."""

after_schedule: Callable[[Progress, int, int, bool, tuple[int, ...]], Progress] = quick_copier(
    Progress, "num_computed_tokens", "num_in_flight_tokens", "is_prefill_chunk", "spec_token_ids"
)
"""Count a row of the batch; the fields not named stay."""

with_placeholders: Callable[[Progress, int, tuple[int, ...], int], Progress] = quick_copier(
    Progress, "num_output_placeholders", "spec_token_ids", "next_decode_eligible_step"
)
"""Expect tokens of a step in flight; the fields not named stay."""

without_output: Callable[[Progress, int, int, int, int, RequestSpecDecodeMetrics | None], Progress] = (
    quick_copier(
        Progress,
        "num_computed_tokens",
        "num_in_flight_tokens",
        "num_stale_output_tokens",
        "num_output_placeholders",
        "spec_decode_metrics",
    )
)
"""Take in a result that brought no token; the fields not named stay."""

with_output: Callable[
    [
        Progress,
        int,
        int,
        int,
        int,
        PVector[int],
        tuple[BlockHash, ...],
        RequestSpecDecodeMetrics | None,
        Grammar | GrammarError | None,
    ],
    Progress,
] = quick_copier(
    Progress,
    "num_computed_tokens",
    "num_in_flight_tokens",
    "num_stale_output_tokens",
    "num_output_placeholders",
    "output_token_ids",
    "block_hashes",
    "spec_decode_metrics",
    "grammar",
    prefill_stats=None,
    events=(),
)
"""Take in a result that brought tokens; the prefill's statistics and the events go out with it."""


def num_known_tokens(request: Request, progress: Progress) -> int:
    """Count the known tokens: prompt and output [M-REQ-03]."""
    return len(request.prompt_token_ids) + len(progress.output_token_ids)


def known_tokens(request: Request, progress: Progress, start: int, end: int) -> tuple[int, ...]:
    """Give the known tokens at positions `start` to `end` (exclusive)."""
    num_prompt_tokens = len(request.prompt_token_ids)
    if end <= num_prompt_tokens:
        return request.prompt_token_ids[start:end]
    # Index by index: a slice of a persistent vector copies all of it first.
    output_token_ids = progress.output_token_ids
    positions = range(max(start - num_prompt_tokens, 0), end - num_prompt_tokens)
    return (*request.prompt_token_ids[start:], *[output_token_ids[i] for i in positions])
