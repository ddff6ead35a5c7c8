"""The invariants of a run."""

import pickle
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarReady,
    InvariantViolation,
    PauseState,
    Schedule,
    SchedulerConfig,
    SchedulerState,
    SchedulingPolicy,
    SetPauseState,
    initial_state,
)
from kvsched_fp.grammar import PermissiveGrammar
from kvsched_fp.invariants import (
    CATALOGUE,
    RunChecker,
    RunInvariant,
    check_observed_full,
)
from kvsched_fp.invariants.evidence import Stumble
from kvsched_fp.machine import step as apply_event
from kvsched_fp.request import LoRA
from tests.unit.walks import CONFIGS, KINDS, Walk, walk
from tests.unit.worlds import make_config, make_request, make_state

from .broken_runs import BROKEN_RUNS
from .good import answer, busy_state, run
from .good_features import ahead_state, apply, constrained_state, failing_state, more_input, parked_state

RUN_INVARIANTS = {entry.invariant_id: entry for entry in CATALOGUE if isinstance(entry, RunInvariant)}
WALKS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1000)), max_size=60).map(
    lambda numbers: [("schedule", 1), *numbers]  # one event that always makes sense: no walk is empty
)


@given(st.sampled_from(CONFIGS), WALKS, st.integers(0, 60))
def test_a_run_may_begin_anywhere(config: SchedulerConfig, numbers: Walk, num_skipped: int) -> None:
    """A sound run keeps every invariant, from wherever on it is followed."""
    steps = list(walk(config, numbers))
    start = num_skipped % len(steps)
    checker = RunChecker(steps[start][0])
    for before, event, after, outcome in steps[start:]:
        expected = sum(type(event) in entry.events for entry in RUN_INVARIANTS.values())

        assert expected == checker.check(before, event, after, outcome)


@pytest.mark.parametrize(
    "state",
    [busy_state(), ahead_state(), parked_state(), constrained_state(), failing_state()],
    ids=["busy", "ahead", "parked", "constrained", "failing"],
)
def test_what_a_state_holds_is_taken_as_given(state: SchedulerState) -> None:
    """A run may begin with steps in flight, sessions that wait, and grammars that are there or not."""
    checker = RunChecker(state)
    events: list[Event] = [answer(state), Schedule()]
    if state.num_waiting_for_input:
        events = [more_input(), *events]
    for event in events:
        seen = run(state, event)
        checker.check(seen.before, seen.event, seen.after, seen.outcome)
        state = seen.after


@pytest.mark.parametrize("invariant_id", RUN_INVARIANTS)
def test_a_broken_run_is_reported(invariant_id: str) -> None:
    """A run that breaks an invariant is reported, with evidence, though each step of it is sound."""
    *sound, last = BROKEN_RUNS[invariant_id]()
    checker = RunChecker(last.before if not sound else sound[0].before)

    assert [{}] * len(sound) == [checker.find_broken(step) for step in sound]
    assert all(check_observed_full(step) for step in (*sound, last))

    evidence = checker.find_broken(last)[invariant_id]

    assert evidence
    assert not isinstance(evidence, Stumble)


def test_the_first_of_the_catalogue_is_told() -> None:
    """Of several invariants that a step breaks, `check` tells the first."""
    first, again = BROKEN_RUNS["INV-LIFE-01"]()
    checker = RunChecker(first.before)
    checker.check_observed(first)

    with pytest.raises(InvariantViolation, match=r"^INV-LIFE-01: .* is told of a request that is not live"):
        checker.check_observed(again)


def test_a_step_that_makes_a_predicate_stumble_is_reported() -> None:
    """A step so broken that a predicate cannot go on is a violation too, not a crash."""
    sound = run(busy_state(), answer(busy_state()))
    broken = attrs.evolve(sound.after, progress=sound.after.progress.delete("a"))  # type: ignore[arg-type]
    checker = RunChecker(sound.before)

    with pytest.raises(InvariantViolation, match="INV-DELIVER-01: cannot be checked: KeyError"):
        checker.check(sound.before, sound.event, broken, sound.outcome)


def test_what_is_remembered_does_not_grow_with_the_run() -> None:
    """Behind a request that waits long, a hundred are added and ended; of those, nothing stays."""
    state = apply(make_state(make_config(), make_request("a")), SetPauseState(PauseState.PAUSED_ALL))
    memories = [(entry, entry.start(state)) for entry in RUN_INVARIANTS.values()]
    size = len(pickle.dumps([memory for _, memory in memories]))
    for number in range(100):
        late = make_request(f"l{number}")
        for event in (AddRequest(late), FinishRequests((late.request_id,)), Schedule(), None):
            seen = run(state, answer(state) if event is None else event)
            state = seen.after
            for entry, memory in memories:
                if type(seen.event) in entry.events:
                    assert None is entry.predicate(memory, seen)

    assert len(pickle.dumps([memory for _, memory in memories])) < 2 * size


def test_an_id_that_is_used_again_has_a_turn_of_its_own() -> None:
    """The second request of that id waits for its grammar, as the first does no more; others pass it by."""
    config = make_config(policy=SchedulingPolicy.PRIORITY)
    first, other = make_request("a", needs_grammar=True), make_request("b", priority=1)
    events: list[Event] = [
        AddRequest(first),
        GrammarReady(first.request_id, PermissiveGrammar()),
        AddRequest(other),
        FinishRequests([first.request_id]),
        AddRequest(first),
        Schedule(),
    ]

    assert ("b",) == _checked(config, events).running


def test_an_id_that_is_used_again_is_in_the_line_of_its_own_adapter() -> None:
    """The second request of that id needs an adapter for which there is no room; others pass it by."""
    config = make_config(policy=SchedulingPolicy.PRIORITY, max_loras=1)
    one, two = LoRA("one", 1), LoRA("two", 2)
    first, again = make_request("a", lora=one), make_request("a", lora=two)
    events: list[Event] = [
        AddRequest(make_request("c", priority=-1, lora=one)),
        AddRequest(make_request("d", priority=-1, lora=one)),
        Schedule(),
        AddRequest(first),
        FinishRequests([first.request_id]),
        AddRequest(again),
        AddRequest(make_request("b", priority=1, lora=one)),
        Schedule(),
    ]

    assert ("c", "d", "b") == _checked(config, events).running


def _checked(config: SchedulerConfig, events: Sequence[Event]) -> SchedulerState:
    """Send events and check each; give the state behind them."""
    after, checker = initial_state(config), RunChecker(initial_state(config))
    for event in events:
        before = after
        after, outcome = apply_event(before, event)
        checker.check(before, event, after, outcome)
    return after


def test_two_runs_have_nothing_in_common() -> None:
    """What one checker remembers is its own."""
    seen = run(busy_state(), answer(busy_state()))
    for _ in range(2):
        RunChecker(seen.before).check(seen.before, seen.event, seen.after, seen.outcome)
