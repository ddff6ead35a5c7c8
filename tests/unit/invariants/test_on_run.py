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
from kvsched_fp.errors import InvalidInputError
from kvsched_fp.grammar import PermissiveGrammar
from kvsched_fp.invariants import (
    CATALOGUE,
    RunChecker,
    RunInvariant,
    Step,
    check_observed_full,
)
from kvsched_fp.invariants.evidence import Stumble, find_evidence
from kvsched_fp.machine import step as apply_event
from kvsched_fp.request import LoRA
from tests.unit.refusal import refused
from tests.unit.walks import CONFIGS, KINDS, Walk, walk
from tests.unit.worlds import make_config, make_request, make_state

from .broken_runs import BROKEN_RUNS
from .good import A, answer, busy_state, ready_state, run
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
    steps = BROKEN_RUNS[invariant_id]()
    *sound, last = _follow(steps)

    assert [{}] * len(sound) == sound
    assert all(check_observed_full(step) for step in steps)
    assert last[invariant_id]
    assert not isinstance(last[invariant_id], Stumble)


def _follow(steps: Sequence[Step]) -> list[dict[str, str]]:
    """Give what the run invariants have against each step; a state may be altered from one to the next."""
    memories = [(entry, entry.start(steps[0].before)) for entry in RUN_INVARIANTS.values()]
    found = []
    for step in steps:
        evidence = {
            entry.invariant_id: find_evidence(entry.predicate, memory, step)
            for entry, memory in memories
            if type(step.event) in entry.events
        }
        found.append({name: told for name, told in evidence.items() if told is not None})
    return found


def test_the_first_of_the_catalogue_is_told() -> None:
    """Of several invariants that a step breaks, `find_broken` gives all and `check` tells the first."""
    ends = run(ready_state(), FinishRequests((A,)))
    again = attrs.evolve(ends, before=ends.after)
    broken = list(_checker_behind(ends).find_broken(again))

    assert "INV-LIFE-01" == broken[0]
    assert broken == [invariant_id for invariant_id in RUN_INVARIANTS if invariant_id in broken]
    assert len(broken) > 1
    with pytest.raises(InvariantViolation, match=r"^INV-LIFE-01: request a is ended .* was not live$"):
        _checker_behind(ends).check_observed(again)


@pytest.mark.parametrize("num_before", [0, 1, 2])
def test_a_gap_is_refused(num_before: int) -> None:
    """A step that does not begin where the one before ended is named, with what differs."""
    steps = _in_a_row(busy_state(), num_before + 2)
    checker = RunChecker(steps[0].before)
    for step in steps[:num_before]:
        checker.check_observed(step)
    skipped, late = steps[num_before:]
    known = f"the state that step {num_before} made" if num_before else "the state that the run begins in"
    allowed = f"{known}; these differ: "

    with refused(InvalidInputError, f"before of step {num_before + 1}", late.before, allowed):
        checker.check_observed(late)
    assert [{}, {}] == [checker.find_broken(step) for step in (skipped, late)]


def test_what_differs_at_a_gap_is_told() -> None:
    """Of the parts of the state, those are named that are not what they were."""
    pauses = run(busy_state(), SetPauseState(PauseState.PAUSED_ALL))
    counted = attrs.evolve(pauses.after, num_added=17)

    with pytest.raises(InvalidInputError, match=r"made; these differ: pause_state, num_added$"):
        _checker_behind(run(busy_state(), SetPauseState(PauseState.UNPAUSED))).check_observed(
            run(counted, Schedule())
        )


def _checker_behind(step: Step) -> RunChecker:
    checker = RunChecker(step.before)
    checker.check_observed(step)
    return checker


def test_a_step_told_twice_is_refused() -> None:
    """The second time, it begins in a state that is gone."""
    seen = run(busy_state(), answer(busy_state()))

    with pytest.raises(InvalidInputError, match=r"^before of step 2: got SchedulerState"):
        _checker_behind(seen).check_observed(seen)


def test_an_equal_state_is_no_gap() -> None:
    """Who keeps states elsewhere may hand in one that is equal and not the same."""
    checker = RunChecker(busy_state())
    for step in _in_a_row(busy_state(), 3):
        before = pickle.loads(pickle.dumps(step.before))

        assert before is not step.before
        assert checker.check(before, step.event, step.after, step.outcome) > 0


def _in_a_row(state: SchedulerState, number: int) -> list[Step]:
    """Make the steps of so many results and plans."""
    steps: list[Step] = []
    for index in range(number):
        steps.append(run(state, Schedule() if index % 2 else answer(state)))
        state = steps[-1].after
    return steps


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
