"""Playing a workload."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from kvsched_fp import AddRequest, FinishReason, Schedule, SchedulerConfig, SchedulerOutput, Update
from kvsched_fp.errors import InvalidConfig, InvalidInputError
from kvsched_fp.workloads.clock import StepCost
from kvsched_fp.workloads.play import Played, play
from kvsched_fp.workloads.request import WorkloadRequest
from kvsched_fp.workloads.stub import StubModel
from tests.unit.workloads.helpers import make_workload, outputs_of
from tests.unit.worlds import make_config

COST = StepCost(base=1.0, per_token=0.5)


def _play(
    *requests: tuple[float, int, int],
    config: SchedulerConfig | None = None,
    max_waiting: int = 256,
    cost: StepCost = COST,
    model: StubModel | None = None,
) -> list[Played]:
    workload = make_workload(*requests)
    config = config or make_config()
    return list(play(config, workload, step_cost=cost, max_waiting=max_waiting, model=model))


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
    reasons = {
        output.finish_reason
        for played in events
        if isinstance(played.event, Update)
        for output in played.after.emitted.clients[0].outputs
    }

    assert {"r1": 3, "r2": 64 - 60} == {name: len(tokens) for name, tokens in outputs_of(events).items()}
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


def test_refuses_to_let_nothing_in() -> None:
    """At least one request may wait."""
    with pytest.raises(InvalidInputError, match="max_waiting: got 0"):
        _play((0.0, 4, 1), max_waiting=0)


ASYNC = make_config(async_scheduling=True)


def _tokens_and_ends(events: list[Played]) -> list[tuple[int, float]]:
    """Give the scheduled tokens of every step, and when its result came back."""
    planned = [played.outcome for played in events if isinstance(played.outcome, SchedulerOutput)]
    ends = [played.time for played in events if isinstance(played.event, Update)]
    return [(output.total_num_scheduled_tokens, end) for output, end in zip(planned, ends, strict=True)]


def test_asynchronous_scheduling_plans_a_step_while_the_one_before_runs() -> None:
    """Two are in flight from the first moment on, until nothing is left to plan."""
    assert [
        ("AddRequest", 2.0),
        ("Schedule", 2.0),
        ("Schedule", 2.0),
        ("Update", 6.5),  # 7 tokens
        ("Schedule", 6.5),
        ("Update", 8.0),  # 1 token, the second
        ("Schedule", 8.0),  # nothing: the third is sure to be the last
        ("Update", 9.5),
        ("Schedule", 9.5),
        ("Update", 9.5),
        ("Update", 9.5),
    ] == _kinds(_play((2.0, 7, 3), config=ASYNC))


def test_asynchronous_scheduling_hides_the_planning() -> None:
    """Without it every step is planned first; with it, only the first step waits for that."""
    cost = StepCost(base=1.0, per_token=0.5, engine=1.0)
    plain = _play((0.0, 7, 3), cost=cost)
    overlapped = _play((0.0, 7, 3), config=ASYNC, cost=cost)

    assert [(7, 5.5), (1, 8.0), (1, 10.5), (0, 10.5)] == _tokens_and_ends(plain)
    assert [(7, 5.5), (1, 7.0), (1, 8.5), (0, 8.5), (0, 8.5)] == _tokens_and_ends(overlapped)


def test_planning_that_takes_longer_than_a_step_is_not_hidden() -> None:
    """The engine plans one step at a time."""
    cost = StepCost(base=1.0, per_token=0.0, engine=5.0)
    overlapped = _play((0.0, 7, 4), config=ASYNC, cost=cost)

    assert 4 * 5.0 + 1.0 == overlapped[-1].time


def test_stages_work_on_one_step_each() -> None:
    """Two prompts that need a step each pass the two stages one behind the other."""
    config = make_config(pipeline_parallel_size=2, max_num_batched_tokens=8)
    events = _play((0.0, 8, 1), (0.0, 8, 1), config=config)

    assert [(8, 5.0), (8, 7.5)] == _tokens_and_ends(events)[:2]


def test_a_step_waits_for_the_token_that_it_goes_on_from() -> None:
    """With asynchronous scheduling and stages, it is planned, and even sent, before that is sampled."""
    config = make_config(pipeline_parallel_size=2, async_scheduling=True)
    events = _play((0.0, 7, 3), config=config)
    scheduled_at = [
        played.time
        for played in events
        if isinstance(played.outcome, SchedulerOutput) and played.outcome.total_num_scheduled_tokens
    ]

    assert [0.0, 0.0, 4.5] == scheduled_at
    assert [4.5, 6.0, 7.5] == [end for num_tokens, end in _tokens_and_ends(events) if num_tokens]


def test_empty_steps_fill_the_pipeline_as_in_the_reference() -> None:
    """While its one request is in flight, the engine plans steps that have nothing to do."""
    events = _play((0.0, 7, 2), config=make_config(pipeline_parallel_size=3))

    # Two more are in flight when the request has ended, and one tells the model runner so.
    assert [7, 0, 0, 1, 0, 0, 0] == [num_tokens for num_tokens, _ in _tokens_and_ends(events)]


@pytest.mark.parametrize("num_spec_tokens", [0, 1, 3])
@pytest.mark.parametrize(
    ("use_v2_model_runner", "async_scheduling", "num_stages"),
    [
        (True, False, 1),
        (True, False, 3),
        (True, True, 1),
        (True, True, 3),
        (False, False, 1),
        (False, False, 3),
        (False, True, 1),
    ],
)
def test_the_outputs_are_the_same_whatever_overlaps(
    use_v2_model_runner: bool, async_scheduling: bool, num_stages: int, num_spec_tokens: int
) -> None:
    """Tokens and lengths are the model's, in a pool so small that requests are preempted on the way."""
    requests = [(0.3 * index, 5 + index * 7 % 20, 6 + index * 5 % 13) for index in range(20)]
    config = make_config(
        usable_blocks=16,
        max_num_batched_tokens=24,
        async_scheduling=async_scheduling,
        pipeline_parallel_size=num_stages,
        num_spec_tokens=num_spec_tokens,
        num_lookahead_tokens=num_spec_tokens,
        use_v2_model_runner=use_v2_model_runner,
    )
    events = _play(*requests, config=config)
    plain = outputs_of(_play(*requests, config=make_config(usable_blocks=16, max_num_batched_tokens=24)))

    assert any(
        played.outcome.preempted_request_ids
        for played in events
        if isinstance(played.outcome, SchedulerOutput)
    )
    assert {f"r{line}": length for line, (_, _, length) in enumerate(requests, 1)} == {
        name: len(tokens) for name, tokens in plain.items()
    }
    assert plain == outputs_of(events)
    assert () == events[-1].after.in_flight


