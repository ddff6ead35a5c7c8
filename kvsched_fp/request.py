"""What a client asked for (`Request`) and where the scheduler stands with it (`Progress`).

Rules
-----
[M-REQ-01] A request never changes after it was added; everything that moves is in `Progress`.
[M-REQ-02] A status changes only along `LEGAL_MOVES`; a move that is not in the table is our bug.
[M-REQ-03] `num_tokens` is what is known: prompt and output. `num_computed_tokens` counts
    optimistically: it includes the tokens of steps that are still in flight.
"""

import enum
import math
from collections.abc import Iterable, Sequence
from typing import Self

import attrs
from pyrsistent import PVector, pvector

from kvsched_fp.errors import InvalidEvent, OracleBug
from kvsched_fp.grammar import Grammar, GrammarError
from kvsched_fp.ids import BlockHash, RequestId
from kvsched_fp.records import quick_constructor

MAX_TOKEN_ID = 2**63 - 1
"""Token ids are hashed as signed 64-bit integers."""


class RequestStatus(enum.Enum):
    """Where a request is in its life. Upstream: `v1/request.py::RequestStatus`."""

    WAITING = "waiting"
    WAITING_FOR_GRAMMAR = "waiting_for_grammar"
    WAITING_FOR_INPUT = "waiting_for_input"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED_STOPPED = "finished_stopped"
    FINISHED_LENGTH_CAPPED = "finished_length_capped"
    FINISHED_ABORTED = "finished_aborted"
    FINISHED_IGNORED = "finished_ignored"
    FINISHED_ERROR = "finished_error"
    FINISHED_REPETITION = "finished_repetition"


