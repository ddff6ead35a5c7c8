"""What a client asked for (`Request`), and the life that it has (`RequestStatus`).

Rules
-----
[M-REQ-01] A request never changes after it was added; everything that moves is in `Progress`.
[M-REQ-02] A status changes only along `LEGAL_MOVES`; a move that is not in the table is our bug.
"""

import enum
import math
from collections.abc import Iterable, Sequence

import attrs

from kvsched_fp.errors import InvalidEvent, OracleBug
from kvsched_fp.ids import RequestId

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
    # A late result of an earlier request of its id may stop what has not begun (deviation D-05).
    RequestStatus.WAITING: frozenset({RequestStatus.RUNNING, *_AFTER_A_STOP, *FINISH_REASONS}),
    RequestStatus.WAITING_FOR_GRAMMAR: frozenset({*_AFTER_A_STOP, *FINISH_REASONS}),
    RequestStatus.WAITING_FOR_INPUT: frozenset({*_AFTER_A_STOP, *FINISH_REASONS}),
    # A session that stopped goes on with its next input, or waits for it.
    RequestStatus.RUNNING: frozenset({RequestStatus.PREEMPTED, *_AFTER_A_STOP, *FINISH_REASONS}),
    RequestStatus.PREEMPTED: frozenset({RequestStatus.RUNNING, *_AFTER_A_STOP, *FINISH_REASONS}),
    **{status: frozenset() for status in FINISH_REASONS},
}
"""The legal moves. A final status has none: the request has left the state."""


def is_finite(value: object) -> bool:
    """Tell whether `value` is a number, and one that a double can hold."""
    try:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:
        return False


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
        _require(isinstance(self.path, str), "lora.path", self.path, "a string")


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
    """Diffusion: its output comes with this step of its only canvas, which ends it; None for no limit."""

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
        _require(is_finite(time), "arrival_time", time, "a finite number")
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


def canvas_width(request: Request, num_spec_tokens: int) -> int:
    """Count the tokens of a diffusion request's canvas."""
    return request.canvas_length or num_spec_tokens


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