def test_drafts_follow_the_result_of_their_step() -> None:
    """The scheduler hears them in an event of their own, at the same time."""
    events = _play((0.0, 7, 9), config=make_config(num_spec_tokens=3), model=StubModel(1.0))

    assert [
        ("AddRequest", 0.0),
        ("Schedule", 0.0),
        ("Update", 4.5),  # 7 tokens: the first of the output
        ("UpdateDrafts", 4.5),
        ("Schedule", 4.5),
        ("Update", 7.5),  # 4 tokens, all accepted
        ("UpdateDrafts", 7.5),
        ("Schedule", 7.5),
        ("Update", 10.5),  # the last 4
        ("Schedule", 10.5),
        ("Update", 10.5),
    ] == _kinds(events)


def test_with_asynchronous_scheduling_no_drafts_are_told() -> None:
    """They stay in the worker, and are as good; one step is planned in vain, in case they were not."""
    config = make_config(async_scheduling=True, num_spec_tokens=3)
    events = _play((0.0, 7, 9), config=config, model=StubModel(1.0))
    finished_at = [played.time for played in events if played.before.requests and not played.after.requests]

    assert {"AddRequest", "Schedule", "Update"} == {name for name, _ in _kinds(events)}
    assert [10.5] == finished_at
    assert [4.5, 7.5, 10.5, 13.5] == [end for num_tokens, end in _tokens_and_ends(events) if num_tokens]


def test_wrong_drafts_cost_time_and_nothing_else() -> None:
    """A step verifies them, and brings the one token that it would have brought without."""
    events = _play((0.0, 7, 3), config=make_config(num_spec_tokens=3), model=StubModel(0.0))

    assert [(7, 4.5), (4, 7.5), (4, 10.5), (0, 10.5)] == _tokens_and_ends(events)


@pytest.mark.parametrize(
    ("changes", "field", "allowed"),
    [
        ({"runner_type": "pooling"}, "runner_type", "'generate': the stub model samples tokens"),
        ({"runner_type": "diffusion"}, "runner_type", "'generate': the stub model samples tokens"),
        ({"pipeline_parallel_size": 65}, "pipeline_parallel_size", "at most 64 in a run"),
        (
            {"pipeline_parallel_size": 2, "async_scheduling": True, "use_v2_model_runner": False},
            "pipeline_parallel_size",
            "1 with async_scheduling, unless use_v2_model_runner is true",
        ),
        ({"num_spec_tokens": 64}, "num_spec_tokens", "less than max_model_len = 64"),
        (
            {"num_spec_tokens": 16, "max_num_batched_tokens": 16},
            "num_spec_tokens",
            "less than max_num_batched_tokens = 16",
        ),
    ],
)
def test_refuses_what_the_stub_engine_cannot_run(changes: dict[str, Any], field: str, allowed: str) -> None:
    """Before anything is played."""
    with pytest.raises(InvalidConfig) as caught:
        _play(config=make_config(**changes))

    assert (field, allowed) == (caught.value.field, caught.value.allowed)
