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

import attrs
from pyrsistent import PVector, pvector

from kvsched_fp.errors import InvalidEvent, OracleBug
from kvsched_fp.ids import BlockHash, RequestId
from kvsched_fp.records import quick_constructor

MAX_TOKEN_ID = 2**63 - 1
"""Token ids are hashed as signed 64-bit integers."""


class RequestStatus(enum.Enum):
    """Where a request is in its life. Upstream: `v1/request.py::RequestStatus`."""

    WAITING = "waiting"
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

LEGAL_MOVES: dict[RequestStatus, frozenset[RequestStatus]] = {
    RequestStatus.WAITING: frozenset({RequestStatus.RUNNING, *FINISH_REASONS}),
    RequestStatus.RUNNING: frozenset({RequestStatus.PREEMPTED, *FINISH_REASONS}),
    RequestStatus.PREEMPTED: frozenset({RequestStatus.RUNNING, *FINISH_REASONS}),
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

    def after_schedule(self, num_new_tokens: int, num_tokens: int) -> "Progress":
        """Count `num_new_tokens` as computed and in flight; `num_tokens` are known."""
        num_computed_tokens = self.num_computed_tokens + num_new_tokens
        return _make_progress(
            self.status,
            num_computed_tokens,
            self.num_in_flight_tokens + num_new_tokens,
            num_computed_tokens < num_tokens,
            self.output_token_ids,
            self.block_hashes,
            self.num_preemptions,
            self.num_stale_output_tokens,
            self.drop_stale_output,
            self.prefill_stats,
        )

    def without_output(self, num_in_flight_tokens: int, num_stale_output_tokens: int) -> "Progress":
        """Take in a result that brought no token; the fields not named stay."""
        return _make_progress(
            self.status,
            self.num_computed_tokens,
            num_in_flight_tokens,
            self.is_prefill_chunk,
            self.output_token_ids,
            self.block_hashes,
            self.num_preemptions,
            num_stale_output_tokens,
            self.drop_stale_output,
            self.prefill_stats,
        )

    def with_output(
        self,
        num_in_flight_tokens: int,
        num_stale_output_tokens: int,
        output_token_ids: PVector[int],
        block_hashes: tuple[BlockHash, ...],
    ) -> "Progress":
        """Take in a result that brought tokens; the statistics of the prefill went out with them."""
        return _make_progress(
            self.status,
            self.num_computed_tokens,
            num_in_flight_tokens,
            self.is_prefill_chunk,
            output_token_ids,
            block_hashes,
            self.num_preemptions,
            num_stale_output_tokens,
            self.drop_stale_output,
            None,
        )


_make_progress = quick_constructor(Progress)


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
