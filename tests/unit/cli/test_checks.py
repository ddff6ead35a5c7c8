"""When the invariants are checked."""

from collections.abc import Callable
from typing import Any

import pytest

from kvsched_fp import InvariantViolation, Schedule, SchedulerState
from kvsched_fp.cli import checks
from kvsched_fp.cli.checks import Checker, CheckMode
from kvsched_fp.workloads.play import Played, play
from tests.unit.workloads.helpers import make_workload
from tests.unit.worlds import make_config


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note which checks are called, instead of checking."""
    names: list[str] = []
    for name in ("check_observed_cheap", "check_observed_full", "check_full"):

        def note(*_: Any, name: str = name) -> int:
            names.append(name)
            return 1

        monkeypatch.setattr(checks, name, note)

    def note_run(*_: Any) -> int:
        names.append("run")
        return 1

    monkeypatch.setattr(checks.RunChecker, "check_observed", note_run)
    return names


def _events() -> list[Played]:
    return list(play(make_config(), make_workload((0.0, 7, 3))))


def _run(mode: CheckMode, interval: int) -> Checker:
    checker = Checker(mode, interval)
    for played in _events():
        checker.check(played)
    checker.finish()
    return checker


def test_every_checks_everything_after_every_event(calls: list[str]) -> None:
    """The interval does not matter."""
    checker = _run(CheckMode.EVERY, 100)

    assert ["check_full", "check_observed_full", "run"] * len(_events()) == calls
    assert len(calls) == checker.num_checked


def test_sampled_checks_the_state_at_every_nth_event_and_at_the_end(calls: list[str]) -> None:
    """Nine events, an interval of four: after the fourth, the eighth and the last."""
    checker = _run(CheckMode.SAMPLED, 4)
    cheap = ["check_observed_cheap", "run"]

    assert 9 == len(_events())
    assert [*cheap * 3, "check_full", *cheap * 4, "check_full", *cheap * 2, "check_full"] == calls
    assert 21 == checker.num_checked


def test_of_several_violations_the_first_of_the_catalogue_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The invariants of a state come before those of a step, which lean on them, and the run comes last."""

    def fail(invariant_id: str) -> Callable[..., int]:
        def check(*_: Any) -> int:
            raise InvariantViolation(invariant_id, "it broke")

        return check

    later = [("check_observed_full", "INV-STEP-01"), ("check_observed_cheap", "INV-STEP-01")]
    for told, broken in (
        ("INV-LIFE-01", []),
        ("INV-STEP-01", later),
        ("INV-QUEUE-01", [*later, ("check_full", "INV-QUEUE-01")]),
    ):
        monkeypatch.setattr(checks.RunChecker, "check_observed", fail("INV-LIFE-01"))
        for name, invariant_id in broken:
            monkeypatch.setattr(checks, name, fail(invariant_id))
        for mode in (CheckMode.EVERY, CheckMode.SAMPLED):
            with pytest.raises(InvariantViolation, match=rf"^{told}: it broke"):
                _run(mode, 1)


def test_the_last_state_is_not_checked_twice(calls: list[str]) -> None:
    """The end that falls on the interval is checked already."""
    _run(CheckMode.SAMPLED, 3)

    assert 3 == calls.count("check_full")


def test_off_checks_nothing(calls: list[str]) -> None:
    """Nothing is called, at the end neither."""
    assert 0 == _run(CheckMode.OFF, 1).num_checked
    assert [] == calls


def test_the_real_checks_count_what_they_check() -> None:
    """A run of the machine obeys the catalogue."""
    assert _run(CheckMode.EVERY, 1).num_checked > _run(CheckMode.SAMPLED, 4).num_checked > 0


def test_a_violation_says_at_which_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of the event, its kind, the step and the time are in the evidence."""

    def fail(state: SchedulerState) -> int:
        if state.current_step == 2:
            raise InvariantViolation("INV-1", "it broke")
        return 1

    monkeypatch.setattr(checks, "check_full", fail)
    with pytest.raises(InvariantViolation) as caught:
        _run(CheckMode.EVERY, 1)

    assert "INV-1" == caught.value.invariant_id
    assert "it broke (event 4, Schedule, step 2, 0.050 simulated seconds)" == caught.value.evidence


def test_a_violation_at_the_end_says_where_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last event is the one that is named."""

    def fail(_state: SchedulerState) -> int:
        raise InvariantViolation("INV-1", "it broke")

    monkeypatch.setattr(checks, "check_full", fail)
    checker = Checker(CheckMode.SAMPLED, 100)
    checker.check(next(played for played in _events() if played.event == Schedule()))
    with pytest.raises(InvariantViolation, match=r"it broke \(event 1, Schedule, step 1"):
        checker.finish()
