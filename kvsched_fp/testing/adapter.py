"""What the kit asks of a scheduler under test.

`Adapter` takes events of this package and answers with what came of them; `CallAdapter` is the same with
one method per event, which is what most people write. What comes of an event is given as values of this
package, or as the plain JSON values of a trace (`specs/trace-format.md`), which need no import.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InvalidInputError, KvschedError, UnsupportedFeature, shorten
from kvsched_fp.events import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    StepResult,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.grammar import Grammar
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.outputs import Emitted, SchedulerOutput
from kvsched_fp.request import Request, RequestStatus
from kvsched_fp.testing.features import Feature
from kvsched_fp.trace.codec import Told, decode_told, told_key
from kvsched_fp.trace.divergence import kind_of

Json: TypeAlias = Mapping[str, Any]
"""A record as a trace has it, read from JSON."""
Tokens: TypeAlias = Mapping[RequestId, tuple[int, ...]]
"""Token ids per request, in order."""


class AdapterError(KvschedError):
    """The scheduler under test cannot be driven: it raised, died, hung or answered nonsense."""


class Adapter(ABC):
    """A scheduler under test, for one run after another."""

    features: Collection[Feature | str] = frozenset()
    """What it supports, as features or their names. Nothing else is asked of it."""

    def adapt_config(self, config: SchedulerConfig) -> SchedulerConfig:
        """Give the configuration with what cannot be chosen here; it is what `start` is given."""
        return config

    @abstractmethod
    def start(self, config: SchedulerConfig) -> None:
        """Begin a run with a fresh scheduler."""

    @abstractmethod
    def happen(self, event: Event) -> Told:
        """Let an event happen, and give what came of it. Whatever it raises counts as a difference."""

    def view(self) -> Mapping[str, Any] | None:
        """Give what can be seen of its state, under the names of `views.ORACLE_VIEWS`; None for nothing.

        It is compared after every event, and finds differences before they show in an outcome.
        """
        return None

    def stop(self) -> None:  # noqa: B027  most have nothing to do
        """End a run."""

    def close(self) -> None:  # noqa: B027  as above
        """Give everything back, after the last run."""


class CallAdapter(Adapter):
    """A scheduler under test with one method per event."""

    def happen(self, event: Event) -> Told:
        """Call the method of the event."""
        return read_answer(event, self._call(event))

    @abstractmethod
    def add_request(self, request: Request, time: float) -> None:
        """Let a request in; with `SESSIONS`, an id that is live brings the next input of its session."""

    @abstractmethod
    def schedule(self, throttle_prefills: bool, time: float) -> SchedulerOutput | Json:
        """Plan the next step."""

    @abstractmethod
    def update(self, result: StepResult, time: float) -> Emitted | Json:
        """Take in what the model runner returned for the oldest step in flight."""

    @abstractmethod
    def finish_requests(self, request_ids: tuple[RequestId, ...] | None, status: RequestStatus) -> None:
        """End requests in this order; None is all."""

    def set_pause_state(self, pause_state: PauseState) -> None:
        """Pause, or go on (`PAUSE`)."""
        raise self._unsupported("set_pause_state", pause_state)

    def reset_prefix_cache(self, reset_running_requests: bool, time: float) -> bool:
        """Forget all cached blocks, and tell whether it was done (`RESET`)."""
        raise self._unsupported("reset_prefix_cache", reset_running_requests, time)

    def update_drafts(self, draft_token_ids: Tokens) -> None:
        """Take drafts for the next step (`DRAFTS`)."""
        raise self._unsupported("update_drafts", draft_token_ids)

    def update_drafts_in_flight(self, step_id: StepId, draft_token_ids: Tokens) -> None:
        """Take drafts for a step in flight (`DRAFTS` with `ASYNC`)."""
        raise self._unsupported("update_drafts_in_flight", step_id, draft_token_ids)

    def set_grammar(self, request_id: RequestId, grammar: Grammar | str) -> None:
        """Take the grammar that a request waits for, or why there is none (`GRAMMARS`)."""
        raise self._unsupported("set_grammar", request_id, grammar)

    def _unsupported(self, method: str, *arguments: object) -> UnsupportedFeature:
        asked = f"{method}({', '.join(map(shorten, arguments))})"
        return UnsupportedFeature(asked, f"the features of {type(self).__name__}")

    def _call(self, event: Event) -> Any:  # noqa: PLR0911  one return per event
        match event:
            case AddRequest(request, time):
                return self.add_request(request, time)
            case Schedule(throttle_prefills, time):
                return self.schedule(throttle_prefills, time)
            case Update(result, time):
                return self.update(result, time)
            case FinishRequests(request_ids, status):
                return self.finish_requests(request_ids, status)
            case SetPauseState(pause_state):
                return self.set_pause_state(pause_state)
            case ResetPrefixCache(reset_running_requests, time):
                return self.reset_prefix_cache(reset_running_requests, time)
            case UpdateDrafts(draft_token_ids):
                return self.update_drafts(draft_token_ids)
            case UpdateDraftsInFlight(step_id, draft_token_ids):
                return self.update_drafts_in_flight(step_id, draft_token_ids)
            case GrammarReady(request_id, grammar):
                return self.set_grammar(request_id, grammar)
            case GrammarFailed(request_id, message):
                return self.set_grammar(request_id, message)


def read_answer(event: Event, answer: object) -> Told:
    """Read what a scheduler gave for an event.

    Raises `AdapterError` for what cannot come of the event.
    """
    key = told_key(event)
    if key is None:
        return None
    if type(answer) is _VALUES[key]:
        return answer  # type: ignore[return-value]
    try:
        return decode_told({"event": None, key: answer}, event)
    except InvalidInputError as error:
        raise AdapterError(f"answered {shorten(answer)} to {kind_of(event)}: {error}") from None


_VALUES = {"output": SchedulerOutput, "emitted": Emitted, "done": bool}
