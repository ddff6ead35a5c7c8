"""What does not come again, and what fails before the first event, is told as any other difference."""

import unittest
from itertools import count
from pathlib import Path

import pytest

from kvsched_fp import MINIMAL, AddRequest, Event, Request, SamplingParams, SchedulerConfig
from kvsched_fp.testing import PureAdapter, SchedulersDiffer, check_scheduler, scheduler_machine
from kvsched_fp.testing.duel import Duel, play
from kvsched_fp.testing.live_judge import shrink_parting
from kvsched_fp.testing.parting import Parting
from kvsched_fp.trace import check_trace, open_trace_reader
from kvsched_fp.trace.codec import Told

ONCE = "it did not happen again when the same was played once more"


def add(name: str) -> AddRequest:
    """Add a request."""
    params = SamplingParams(max_tokens=1)
    return AddRequest(Request(request_id=name, prompt_token_ids=[0], sampling_params=params))


class FailsAtTimes(PureAdapter):
    """A scheduler that fails at some events of all that it is ever given, whatever they are."""

    def __init__(self, *numbers: int) -> None:
        self._numbers, self._count = numbers, count(1)

    def happen(self, event: Event) -> Told:
        """Fail, or do what is right."""
        number = next(self._count)
        if number in self._numbers:
            raise RuntimeError(f"failure {self._numbers.index(number)}")
        return super().happen(event)


class StartsAtTimes(PureAdapter):
    """A scheduler that fails at its third start of all."""

    def __init__(self) -> None:
        self._count = count(1)

    def start(self, config: SchedulerConfig) -> None:
        """Fail, or begin."""
        if next(self._count) == 3:
            raise RuntimeError("once")
        super().start(config)


class NeedsSixBlocks(PureAdapter):
    """A scheduler that does not start with few blocks."""

    def start(self, config: SchedulerConfig) -> None:
        """Fail, or begin."""
        if config.num_blocks < 6:
            raise ValueError("too few blocks")
        super().start(config)


class NeedsOneModel(PureAdapter):
    """A scheduler that starts for models of four tokens alone, and fails at a third request."""

    def start(self, config: SchedulerConfig) -> None:
        """Fail, or begin."""
        if config.max_model_len != 4:
            raise ValueError("another model")
        super().start(config)

    def happen(self, event: Event) -> Told:
        """Fail, or do what is right."""
        if len(self.state.requests) == 2:
            raise ZeroDivisionError("two")
        return super().happen(event)


def find(adapter: PureAdapter, trace_dir: Path | None = None) -> SchedulersDiffer:
    """Find a difference, or fail."""
    with pytest.raises(SchedulersDiffer) as caught:
        check_scheduler(adapter, trace_dir=trace_dir)
    return caught.value


@pytest.mark.parametrize("numbers", [(300,), (301, 340, 341), (333, 370), (2000,)])
def test_a_failure_that_does_not_come_again(numbers: tuple[int, ...], tmp_path: Path) -> None:
    """The first failure is told as it was played, and so is its trace."""
    error = find(FailsAtTimes(*numbers), tmp_path)
    with open_trace_reader(tmp_path / "FailsAtTimes.jsonl") as reader:
        verdict = check_trace(reader)

    assert "there: failed: RuntimeError: failure 0" in error.story
    assert ONCE in error.story
    assert (len(error.parting.played), None) == (verdict.num_events, verdict.divergence)


def test_a_start_that_fails_once() -> None:
    """A start that fails once is told, too."""
    error = find(StartsAtTimes())

    assert "failed to start: RuntimeError: once" in error.story
    assert ONCE in error.story


def test_the_test_case_tells_it() -> None:
    """The test case fails by the story alone."""
    result = unittest.TestResult()
    scheduler_machine(FailsAtTimes(300), trace_dir=None).TestCase().run(result)
    [(_, text)] = result.failures

    assert [] == result.errors
    assert ONCE in text
    assert "Flaky" not in text


def test_what_comes_again_is_not_called_elusive() -> None:
    """From some time on it always fails: a short history does, too."""
    error = find(FailsAtTimes(*range(300, 9000)))

    assert ONCE not in error.story
    assert 1 == len(error.parting.played)


def test_what_is_played_once_more_is_elusive() -> None:
    """A parting that does not part again comes back as it is, marked."""
    parting = play(FailsAtTimes(1), MINIMAL, [add("a")])
    assert parting is not None

    assert not parting.is_elusive
    assert shrink_parting(PureAdapter(), parting).is_elusive
    assert parting.played == shrink_parting(PureAdapter(), parting).played


def test_a_start_that_fails(tmp_path: Path) -> None:
    """It is told with a small configuration and no events, and the trace has the configuration."""
    error = find(NeedsSixBlocks(), tmp_path)
    first, _, configuration, *_ = error.story.splitlines()
    with open_trace_reader(tmp_path / "NeedsSixBlocks.jsonl") as reader:
        verdict = check_trace(reader)

    assert "the scheduler under test failed to start: ValueError: too few blocks" == first
    assert "configuration: max_model_len=1, num_blocks=2" == configuration
    assert "failed to start: ValueError: too few blocks" == error.parting.where
    assert error.parting.divergence is None
    assert 0 == verdict.num_events


class DoesNotStop(PureAdapter):
    """A scheduler that cannot be stopped with two requests."""

    def stop(self) -> None:
        """Fail, or do nothing."""
        if len(self.state.requests) == 2:
            raise ValueError("busy")


def test_a_stop_that_fails() -> None:
    """It is told with a small history, at whose end the scheduler was stopped."""
    error = find(DoesNotStop())

    assert "raised ValueError: busy (when it was stopped)" == error.parting.where
    assert 2 == len(error.parting.played)


def test_another_fault_is_not_made_a_failing_start() -> None:
    """A history stays one while it is made small, though no smaller configuration starts."""
    config = SchedulerConfig(
        max_model_len=4, max_num_seqs=2, max_num_batched_tokens=4, num_blocks=9, block_size=4
    )
    parting = play(NeedsOneModel(), config, [add("a"), add("b"), add("c")])
    assert parting is not None
    small = shrink_parting(NeedsOneModel(), parting)

    assert "raised ZeroDivisionError: two" == small.where
    assert 4 == small.config.max_model_len


def test_a_duel_that_starts() -> None:
    """Nothing is told of a start that succeeds."""
    parting: Parting | None = Duel(PureAdapter(), MINIMAL).start()

    assert parting is None
