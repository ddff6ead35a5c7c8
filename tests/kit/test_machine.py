"""The machine finds nothing where there is nothing, and what there is where there is something."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from kvsched_fp import (
    MINIMAL,
    AddRequest,
    Emitted,
    Event,
    GrammarReady,
    InvalidConfig,
    Request,
    SamplingParams,
    SchedulerOutput,
    SetPauseState,
)
from kvsched_fp.testing import (
    EVERYTHING,
    PROFILES,
    Adapter,
    Feature,
    Profile,
    PureAdapter,
    SchedulersDiffer,
    check_scheduler,
    scheduler_machine,
)
from kvsched_fp.testing.duel import Duel
from kvsched_fp.testing.machine import MAX_IDLE
from kvsched_fp.testing.strategies import Outside, Play, World
from kvsched_fp.testing.strategies.kinds import Kind
from kvsched_fp.testing.strategies.outside import GRAMMARS
from kvsched_fp.testing.strategies.themes import Besides
from kvsched_fp.trace import check_trace, open_trace_reader
from kvsched_fp.trace.codec import Told
from tests.kit.schedulers import CalledAdapter, Crashing, LooksWrong

SHORT = Profile(num_runs=36, num_rules=15, is_repeatable=False)
"""Enough to see that nothing is found."""


def find(adapter: Adapter, trace_dir: Path | None = None) -> SchedulersDiffer:
    """Find a difference, or fail."""
    with pytest.raises(SchedulersDiffer) as caught:
        check_scheduler(adapter, profile="ci", trace_dir=trace_dir)
    return caught.value


@pytest.mark.parametrize("adapter", [PureAdapter(), CalledAdapter()])
def test_nothing_is_found_in_the_machine_itself(adapter: Adapter) -> None:
    """The pure functions do what the machine does, as values and as JSON."""
    check_scheduler(adapter, profile=SHORT)


SITUATIONS = (
    "preempted",
    "resumed",
    "result: stale",
    "result: of a request that is gone",
    "pool: full",
    "admitted: prefix hit",
    "drafts: verified",
    "drafts: replaced in flight",
    "session: next input",
    "grammar: cannot be compiled",
    "ended: repetition",
    "reset: running requests preempted",
    "paused: paused_new",
)
"""What the runs of the profile `ci` reach for certain."""


def test_the_runs_reach_what_is_rare() -> None:
    """Not all runs of `ci` are needed to reach preemption, stale results, a full pool, and so on."""
    machine = scheduler_machine(PureAdapter())
    for number, options in enumerate(PROFILES["ci"].batches()):
        if all(machine.tally.situations[situation] for situation in SITUATIONS):
            break
        run_state_machine_as_test(seed(number)(type("Batch", (machine,), {})), settings=options)

    assert [] == [name for name in SITUATIONS if not machine.tally.situations[name]]
    assert machine.tally.num_events > machine.tally.num_runs > 0


@pytest.mark.parametrize(("throttle", "num_steps"), [(False, MAX_IDLE), (True, 8)])
def test_a_play_ends_where_nobody_gets_on(
    monkeypatch: pytest.MonkeyPatch, throttle: bool, num_steps: int
) -> None:
    """Nobody waits in vain for a request that waits for its grammar; any event makes plays go on."""
    monkeypatch.setattr("kvsched_fp.testing.machine.note", lambda _: None)  # Hypothesis is not there
    machine = scheduler_machine(PureAdapter(), trace_dir=None)()
    world = World(
        kind=Kind.ANYTHING,
        config=MINIMAL,
        longest_prompt=4,
        besides=Besides(config={}, grammars=True, sessions=False),
    )
    machine._outside, machine._duel = Outside(world), Duel(machine.adapter, MINIMAL)
    machine._duel.start()
    params = SamplingParams(max_tokens=1)
    waits = Request(request_id="a", prompt_token_ids=[0], sampling_params=params, needs_grammar=True)
    play = Play(moves="SR" * 8, throttle=throttle, say=[(0,)], drafts=[], obeys=True, knows=False)
    machine._apply(AddRequest(waits))
    machine._play(play)
    first = machine._duel.state.current_step
    machine._play(play)
    second = machine._duel.state.current_step
    machine._apply(GrammarReady("a", GRAMMARS[0]))
    machine._play(play)

    assert (num_steps, num_steps * (1 + throttle)) == (first, second)
    assert second + 1 == machine._duel.state.current_step
    assert not machine._duel.state.requests


def test_a_wrong_step_is_found(tmp_path: Path) -> None:
    """A batch with one token too many is found, made small, and told as a trace."""

    class GivesMore(CalledAdapter):
        """A scheduler that gives the third request one token more."""

        def change(self, output: SchedulerOutput) -> SchedulerOutput:
            """Add one token."""
            batch = dict(output.num_scheduled_tokens)
            if len(batch) < 3:
                return output
            batch[list(batch)[2]] += 1
            return attrs.evolve(output, num_scheduled_tokens=type(output.num_scheduled_tokens)(batch))

    error = find(GivesMore(), tmp_path)
    with open_trace_reader(tmp_path / "GivesMore.jsonl") as reader:
        divergence = check_trace(reader).divergence

    assert divergence.difference.path.startswith('output.num_scheduled_tokens["r')
    assert 4 == len(error.parting.played)
    assert error.parting.divergence.difference == divergence.difference
    assert "gets 1 in new blocks [[3]] [S-WAIT-05]" in error.story
    assert "       there: step 1: 'r" in error.story
    assert f"kvsched-fp check {tmp_path}/GivesMore.jsonl" in error.story


def test_a_wrong_word_to_a_client_is_found() -> None:
    """An end that is not told is found at the first request that ends."""

    class NeverEnds(CalledAdapter):
        """A scheduler that tells nobody the end."""

        def tell(self, emitted: Emitted) -> Emitted:
            """Take the reasons away."""
            clients = {
                client: attrs.evolve(
                    told, outputs=tuple(attrs.evolve(one, finish_reason=None) for one in told.outputs)
                )
                for client, told in emitted.clients.items()
            }
            return attrs.evolve(emitted, clients=type(emitted.clients)(clients))

    error = find(NeverEnds())

    assert "emitted.clients[0].outputs[0].finish_reason" == error.parting.where
    assert 3 == len(error.parting.played)


def test_whatever_is_raised_is_a_difference(tmp_path: Path) -> None:
    """A scheduler that raises is told apart, and the trace has what should have come."""
    error = find(Crashing(), tmp_path)
    with open_trace_reader(tmp_path / "Crashing.jsonl") as reader:
        verdict = check_trace(reader)

    assert "raised ZeroDivisionError: three" == error.parting.where
    assert "there: failed: ZeroDivisionError: three" in error.story
    assert "schedulers.py:" in error.story.partition("raised at ")[2]
    assert (4, None) == (verdict.num_events, verdict.divergence)


def test_a_view_is_compared() -> None:
    """What is seen of the state is compared, and the story says that the trace does not have it."""
    error = find(LooksWrong(), None)

    assert error.parting.is_in_view
    assert "view.running[0]" == error.parting.where


def test_a_view_names_what_there_is() -> None:
    """A view under another name is an error that says which there are."""

    class Strange(PureAdapter):
        """A scheduler that shows something of its own."""

        def view(self) -> dict[str, object]:
            """Show it."""
            return {"mood": "good"}

    with pytest.raises(Exception, match="view: got 'mood'; allowed: any of running, waiting"):
        check_scheduler(Strange(), profile="quick", trace_dir=None)


def test_it_is_a_state_machine_of_hypothesis() -> None:
    """The class can be run by Hypothesis alone."""
    machine = scheduler_machine(Crashing(), trace_dir=None)
    quick = settings(PROFILES["quick"].to_settings(), phases=[Phase.generate])

    assert issubclass(machine, RuleBasedStateMachine)
    with pytest.raises(SchedulersDiffer, match="failed: ZeroDivisionError"):
        run_state_machine_as_test(machine, settings=quick)


def test_the_same_runs_come_again() -> None:
    """The profile `ci` plays the same runs every time."""
    stories = {find(Crashing()).story for _ in range(2)}

    assert 1 == len(stories)


def test_a_profile_that_is_none() -> None:
    """Another name is refused at once."""
    with pytest.raises(InvalidConfig, match="profile: got 'slow'; allowed: 'quick' or 'ci' or 'deep'"):
        scheduler_machine(PureAdapter(), profile="slow")


def test_features_are_what_is_asked_for() -> None:
    """A scheduler without any feature is never asked for one."""
    asked = []

    class Plain(PureAdapter):
        """A scheduler with no features, which listens."""

        features = frozenset()

        def happen(self, event: object) -> object:
            """Remember the kind of event."""
            asked.append(type(event).__name__)
            return super().happen(event)

    check_scheduler(Plain(), profile=attrs.evolve(SHORT, is_repeatable=True))

    assert EVERYTHING
    assert {"AddRequest", "FinishRequests", "Schedule", "Update"} == set(asked)


@pytest.mark.parametrize("features", [{"pause"}, ["pause"], [Feature.PAUSE], ("pause", Feature.PAUSE)])
def test_features_by_name_are_asked_for(features: Any) -> None:
    """A scheduler that names its features, in whatever order and form, is tested for them."""

    class NeverPauses(PureAdapter):
        """A scheduler that cannot do what it says."""

        def happen(self, event: Event) -> Told:
            """Refuse to pause."""
            if isinstance(event, SetPauseState):
                raise RuntimeError("never")
            return super().happen(event)

    adapter = NeverPauses()
    adapter.features = features

    assert "raised RuntimeError: never" == find(adapter).parting.where


def test_features_that_are_none() -> None:
    """A name that is no feature is refused before anything runs."""
    adapter = PureAdapter()
    adapter.features = ["pauze"]

    with pytest.raises(InvalidConfig, match="features: got 'pauze'; allowed: any of priority, "):
        scheduler_machine(adapter)
    with pytest.raises(InvalidConfig, match="features: got 'pauze'"):
        check_scheduler(adapter)


@pytest.mark.parametrize(("what", "allowed"), [(Crashing, "made: a class is none"), (5, "an Adapter of")])
@pytest.mark.parametrize("call", [scheduler_machine, check_scheduler])
def test_what_is_no_adapter(what: Any, allowed: str, call: Callable[[Any], object]) -> None:
    """It is refused before anything is asked of it."""
    with pytest.raises(InvalidConfig, match=f"adapter: got .*; allowed: .*{allowed}"):
        call(what)
