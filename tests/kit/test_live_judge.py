"""Smaller histories are still what an engine would bring, and keep to the features of the scheduler."""

import attrs
import pytest

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    Request,
    SamplingParams,
    Schedule,
    SchedulerConfig,
    StepResult,
    Update,
    initial_state,
    step,
)
from kvsched_fp.testing import Feature, PureAdapter
from kvsched_fp.testing.duel import play
from kvsched_fp.testing.live_judge import EngineFit, make_judges, shrink_parting
from kvsched_fp.trace.shrink import repair
from tests.kit.schedulers import Crashing

CONFIG = SchedulerConfig(
    max_model_len=16,
    max_num_seqs=4,
    max_num_batched_tokens=4,
    num_blocks=9,
    block_size=4,
    enable_prefix_caching=False,
)


def add(name: str, num_tokens: int = 2) -> AddRequest:
    """Add a request."""
    params = SamplingParams(max_tokens=4)
    return AddRequest(Request(request_id=name, prompt_token_ids=range(num_tokens), sampling_params=params))


def answer(step_id: int, **sampled: list[int]) -> Update:
    """Let a step come back."""
    return Update(StepResult(step_id=step_id, sampled_token_ids=sampled))


def fitted(events: list[Event], *allowed: Feature) -> list[Event]:
    """Repair a history for a scheduler with these features."""
    repaired = repair(CONFIG, events, EngineFit(frozenset(allowed)))
    assert repaired is not None
    return list(repaired)


def test_a_row_that_samples_brings_a_token() -> None:
    """A missing token is filled in."""
    events = fitted([add("a"), Schedule(), answer(1)])

    assert answer(1, a=[0]) == events[-1]


def test_a_row_that_does_not_sample_brings_none() -> None:
    """A prompt that is not finished brings no token."""
    events = fitted([add("a", 6), Schedule(), answer(1, a=[7])])

    assert answer(1) == events[-1]


@pytest.mark.parametrize(("allowed", "tokens"), [((), [7]), ((Feature.BURSTS,), [7, 8])])
def test_several_tokens_only_with_the_feature(allowed: tuple[Feature, ...], tokens: list[int]) -> None:
    """Tokens that no engine brings are cut off."""
    events = fitted([add("a"), Schedule(), answer(1, a=[7, 8])], *allowed)

    assert answer(1, a=tokens) == events[-1]


@pytest.mark.parametrize(("allowed", "num_left"), [((), 2), ((Feature.STEPS_IN_FLIGHT,), 3)])
def test_several_steps_in_flight_only_with_the_feature(allowed: tuple[Feature, ...], num_left: int) -> None:
    """A step too many is left out."""
    assert num_left == len(fitted([add("a"), Schedule(), Schedule()], *allowed))


@pytest.mark.parametrize(("allowed", "num_left"), [((), 4), ((Feature.REUSED_IDS,), 5)])
def test_an_id_is_used_again_only_with_the_feature(allowed: tuple[Feature, ...], num_left: int) -> None:
    """A request with an id that was used before is left out."""
    events = [add("a"), FinishRequests(["a"]), Schedule(), answer(1), add("a")]

    assert num_left == len(fitted(events, *allowed))


@pytest.mark.parametrize(("num_answers", "arrival_time"), [(0, 9.0), (1, 0.0)])
def test_an_arrival_time_changes_in_no_queue(num_answers: int, arrival_time: float) -> None:
    """By priority, a session that waits for its input keeps its time, as it does where events are drawn."""
    params = SamplingParams(max_tokens=1)
    session = Request(request_id="a", prompt_token_ids=[1], sampling_params=params, resumable=True)
    more = AddRequest(attrs.evolve(session, arrival_time=9.0))
    events = [AddRequest(session), Schedule(), *[answer(1, a=[7])] * num_answers, more]
    repaired = repair(attrs.evolve(CONFIG, policy="priority"), events, EngineFit(frozenset(Feature)))

    assert arrival_time == repaired[-1].request.arrival_time


def test_a_request_that_is_gone_may_come_back_in_a_result() -> None:
    """A result that is late keeps the row of a request that was ended."""
    events = fitted([add("a"), Schedule(), FinishRequests(["a"]), answer(1, a=[7])])

    assert answer(1, a=[7]) == events[-1]


def test_the_judge_keeps_to_the_features() -> None:
    """A history that needs what the scheduler does not support is not judged to differ."""
    adapter = Crashing()
    events = [add("a"), add("b"), add("c"), Schedule()]
    adapter.features = frozenset({Feature.STATISTICS, Feature.RESERVE})

    assert 4 == make_judges(adapter)(CONFIG)(events)
    assert make_judges(adapter)(attrs.evolve(CONFIG, policy="priority"))(events) is None
    assert make_judges(adapter)(CONFIG)([*events[:3], Schedule(throttle_prefills=True)]) is None


def test_the_judge_stops_in_time() -> None:
    """Behind the deadline nothing differs any more, so that shrinking comes to its end."""
    events = [add("a"), add("b"), add("c"), Schedule()]

    assert make_judges(Crashing(), deadline=0.0)(CONFIG)(events) is None


def test_a_parting_is_made_small() -> None:
    """What does not matter goes: other requests, steps, tokens and figures."""
    events = [add("a", 3), add("b", 4), Schedule(), answer(1, a=[7]), add("c"), add("d"), Schedule()]
    events[5:5] = [FinishRequests(["a"])]
    parting = play(Crashing(), CONFIG, events)
    small = shrink_parting(Crashing(), parting)

    assert 8 == len(parting.played)
    assert 4 == len(small.played)
    assert 3 == sum(len(event.request.prompt_token_ids) for event in small.events[:3])


def test_what_does_not_part_again_stays() -> None:
    """A difference that does not come again is given back as it was, and marked."""
    parting = play(Crashing(), CONFIG, [add("a"), add("b"), add("c"), Schedule()])

    assert attrs.evolve(parting, is_elusive=True) == shrink_parting(PureAdapter(), parting)


def test_both_sides_are_asked_in_step() -> None:
    """A history without a difference parts nowhere, and leaves the states equal."""
    adapter = PureAdapter()
    events = [add("a"), Schedule(), answer(1, a=[7])]
    state = initial_state(CONFIG)
    for event in events:
        state, _ = step(state, event)

    assert play(adapter, CONFIG, events) is None
    assert state == adapter.state
