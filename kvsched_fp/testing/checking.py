"""Testing a scheduler: the state machine for it, its test case, and one call for both."""

from itertools import count
from pathlib import Path
from typing import Any
from unittest import TestCase

from hypothesis import seed
from hypothesis import settings as Settings  # noqa: N812  a class in all but its name
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from kvsched_fp.errors import InvalidConfig
from kvsched_fp.testing.adapter import Adapter
from kvsched_fp.testing.features import features_named
from kvsched_fp.testing.live_judge import MAX_SECONDS, shrink_parting
from kvsched_fp.testing.machine import SchedulerMachine, Tally
from kvsched_fp.testing.parting import HIDE, Parting, SchedulersDiffer
from kvsched_fp.testing.profiles import Profile, choose_profile
from kvsched_fp.testing.reporting import report

DEFAULT_TRACE_DIR = Path(".kvsched-fp")
"""Where the trace of a difference goes."""

__unittest = True  # unittest leaves functions of such a module out of its tracebacks


def scheduler_machine(
    adapter: Adapter,
    *,
    profile: str | Profile = "ci",
    trace_dir: Path | str | None = DEFAULT_TRACE_DIR,
    name: str | None = None,
) -> type[SchedulerMachine]:
    """Make the state machine that tests a scheduler. Its `TestCase`, for pytest and unittest, runs it.

    `profile` is the name of one of `PROFILES`, or one of one's own. The trace of a difference goes into
    `trace_dir`, under `name`, which is that of the adapter if not given; None writes none. Raises
    `InvalidConfig` for another profile, for what is no adapter, and for features that are none.
    """
    if not isinstance(adapter, Adapter):
        made = ", made: a class is none" if isinstance(adapter, type) else ""
        raise InvalidConfig("adapter", adapter, f"an Adapter of kvsched_fp.testing{made}")
    choose_profile(profile)
    features_named(adapter.features)
    name = name or str(getattr(adapter, "name", type(adapter).__name__))
    values: dict[str, Any] = {
        "adapter": adapter,
        "tally": Tally(),
        "partings": [],
        "trace_dir": None if trace_dir is None else Path(trace_dir),
        "__doc__": f"{name}, event by event beside the machine of kvsched_fp.",
    }
    machine = type(name, (SchedulerMachine,), values)

    def run_test(_: TestCase) -> None:
        """Search for a difference."""
        __tracebackhide__ = HIDE
        run_machine(machine, profile)

    case = type(f"Test{name}", (TestCase,), {"runTest": run_test, "__doc__": values["__doc__"]})
    type.__setattr__(machine, "TestCase", case)
    return machine


def check_scheduler(
    adapter: Adapter,
    *,
    profile: str | Profile = "ci",
    trace_dir: Path | str | None = DEFAULT_TRACE_DIR,
    name: str | None = None,
) -> None:
    """Search for a difference, and close the adapter. Raises `SchedulersDiffer` with a small one.

    The arguments are those of `scheduler_machine`.
    """
    __tracebackhide__ = HIDE
    try:
        run_machine(scheduler_machine(adapter, profile=profile, trace_dir=trace_dir, name=name), profile)
    finally:
        if isinstance(adapter, Adapter):  # else `scheduler_machine` has said so
            adapter.close()


def run_machine(
    machine: type[SchedulerMachine], profile: str | Profile = "ci", *, max_seconds: float = MAX_SECONDS
) -> None:
    """Run a state machine for as long as a profile says, batch by batch.

    The first difference is made small by `kvsched_fp.trace.shrink`, which knows what events and
    configurations mean, for at most `max_seconds`. Raises `SchedulersDiffer`, also for a difference that
    does not come again.
    """
    __tracebackhide__ = HIDE
    chosen = choose_profile(profile)
    for number, settings in zip(count(), chosen.batches(), strict=False):
        # A class of its own for the seed, which else would stay on the machine.
        batch = type(machine.__name__, (machine,), {"__doc__": machine.__doc__})
        if chosen.is_repeatable:
            batch = seed(number)(batch)
        machine.partings.clear()
        parting = _search(batch, settings)
        if parting is not None:
            small = shrink_parting(machine.adapter, parting, max_seconds)
            raise report(small, machine.trace_dir, machine.__name__) from None


def _search(batch: type[SchedulerMachine], settings: Settings) -> Parting | None:
    """Run a batch; give the first parting that it found.

    Hypothesis plays a run again in which something was found. If that goes another way, it tells what came
    the second time, or complains of the test.
    """
    try:
        run_state_machine_as_test(batch, settings=settings)
    except (SchedulersDiffer, Flaky, ExceptionGroup) as error:
        if not batch.partings or not _is_of_parting(error):
            raise
    return batch.partings[0] if batch.partings else None


def _is_of_parting(error: Exception) -> bool:
    """Tell whether an error is a parting, or says that a run with one went another way the second time."""
    if isinstance(error, ExceptionGroup) and not isinstance(error, Flaky):
        return error.subgroup(SchedulersDiffer) is not None
    return True
