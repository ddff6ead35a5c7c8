"""Smaller histories: which there are."""

from collections.abc import Iterable, Sequence

import pytest

from kvsched_fp import AddRequest, Event, Schedule, StepResult, Update, initial_state, step
from kvsched_fp.ids import StepId
from kvsched_fp.state import SchedulerState, live_request_ids
from kvsched_fp.trace.smaller import (
    units_of,
    with_earlier_requests,
    with_late_start,
    with_less_together,
    with_merged_steps,
    with_shorter_prompts,
    without,
)
from kvsched_fp.workloads.play import play
from tests.unit.trace.helpers import REQUESTS, small_config
from tests.unit.workloads.helpers import make_workload
from tests.unit.worlds import make_request

CONFIG = small_config()
A, B = AddRequest(make_request("a", 3)), AddRequest(make_request("b", 2))


def _update(step_id: int, **rows: tuple[int, ...]) -> Update:
    return Update(StepResult(step_id=StepId(step_id), sampled_token_ids=rows))  # type: ignore[arg-type]


STORY: tuple[Event, ...] = (A, Schedule(), _update(1, a=(5,)), B, Schedule(), _update(2, a=(6,), b=(7,)))


@pytest.fixture(scope="module")
def events() -> tuple[Event, ...]:
    """Give the history of a small run."""
    return tuple(played.event for played in play(CONFIG, make_workload(*REQUESTS)))


def _play(events: Iterable[Event]) -> SchedulerState:
    state = initial_state(CONFIG)
    for event in events:
        state, _ = step(state, event)
    return state


def test_a_step_is_one_unit_with_its_result() -> None:
    """The latest first."""
    assert [(4, 5), (3,), (1, 2), (0,)] == units_of(STORY)


def test_less_together() -> None:
    """Every event of a step alone, and every two units."""
    found = list(with_less_together(STORY))

    assert without(STORY, (2,)) in found
    assert without(STORY, (0, 3)) in found
    assert 4 + 6 == len(found)


def test_a_late_start_knows_what_was_known(events: Sequence[Event]) -> None:
    """The requests that are added have the tokens of those that were live, and run in the same order."""
    candidates = list(with_late_start(CONFIG, events))
    index = len(events) // 2
    while not isinstance(events[index], Schedule):
        index += 1
    before = _play(events[:index])
    num_adds = len(before.requests)
    rest = list(events[index:])  # one step at a time, so that all results are of later steps
    after = next(_play(one[:num_adds]) for one in candidates if rest == one[num_adds:])

    assert num_adds > 1
    assert [*before.running, *before.waiting] == live_request_ids(after)
    for request_id, request in after.requests.items():
        known = before.requests[request_id].prompt_token_ids, before.progress[request_id].output_token_ids
        assert request.prompt_token_ids == (*known[0], *known[1])


def test_steps_are_merged_into_an_earlier_result_or_the_prompt() -> None:
    """What a step sampled is not lost with it."""
    found = list(with_merged_steps(STORY))

    assert [A, Schedule(), _update(1, a=(5, 6), b=(7,)), B] in found
    longer_a = AddRequest(make_request("a", tokens=(*A.request.prompt_token_ids, 6), prompt=0))
    longer_b = AddRequest(make_request("b", tokens=(*B.request.prompt_token_ids, 7), prompt=0))
    assert [longer_a, Schedule(), _update(1, a=(5,)), longer_b] in found


def test_requests_come_earlier() -> None:
    """First of all, or by one place."""
    found = list(with_earlier_requests(STORY))

    assert [[B, *without(STORY, (3,))], [*STORY[:2], B, STORY[2], *STORY[4:]]] == found


def test_prompts_get_shorter() -> None:
    """By the first tokens; a prompt of no more than that stays."""
    (shorter, _, _, same, *_) = with_shorter_prompts(STORY, 2)

    assert isinstance(shorter, AddRequest)
    assert A.request.prompt_token_ids[2:] == shorter.request.prompt_token_ids
    assert same is B
