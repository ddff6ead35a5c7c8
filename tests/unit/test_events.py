"""The events freeze what they are given."""

from typing import Any

import attrs
import pytest

from kvsched_fp import (
    AddRequest,
    AutomatonGrammar,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    InvalidEvent,
    RequestStatus,
    ResetPrefixCache,
    Schedule,
    StepResult,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.request import is_finished
from tests.unit.refusal import refused
from tests.unit.worlds import make_request


def test_result_freezes_its_tokens() -> None:
    """Lists and dicts become tuples and an ordered map, so that a result is a value."""
    tokens = {"b": [1, 2], "a": []}
    result = StepResult(step_id=StepId(3), sampled_token_ids=tokens)
    tokens["b"].append(3)

    assert OrderedMap({"b": (1, 2), "a": ()}) == result.sampled_token_ids
    assert hash(StepResult(step_id=StepId(3), sampled_token_ids=result.sampled_token_ids)) == hash(result)


def test_result_without_tokens_is_empty() -> None:
    """A step in which nothing was sampled needs no tokens."""
    assert OrderedMap() == StepResult(step_id=StepId(1)).sampled_token_ids


def test_result_never_changes() -> None:
    """Events are frozen."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        StepResult(step_id=StepId(1)).step_id = StepId(2)


@pytest.mark.parametrize(
    ("given", "kept"),
    [("ab", ("ab",)), (["b", "a", "b"], ("b", "a")), ((), ()), (None, None), (iter(["x"]), ("x",))],
)
def test_ids_to_finish_keep_their_order(given: object, kept: tuple[str, ...] | None) -> None:
    """One id may stand for itself; an id that is given twice counts once; None means all."""
    assert kept == FinishRequests(given).request_ids


@pytest.mark.parametrize("status", list(RequestStatus))
def test_requests_end_with_a_final_status_only(status: RequestStatus) -> None:
    """A status that is not final is refused; the default is an abort."""
    if is_finished(status):
        assert status is FinishRequests(None, status).status
        return
    with refused(InvalidEvent, "status", status, "a final status"):
        FinishRequests(None, status)


def test_status_that_is_none_is_refused() -> None:
    """A name is not a status."""
    with refused(InvalidEvent, "status", "FINISHED_ABORTED", "a final status"):
        FinishRequests(None, "FINISHED_ABORTED")

    assert RequestStatus.FINISHED_ABORTED is FinishRequests(None).status


@pytest.mark.parametrize("step_id", [None, "1", 1.0, True])
def test_step_id_of_another_type_is_refused(step_id: Any) -> None:
    """A result names its step by an integer."""
    with refused(InvalidEvent, "step_id", step_id, "the number of a step"):
        StepResult(step_id=step_id)
    with refused(InvalidEvent, "step_id", step_id, "the number of a step"):
        UpdateDraftsInFlight(step_id, {})


@pytest.mark.parametrize("tokens", [{"a": 5}, {"a": None}, [1], None, 7])
def test_sampled_tokens_of_another_shape_are_refused(tokens: Any) -> None:
    """A result maps request ids to token ids."""
    with refused(InvalidEvent, "sampled_token_ids", tokens, "a mapping from request id to token ids"):
        StepResult(step_id=StepId(1), sampled_token_ids=tokens)


@pytest.mark.parametrize("make", [UpdateDrafts, lambda drafts: UpdateDraftsInFlight(StepId(1), drafts)])
@pytest.mark.parametrize("drafts", [{"a": 5}, [1], None])
def test_drafts_of_another_shape_are_refused(make: Any, drafts: Any) -> None:
    """Drafts are mapped like sampled tokens."""
    with refused(InvalidEvent, "draft_token_ids", drafts, "a mapping from request id to token ids"):
        make(drafts)


def test_drafts_are_frozen() -> None:
    """Lists and dicts become tuples and an ordered map."""
    drafts = OrderedMap({"b": (1, -1), "a": ()})

    assert drafts == UpdateDrafts({"b": [1, -1], "a": []}).draft_token_ids
    assert drafts == UpdateDraftsInFlight(StepId(1), {"b": [1, -1], "a": []}).draft_token_ids


@pytest.mark.parametrize(
    ("given", "kept"), [((), ()), (["b", "a", "b"], ("b", "a")), ("ab", ("ab",)), (iter(["x"]), ("x",))]
)
def test_pooled_ids_keep_their_order(given: Any, kept: tuple[str, ...]) -> None:
    """An id that is given twice counts once; one id may stand alone."""
    assert kept == StepResult(step_id=StepId(1), pooled_request_ids=given).pooled_request_ids


@pytest.mark.parametrize("given", [5, None, [[1]]])
def test_pooled_ids_of_another_shape_are_refused(given: Any) -> None:
    """A result lists the requests whose pooled output came."""
    with refused(InvalidEvent, "pooled_request_ids", given, "ids of pooling requests"):
        StepResult(step_id=StepId(1), pooled_request_ids=given)


A = RequestId("a")
TIMED: list[Any] = [
    lambda time: AddRequest(make_request("a"), time),
    lambda time: Schedule(time=time),
    lambda time: Update(StepResult(step_id=StepId(1)), time),
    lambda time: ResetPrefixCache(time=time),
]


@pytest.mark.parametrize("make", TIMED)
@pytest.mark.parametrize("time", ["now", None, True, float("inf"), float("-inf")])
def test_time_that_is_not_finite_is_refused(make: Any, time: Any) -> None:
    """Events of requests carry it to the clients."""
    with refused(InvalidEvent, "time", time, "a finite number"):
        make(time)


@pytest.mark.parametrize("make", TIMED)
def test_time_that_does_not_equal_itself_is_refused(make: Any) -> None:
    """With NaN, equal histories would not give equal states."""
    with pytest.raises(InvalidEvent, match="time: got nan"):
        make(float("nan"))


@pytest.mark.parametrize(
    ("make", "field", "value"),
    [
        (lambda: GrammarReady(5, AutomatonGrammar([[]])), "request_id", 5),
        (lambda: GrammarReady(A, "json"), "grammar", "json"),
        (lambda: GrammarFailed(None, "no"), "request_id", None),
        (lambda: GrammarFailed(A, None), "message", None),
    ],
)
def test_grammar_event_of_another_shape_is_refused(make: Any, field: str, value: object) -> None:
    """A request, and its grammar or a text."""
    with refused(InvalidEvent, field, value, ""):
        make()


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (AddRequest, "request"),
        (Update, "result"),
        (Schedule, "throttle_prefills"),
        (ResetPrefixCache, "reset_running_requests"),
        (FinishRequests, "request_ids"),
    ],
)
def test_fields_of_another_type_are_refused(make: Any, field: str) -> None:
    """No event takes a number where it wants something else."""
    with refused(InvalidEvent, field, 5, ""):
        make(5)
