"""The closed alphabet: everything that can happen to a scheduler.

What the outside world decides (arrivals, sampled tokens) enters only as a field of an event. `Event`
is the union; `machine.step()` is total over it.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from kvsched_fp.errors import InvalidEvent
from kvsched_fp.grammar import Grammar
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.request import Request, RequestStatus, is_finished, is_finite


class PauseState(enum.Enum):
    """How much may be scheduled. Upstream: `v1/core/sched/interface.py::PauseState`."""

    UNPAUSED = "unpaused"
    """Everything."""
    PAUSED_NEW = "paused_new"
    """Running requests, and waiting ones that hold blocks; nothing else is admitted."""
    PAUSED_ALL = "paused_all"
    """Nothing."""


def _freeze_tokens(tokens: Mapping[RequestId, Iterable[int]]) -> OrderedMap[RequestId, tuple[int, ...]]:
    return _freeze_token_map("sampled_token_ids", tokens)


def _freeze_token_map(
    field: str, tokens: Mapping[RequestId, Iterable[int]]
) -> OrderedMap[RequestId, tuple[int, ...]]:
    try:
        return OrderedMap.adopt({request_id: tuple(ids) for request_id, ids in tokens.items()})
    except (TypeError, AttributeError):
        raise InvalidEvent(field, tokens, "a mapping from request id to token ids") from None


def _freeze_ids(request_ids: Iterable[RequestId] | None) -> tuple[RequestId, ...] | None:
    if request_ids is None:
        return None
    return _freeze_id_tuple("request_ids", request_ids, "ids of live requests, or None for all")


def _freeze_pooled(request_ids: Iterable[RequestId]) -> tuple[RequestId, ...]:
    return _freeze_id_tuple("pooled_request_ids", request_ids, "ids of pooling requests")


def _freeze_id_tuple(field: str, request_ids: Iterable[RequestId], allowed: str) -> tuple[RequestId, ...]:
    if isinstance(request_ids, str):
        return (RequestId(request_ids),)
    try:
        return tuple(dict.fromkeys(request_ids))
    except TypeError:
        raise InvalidEvent(field, request_ids, allowed) from None


def _freeze_drafts(tokens: Mapping[RequestId, Iterable[int]]) -> OrderedMap[RequestId, tuple[int, ...]]:
    return _freeze_token_map("draft_token_ids", tokens)


Check: TypeAlias = Callable[[str, object], None]
"""Given the name of a field and a value, refuses a value of the wrong type.

Each is applied where an event is made, and where a function takes the same value without an event.
"""


def _make_check(kind: type, allowed: str) -> Check:
    """Make the check for values of exactly one type."""

    def check(field: str, value: object) -> None:
        if type(value) is not kind:
            raise InvalidEvent(field, value, allowed)

    return check


def _checked_by(check: Check) -> "Callable[[object, attrs.Attribute[Any], object], None]":
    """Make the validator of a field."""
    return lambda _, attribute, value: check(attribute.name, value)


def check_time(field: str, value: object) -> None:
    """Refuse what is no time; one that is not finite would not even equal itself."""
    if not is_finite(value):
        raise InvalidEvent(field, value, "a finite number")


check_request = _make_check(Request, "a Request")
check_flag = _make_check(bool, "True or False")
check_pause_state = _make_check(PauseState, ", ".join(map(str, PauseState)))
_check_id = _make_check(str, "the id of a request")
_check_step_id = _make_check(int, "the number of a step")


@attrs.frozen(kw_only=True)
class StepResult:
    """What the model runner returned for one step. Upstream: `v1/outputs.py::ModelRunnerOutput`."""

    step_id: StepId = attrs.field(validator=_checked_by(_check_step_id))
    """The step that this answers; it must be the oldest in flight."""
    sampled_token_ids: OrderedMap[RequestId, tuple[int, ...]] = attrs.field(
        factory=OrderedMap, converter=_freeze_tokens
    )
    """The tokens sampled for each scheduled request; a request that sampled none may be left out."""
    pooled_request_ids: tuple[RequestId, ...] = attrs.field(default=(), converter=_freeze_pooled)
    """The pooling requests whose output came with it, each once (one id may stand alone, as a string)."""


check_result = _make_check(StepResult, "a StepResult")


@attrs.frozen
class AddRequest:
    """A client sent a request."""

    request: Request = attrs.field(validator=_checked_by(check_request))
    """Its id must not be live, unless it is the next input of a session."""
    time: float = attrs.field(default=0.0, validator=_checked_by(check_time))
    """Seconds on the caller's clock, for the events of requests."""