class FinishReason(enum.Enum):
    """What a client is told about an end. Upstream: `v1/engine/__init__.py::FinishReason`."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    REPETITION = "repetition"


FINISH_REASONS: dict[RequestStatus, FinishReason] = {
    RequestStatus.FINISHED_STOPPED: FinishReason.STOP,
    RequestStatus.FINISHED_LENGTH_CAPPED: FinishReason.LENGTH,
    RequestStatus.FINISHED_ABORTED: FinishReason.ABORT,
    RequestStatus.FINISHED_IGNORED: FinishReason.LENGTH,
    RequestStatus.FINISHED_ERROR: FinishReason.ERROR,
    RequestStatus.FINISHED_REPETITION: FinishReason.REPETITION,
}
"""The final statuses, and the reason that each gives."""

_AFTER_A_STOP = (RequestStatus.WAITING, RequestStatus.WAITING_FOR_INPUT)

LEGAL_MOVES: dict[RequestStatus, frozenset[RequestStatus]] = {
    RequestStatus.WAITING: frozenset({RequestStatus.RUNNING, *FINISH_REASONS}),
    RequestStatus.WAITING_FOR_GRAMMAR: frozenset({RequestStatus.WAITING, *FINISH_REASONS}),
    RequestStatus.WAITING_FOR_INPUT: frozenset({RequestStatus.WAITING, *FINISH_REASONS}),
    # A session that stopped goes on with its next input, or waits for it.
    RequestStatus.RUNNING: frozenset({RequestStatus.PREEMPTED, *_AFTER_A_STOP, *FINISH_REASONS}),
    RequestStatus.PREEMPTED: frozenset({RequestStatus.RUNNING, *_AFTER_A_STOP, *FINISH_REASONS}),
    **{status: frozenset() for status in FINISH_REASONS},
}
"""The legal moves. A final status has none: the request has left the state."""


def is_finished(status: RequestStatus) -> bool:
    """Tell whether `status` is final."""
    return status in FINISH_REASONS


def move(status: RequestStatus, to: RequestStatus) -> RequestStatus:
    """Return `to` if the table allows the move from `status`, else raise `OracleBug` [M-REQ-02]."""
    if to not in LEGAL_MOVES[status]:
        raise OracleBug(f"illegal move of a request: {status.name} -> {to.name}")
    return to


def _freeze_token_ids(token_ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(_iterate("prompt_token_ids", token_ids))


def _freeze_stop_token_ids(token_ids: Iterable[int]) -> frozenset[int]:
    return frozenset(_iterate("stop_token_ids", token_ids))


def _iterate(field: str, value: Iterable[int]) -> Iterable[int]:
    try:
        frozen = tuple(value)
        hash(frozen)
    except TypeError:
        raise InvalidEvent(field, value, "token ids, one after another") from None
    return frozen


@attrs.frozen(kw_only=True)
class RepetitionDetection:
    """Stop when the tail of the output repeats itself.

    Upstream: `sampling_params.py::RepetitionDetectionParams`.
    """

    max_pattern_size: int
    """The longest pattern to look for, in tokens; 0 turns the check off."""
    min_pattern_size: int = 0
    """The shortest pattern to look for, in tokens; 0 means 1."""
    min_count: int = 2
    """How many times the pattern must stand at the tail, at least 2."""

    def __attrs_post_init__(self) -> None:
        for name in ("max_pattern_size", "min_pattern_size", "min_count"):
            _require(_is_int(getattr(self, name)), name, getattr(self, name), "an integer")
        sizes = f"0 <= min_pattern_size <= max_pattern_size = {self.max_pattern_size}"
        _require(self.max_pattern_size >= 0, "max_pattern_size", self.max_pattern_size, ">= 0")
        _require(
            0 <= self.min_pattern_size <= self.max_pattern_size,
            "min_pattern_size",
            self.min_pattern_size,
            sizes,
        )
        _require(self.max_pattern_size == 0 or self.min_count >= 2, "min_count", self.min_count, ">= 2")


@attrs.frozen(kw_only=True)
class SamplingParams:
    """When the output of a request ends. Upstream: `sampling_params.py::SamplingParams`."""

    max_tokens: int
    """The most output tokens, at least 1."""
    min_tokens: int = 0
    """Repetition detection is off until so many output tokens are there."""
    eos_token_id: int | None = None
    """The end-of-sequence token, or None to ignore it."""
    stop_token_ids: frozenset[int] = attrs.field(default=frozenset(), converter=_freeze_stop_token_ids)
    """Further tokens that end the output; the one that did is the stop reason."""
    repetition_detection: RepetitionDetection | None = None
    """When a repeating tail ends the output, or None for never."""
    skip_reading_prefix_cache: bool = False
    """Compute the whole prompt even where its blocks are cached (prompt log-probabilities)."""

    def __attrs_post_init__(self) -> None:
        _require(
            _is_int(self.max_tokens) and self.max_tokens >= 1,
            "max_tokens",
            self.max_tokens,
            "an integer >= 1",
        )
        _require(
            _is_int(self.min_tokens) and self.min_tokens >= 0,
            "min_tokens",
            self.min_tokens,
            "an integer >= 0",
        )
        limit = f"at most max_tokens = {self.max_tokens}"
        _require(self.min_tokens <= self.max_tokens, "min_tokens", self.min_tokens, limit)
        detection, skip = self.repetition_detection, self.skip_reading_prefix_cache
        allowed = "a RepetitionDetection or None"
        is_detection = detection is None or isinstance(detection, RepetitionDetection)
        _require(is_detection, "repetition_detection", detection, allowed)
        _require(isinstance(skip, bool), "skip_reading_prefix_cache", skip, "True or False")
        if self.eos_token_id is not None:
            check_token_ids("eos_token_id", (self.eos_token_id,))
        check_token_ids("stop_token_ids", tuple(self.stop_token_ids))


@attrs.frozen
class LoRA:
    """An adapter. Upstream: `lora/request.py::LoRARequest`."""

    name: str
    """Names it in block hashes."""
    lora_id: int
    """Names it in the count of adapters; at least 1."""
    path: str = ""
    """Where it is stored; an adapter that moves is another one."""

    def __attrs_post_init__(self) -> None:
        _require(
            isinstance(self.name, str) and self.name != "", "lora.name", self.name, "a non-empty string"
        )
        _require(
            _is_int(self.lora_id) and self.lora_id >= 1, "lora.lora_id", self.lora_id, "an integer >= 1"
        )


@attrs.frozen(kw_only=True)
class Request:
    """What a client asked for. It never changes [M-REQ-01]."""

    request_id: RequestId
    """Unique among the live requests."""
    prompt_token_ids: tuple[int, ...] = attrs.field(converter=_freeze_token_ids)
    """At least one token id, each from 0 to `MAX_TOKEN_ID`."""
    sampling_params: SamplingParams
    """When the output ends."""
    arrival_time: float = 0.0
    """Seconds on the caller's clock; orders equal priorities."""
    priority: int = 0
    """Smaller is more important; only the priority policy looks at it."""
    client_index: int = 0
    """Which front end gets the output."""
    cache_salt: str | None = None
    """Requests share cached blocks only with the same salt."""
    lora: LoRA | None = None
    """The adapter that it needs, or None. Requests share cached blocks only with the same adapter."""
    pooling: bool = False
    """Whether it wants one pooled output in place of tokens; `max_tokens` is 1 then."""
    needs_grammar: bool = False
    """Whether it waits for a grammar before it may start."""
    resumable: bool = False
    """Whether it is a session: requests with the same id may bring more input."""
    canvas_length: int | None = None
    """Diffusion: the tokens of its canvas, where that is less than `num_spec_tokens`."""
    max_denoise_steps: int | None = None
    """Diffusion: its output comes with this step of its only canvas, which ends it; None for no such limit."""

    def __attrs_post_init__(self) -> None:
        _require(
            isinstance(self.request_id, str) and self.request_id != "",
            "request_id",
            self.request_id,
            "a non-empty string",
        )
        _require(
            isinstance(self.sampling_params, SamplingParams),
            "sampling_params",
            self.sampling_params,
            "a SamplingParams",
        )
        _require(len(self.prompt_token_ids) > 0, "prompt_token_ids", (), "at least one token id")
        check_token_ids("prompt_token_ids", self.prompt_token_ids)
        time = self.arrival_time
        _require(
            type(time) in (int, float) and math.isfinite(time), "arrival_time", time, "a finite number"
        )
        _require(_is_int(self.priority), "priority", self.priority, "an integer")
        _require(
            _is_int(self.client_index) and self.client_index >= 0,
            "client_index",
            self.client_index,
            "an integer >= 0",
        )
        _require(
            self.cache_salt is None or isinstance(self.cache_salt, str),
            "cache_salt",
            self.cache_salt,
            "a string or None",
        )
        for name in ("pooling", "needs_grammar", "resumable"):
            _require(type(getattr(self, name)) is bool, name, getattr(self, name), "True or False")
        for name in ("canvas_length", "max_denoise_steps"):
            value = getattr(self, name)
            _require(
                value is None or (_is_int(value) and value >= 1), name, value, "an integer >= 1 or None"
            )
        if self.pooling:
            max_tokens = self.sampling_params.max_tokens
            _require(max_tokens == 1, "max_tokens", max_tokens, "1, for a pooling request")
        _require(self.lora is None or isinstance(self.lora, LoRA), "lora", self.lora, "a LoRA or None")

    @property
    def num_prompt_tokens(self) -> int:
        """The length of the prompt, in tokens."""
        return len(self.prompt_token_ids)


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

    The field order is the constructor's; the hot paths construct one per phase, positionally, in
    the methods below.
    """

    status: RequestStatus = RequestStatus.WAITING
    """One of the three live statuses."""
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

    def after_schedule(
        self,
        num_computed_tokens: int,
        num_in_flight_tokens: int,
        is_prefill_chunk: bool,
        spec_token_ids: tuple[int, ...],
    ) -> "Progress":
        """Count a row of the batch; the fields not named stay."""
        return _make_progress(
            self.status,
            num_computed_tokens,
            num_in_flight_tokens,
            is_prefill_chunk,
            self.output_token_ids,
            self.block_hashes,
            self.num_preemptions,
            self.num_stale_output_tokens,
            self.drop_stale_output,
            self.prefill_stats,
            self.num_output_placeholders,
            spec_token_ids,
            self.next_decode_eligible_step,
            self.spec_decode_metrics,
            self.grammar,
            self.chunks,
            self.events,
            self.stop_reason,
        )

    def with_placeholders(
        self,
        num_output_placeholders: int,
        spec_token_ids: tuple[int, ...],
        next_decode_eligible_step: int,
    ) -> "Progress":
        """Expect tokens of a step in flight; the fields not named stay."""
        return _make_progress(
            self.status,
            self.num_computed_tokens,
            self.num_in_flight_tokens,
            self.is_prefill_chunk,
            self.output_token_ids,
            self.block_hashes,
            self.num_preemptions,
            self.num_stale_output_tokens,
            self.drop_stale_output,
            self.prefill_stats,
            num_output_placeholders,
            spec_token_ids,
            next_decode_eligible_step,
            self.spec_decode_metrics,
            self.grammar,
            self.chunks,
            self.events,
            self.stop_reason,
        )

    def without_output(
        self,
        num_computed_tokens: int,
        num_in_flight_tokens: int,
        num_stale_output_tokens: int,
        num_output_placeholders: int,
        spec_decode_metrics: RequestSpecDecodeMetrics | None,
    ) -> "Progress":
        """Take in a result that brought no token; the fields not named stay."""
        return _make_progress(
            self.status,
            num_computed_tokens,
            num_in_flight_tokens,
            self.is_prefill_chunk,
            self.output_token_ids,
            self.block_hashes,
            self.num_preemptions,
            num_stale_output_tokens,
            self.drop_stale_output,
            self.prefill_stats,
            num_output_placeholders,
            self.spec_token_ids,
            self.next_decode_eligible_step,
            spec_decode_metrics,
            self.grammar,
            self.chunks,
            self.events,
            self.stop_reason,
        )

    def with_output(
        self,
        num_computed_tokens: int,
        num_in_flight_tokens: int,
        num_stale_output_tokens: int,
        num_output_placeholders: int,
        output_token_ids: PVector[int],
        block_hashes: tuple[BlockHash, ...],
        spec_decode_metrics: RequestSpecDecodeMetrics | None,
        grammar: Grammar | GrammarError | None,
    ) -> "Progress":
        """Take in a result that brought tokens; the prefill's statistics and the events went out with them."""
        return _make_progress(
            self.status,
            num_computed_tokens,
            num_in_flight_tokens,
            self.is_prefill_chunk,
            output_token_ids,
            block_hashes,
            self.num_preemptions,
            num_stale_output_tokens,
            self.drop_stale_output,
            None,
            num_output_placeholders,
            self.spec_token_ids,
            self.next_decode_eligible_step,
            spec_decode_metrics,
            grammar,
            self.chunks,
            (),
            self.stop_reason,
        )


_make_progress = quick_constructor(Progress)


def canvas_width(request: Request, num_spec_tokens: int) -> int:
    """Count the tokens of a diffusion request's canvas."""
    return request.canvas_length or num_spec_tokens


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


def check_token_ids(field: str, token_ids: Sequence[int]) -> None:
    """Raise `InvalidEvent` unless every token id is an integer from 0 to `MAX_TOKEN_ID`."""
    # A prompt has up to a hundred thousand tokens: three passes in C, and a search only on failure.
    if set(map(type, token_ids)) <= {int} and (
        not token_ids or (min(token_ids) >= 0 and max(token_ids) <= MAX_TOKEN_ID)
    ):
        return
    for token_id in token_ids:
        if type(token_id) is not int or not 0 <= token_id <= MAX_TOKEN_ID:
            raise InvalidEvent(field, token_id, f"integers from 0 to {MAX_TOKEN_ID}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _require(condition: bool, field: str, value: object, allowed: str) -> None:
    if not condition:
        raise InvalidEvent(field, value, allowed)
