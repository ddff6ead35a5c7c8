"""The reference gives up where we say that it does."""

import attrs
import pytest

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    InvalidEvent,
    Request,
    ResetPrefixCache,
    SamplingParams,
    Schedule,
    SchedulerConfig,
    StepResult,
    Update,
    UpdateDrafts,
)
from kvsched_fp.ids import RequestId, StepId
from tests.unit.refusal import refused

from .known_crashes import KNOWN_CRASH, LATE_STOP, is_known_crash
from .oracle import OracleScheduler

ID = RequestId("a")


def _events() -> list[Event]:
    """Use an id again while five tokens of its old step are in flight, and preempt it with three."""

    def request(num_tokens: int) -> Request:
        return Request(
            request_id=ID,
            prompt_token_ids=tuple(range(num_tokens)),
            sampling_params=SamplingParams(max_tokens=5),
        )

    return [
        AddRequest(request(5)),
        Schedule(),
        FinishRequests((ID,)),
        AddRequest(request(3)),
        Schedule(),
        ResetPrefixCache(reset_running_requests=True),
        Update(StepResult(step_id=StepId(1), sampled_token_ids={ID: (7,)})),
    ]


@pytest.mark.usefixtures("_reference")
def test_stale_share_below_zero() -> None:
    """A late result that exceeds the stale share of the next request of its id."""
    from .reference import ReferenceScheduler

    config = SchedulerConfig(enable_prefix_caching=False)
    reference, oracle = ReferenceScheduler(config), OracleScheduler(config)
    *first, last = _events()
    for event in first:
        assert reference.apply(event) == oracle.apply(event)

    before = oracle.state
    with pytest.raises(AssertionError):
        reference.apply(last)
    with refused(InvalidEvent, "step_id", 1, "at most 3 tokens of request 'a'", state=before):
        oracle.apply(last)

    assert before is oracle.state
    assert KNOWN_CRASH == is_known_crash(before, last, "AssertionError: ", "InvalidEvent: step_id: got 1")
    assert not is_known_crash(before, last, "AssertionError: ", "")
    assert not is_known_crash(before, last, "", "InvalidEvent: step_id: got 1")


@pytest.mark.usefixtures("_reference")
def test_session_stopped_before_it_has_begun() -> None:
    """A late result of two tokens, the first of which stops the next session of that id."""
    from .duel import play_event
    from .reference import ReferenceScheduler

    config = SchedulerConfig(enable_prefix_caching=False, num_spec_tokens=1)
    reference, oracle = ReferenceScheduler(config), OracleScheduler(config)
    params = SamplingParams(max_tokens=5, stop_token_ids=(9,))
    plain = Request(request_id=ID, prompt_token_ids=(1, 2), sampling_params=params)
    last = Update(StepResult(step_id=StepId(2), sampled_token_ids={ID: (9, 5)}))
    for event in (
        AddRequest(plain),
        Schedule(),
        Update(StepResult(step_id=StepId(1), sampled_token_ids={ID: (7,)})),
        UpdateDrafts({ID: (5,)}),
        Schedule(),
        FinishRequests((ID,)),
        AddRequest(attrs.evolve(plain, resumable=True)),
    ):
        assert reference.apply(event) == oracle.apply(event)

    before = oracle.state
    with pytest.raises(AssertionError):
        reference.apply(last)
    with refused(InvalidEvent, "sampled_token_ids", ID, "behind the stop of a session", state=before):
        oracle.apply(last)

    assert LATE_STOP == is_known_crash(before, last, "AssertionError: ", play_event(oracle, last)["raised"])