@attrs.frozen
class FinishRequests:
    """Somebody outside ends requests: a client hung up, an engine failed."""

    request_ids: tuple[RequestId, ...] | None = attrs.field(converter=_freeze_ids)
    """Live ids, ended in this order, each once (one id may stand alone, as a string); None for all, in the
    order of their arrival here."""
    status: RequestStatus = RequestStatus.FINISHED_ABORTED
    """A final status."""

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.status, RequestStatus) or not is_finished(self.status):
            raise InvalidEvent("status", self.status, "a final status (FINISHED_...)")


@attrs.frozen
class Schedule:
    """The engine asks for the next step."""

    throttle_prefills: bool = attrs.field(default=False, validator=_checked_by(check_flag))
    """Whether the data-parallel cadence holds prompts back in this step."""
    time: float = attrs.field(default=0.0, validator=_checked_by(check_time))
    """Seconds on the caller's clock, for the events of requests."""


@attrs.frozen
class Update:
    """The model runner returned the oldest step in flight."""

    result: StepResult = attrs.field(validator=_checked_by(check_result))
    """What it returned."""
    time: float = attrs.field(default=0.0, validator=_checked_by(check_time))
    """Seconds on the caller's clock, for the events of requests."""


@attrs.frozen
class UpdateDrafts:
    """The drafter proposed tokens, to be verified in the next step of each request."""

    draft_token_ids: OrderedMap[RequestId, tuple[int, ...]] = attrs.field(converter=_freeze_drafts)
    """Per live request, at most `num_spec_tokens` drafts; -1 pads."""


@attrs.frozen
class UpdateDraftsInFlight:
    """The drafts of a step that is in flight became known: they take the place of its placeholders."""

    step_id: StepId = attrs.field(validator=_checked_by(_check_step_id))
    """The step, one of those in flight."""
    draft_token_ids: OrderedMap[RequestId, tuple[int, ...]] = attrs.field(converter=_freeze_drafts)
    """Per live request, its drafts; more than it has placeholders are cut, fewer are padded with -1."""


@attrs.frozen
class GrammarReady:
    """The grammar that a request waits for was compiled."""

    request_id: RequestId = attrs.field(validator=_checked_by(_check_id))
    """A request that waits for a grammar."""
    grammar: Grammar = attrs.field()
    """The grammar, before any output."""

    @grammar.validator
    def _check_grammar(self, _: "attrs.Attribute[Any]", value: object) -> None:
        if isinstance(value, type) or not isinstance(value, Grammar):
            raise InvalidEvent("grammar", value, "a value with accept_tokens() and count_valid_tokens()")


@attrs.frozen
class GrammarFailed:
    """The grammar that a request waits for cannot be compiled."""

    request_id: RequestId = attrs.field(validator=_checked_by(_check_id))
    """A request that waits for a grammar."""
    message: str = attrs.field(validator=_checked_by(_make_check(str, "a text")))
    """Why, for the client."""


@attrs.frozen
class SetPauseState:
    """The engine is paused or goes on."""

    pause_state: PauseState = attrs.field(validator=_checked_by(check_pause_state))
    """From now on."""


@attrs.frozen
class ResetPrefixCache:
    """Forget all cached blocks, as after a change of weights."""

    reset_running_requests: bool = attrs.field(default=False, validator=_checked_by(check_flag))
    """Preempt what runs first, so that the reset cannot fail."""
    time: float = attrs.field(default=0.0, validator=_checked_by(check_time))
    """Seconds on the caller's clock, for the events of requests."""


Event: TypeAlias = (
    AddRequest
    | FinishRequests
    | Schedule
    | Update
    | UpdateDrafts
    | UpdateDraftsInFlight
    | GrammarReady
    | GrammarFailed
    | SetPauseState
    | ResetPrefixCache
)
"""Everything that can happen to a scheduler."""
