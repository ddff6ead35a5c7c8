"""Playing a workload."""

import itertools
from collections.abc import Iterator

import pytest

from kvsched_fp import AddRequest, FinishReason, Schedule, SchedulerConfig, Update
from kvsched_fp.errors import InvalidInputError
from kvsched_fp.workloads.play import Played, StepCost, play
from kvsched_fp.workloads.request import WorkloadRequest
from tests.unit.workloads.helpers import make_workload
from tests.unit.worlds import make_config

COST = StepCost(base=1.0, per_token=0.5)


def _play(
    *requests: tuple[float, int, int], config: SchedulerConfig | None = None, max_waiting: int = 256
) -> list[Played]:
    workload = make_workload(*requests)
    return list(play(config or make_config(), workload, step_cost=COST, max_waiting=max_waiting))


def _kinds(events: list[Played]) -> list[tuple[str, float]]:
    return [(type(played.event).__name__, played.time) for played in events]


def test_one_request_from_arrival_to_end() -> None:
    """The clock jumps to the arrival, a step costs base and tokens, and an empty step ends it all."""
    assert [
        ("AddRequest", 2.0),
        ("Schedule", 2.0),
        ("Update", 6.5),  # 7 tokens
        ("Schedule", 6.5),
        ("Update", 8.0),  # 1 token, the last
        ("Schedule", 8.0),
        ("Update", 8.0),
    ] == _kinds(_play((2.0, 7, 2)))


def test_a_request_is_added_at_the_first_moment_after_its_arrival() -> None:
    """Arrivals during a step wait for its end."""
    events = _play((0.0, 7, 3), (1.0, 2, 1))

    assert [("r1", 0.0), ("r2", 4.5)] == [
        (played.event.request.request_id, played.time)
        for played in events
        if isinstance(played.event, AddRequest)
    ]


def test_the_states_chain_up() -> None:
    """The state before an event is the state after the one before."""
    events = _play((0.0, 7, 3), (1.0, 20, 5), (50.0, 3, 3))

    assert all(first.after is second.before for first, second in itertools.pairwise(events))
    assert not events[-1].after.requests
    assert () == events[-1].after.finished_request_ids


def test_every_output_ends_by_its_length() -> None:
    """Outputs have the length that the workload says, at most up to the model's."""
    events = _play((0.0, 7, 3), (0.0, 60, 99))
    num_tokens: dict[str, int] = {}
    reasons = set()
    for played in events:
        if isinstance(played.event, Update):
            for output in played.after.emitted.clients[0].outputs:
                so_far = num_tokens.get(output.request_id, 0)
                num_tokens[output.request_id] = so_far + len(output.new_token_ids)
                reasons.add(output.finish_reason)

    assert {"r1": 3, "r2": 64 - 60} == num_tokens
    assert {None, FinishReason.LENGTH} == reasons


def test_the_workload_is_read_as_it_is_needed() -> None:
    """Only the next request is ever held back."""
    num_read = 0

    def read() -> Iterator[WorkloadRequest]:
        nonlocal num_read
        for request in make_workload(*[(10.0 * index, 4, 1) for index in range(100)]):
            num_read += 1
            yield request

    events = play(make_config(), read())
    next(events)

    assert 2 == num_read


def test_at_most_max_waiting_requests_wait_inside() -> None:
    """The others wait outside, in their order, and none is lost."""
    config = make_config(max_num_seqs=1)
    events = _play(*[(0.0, 4, 2)] * 10, config=config, max_waiting=3)
    added = [played.event.request.request_id for played in events if isinstance(played.event, AddRequest)]

    assert 3 == max(len(played.after.waiting) for played in events)
    assert [f"r{line}" for line in range(1, 11)] == added


def test_a_step_that_costs_nothing_still_comes_to_an_end() -> None:
    """With a clock that stands still, the next arrival is jumped to when nothing is live."""
    workload = make_workload((0.0, 4, 3), (5.0, 4, 3))
    events = list(play(make_config(), workload, step_cost=StepCost(base=0.0, per_token=0.0)))

    assert 5.0 == events[-1].time
    assert 2 == sum(isinstance(played.event, AddRequest) for played in events)


def test_an_empty_workload_gives_no_event() -> None:
    """There is nothing to play."""
    assert [] == _play()


def test_a_run_repeats_itself() -> None:
    """Equal inputs give equal events, states and times."""
    requests = [(0.0, 7, 3), (1.0, 20, 5), (1.0, 40, 9), (2.0, 30, 12)]

    assert _play(*requests) == _play(*requests)


def test_two_events_per_step_and_one_per_request() -> None:
    """Nothing but the alphabet that a run needs is used."""
    events = _play((0.0, 7, 3), (1.0, 20, 5))

    assert {AddRequest, Schedule, Update} == {type(played.event) for played in events}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base", -1.0),
        ("base", float("nan")),
        ("per_token", float("inf")),
        ("per_token", "1"),
        ("base", 1e7),
    ],
)
def test_refuses_a_cost_that_is_no_duration(field: str, value: float) -> None:
    """Costs are finite and not negative."""
    with pytest.raises(
        InvalidInputError, match=f"step cost, {field}: .*a number of seconds from 0 to 1,000,000"
    ):
        StepCost(**{field: value})


def test_refuses_to_let_nothing_in() -> None:
    """At least one request may wait."""
    with pytest.raises(InvalidInputError, match="max_waiting: got 0"):
        _play((0.0, 4, 1), max_waiting=0)
