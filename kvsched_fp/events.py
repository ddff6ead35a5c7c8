"""The closed alphabet: everything that can happen to a scheduler.

What the outside world decides (arrivals, sampled tokens) enters only as a field of an event. `Event`
is the union; `machine.step()` is total over it.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from kvsched_fp.errors import InvalidEvent
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.request import Request, RequestStatus, is_finished


class PauseState(enum.Enum):
    """How much may be scheduled. Upstream: `v1/core/sched/interface.py::PauseState`."""

    UNPAUSED = "unpaused"
    """Everything."""
    PAUSED_NEW = "paused_new"
    """Running requests, and waiting ones that hold blocks; nothing else is admitted."""
    PAUSED_ALL = "paused_all"
    """Nothing."""


def _freeze_tokens(
    tokens: Mapping[RequestId, Iterable[int]],
) -> OrderedMap[RequestId, tuple[int, ...]]:
    try:
        return OrderedMap.adopt({request_id: tuple(ids) for request_id, ids in tokens.items()})
    except (TypeError, AttributeError):
        allowed = "a mapping from request id to token ids"
        raise InvalidEvent("sampled_token_ids", tokens, allowed) from None


def _freeze_ids(request_ids: Iterable[RequestId] | None) -> tuple[RequestId, ...] | None:
    if request_ids is None:
        return None
    if isinstance(request_ids, str):
        return (RequestId(request_ids),)
    try:
        return tuple(dict.fromkeys(request_ids))
    except TypeError:
        raise InvalidEvent("request_ids", request_ids, "ids of live requests, or None for all") from None


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


check_request = _make_check(Request, "a Request")
check_flag = _make_check(bool, "True or False")
check_pause_state = _make_check(PauseState, ", ".join(map(str, PauseState)))


@attrs.frozen(kw_only=True)
class StepResult:
    """What the model runner returned for one step. Upstream: `v1/outputs.py::ModelRunnerOutput`."""

    step_id: StepId = attrs.field(validator=_checked_by(_make_check(int, "the number of a step")))
    """The step that this answers; it must be the oldest in flight."""
    sampled_token_ids: OrderedMap[RequestId, tuple[int, ...]] = attrs.field(
        factory=OrderedMap, converter=_freeze_tokens
    )
    """The tokens sampled for each scheduled request; a request that sampled none may be left out."""


check_result = _make_check(StepResult, "a StepResult")


@attrs.frozen
class AddRequest:
    """A client sent a request."""

    request: Request = attrs.field(validator=_checked_by(check_request))
    """Its id must not be live."""


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


@attrs.frozen
class Update:
    """The model runner returned the oldest step in flight."""

    result: StepResult = attrs.field(validator=_checked_by(check_result))
    """What it returned."""


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


Event: TypeAlias = AddRequest | FinishRequests | Schedule | Update | SetPauseState | ResetPrefixCache
"""Everything that can happen to a scheduler."""
