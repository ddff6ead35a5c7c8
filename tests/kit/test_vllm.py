"""The kit finds faults in forks of the real scheduler, with the three lines of the README."""

import threading
import time
from pathlib import Path

import pytest

from kvsched_fp import MINIMAL, InvalidConfig
from kvsched_fp.testing import Feature, SchedulersDiffer, check_scheduler, scheduler_machine
from kvsched_fp.testing.checking import run_machine
from kvsched_fp.trace import check_trace, open_trace_reader

pytestmark = pytest.mark.usefixtures("_reference")

MAX_SECONDS = 60.0
"""How long a fault may take to be found and made small, in processor time."""
MAX_EVENTS = 12
"""Events that may be left."""
FORKS = (
    "PreemptedToTheBack",
    "KeepsBlocksOfAborted",
    "OneTokenTooMany",
    "AdmitsWhilePaused",
    "ForgetsResumedTokens",
    "SharesAcrossSalts",
    "KeepsDraftsOfChunks",
    "StagesTooSoon",
    "EndsOneWithoutGrammar",
)


def test_the_list_is_complete() -> None:
    """Each fork of `forks.py` is tried."""
    from tests.kit import forks

    assert tuple(fork.__name__ for fork in forks.FORKS) == FORKS


@pytest.mark.parametrize("name", FORKS)
def test_a_fault_in_a_fork_is_found(name: str, tmp_path: Path) -> None:
    """Within a minute the fault is found and made small, and the trace shows the same difference."""
    from kvsched_fp.adapters.vllm.driving import VllmAdapter
    from tests.kit import forks

    machine = scheduler_machine(VllmAdapter(getattr(forks, name)), trace_dir=tmp_path)
    started = time.process_time()
    with pytest.raises(SchedulersDiffer) as caught:
        run_machine(machine, max_seconds=10 * MAX_SECONDS)  # where other work is done, too
    seconds = time.process_time() - started
    parting = caught.value.parting
    with open_trace_reader(tmp_path / f"{name}.jsonl") as reader:
        divergence = check_trace(reader).divergence

    assert seconds < MAX_SECONDS
    assert len(parting.played) <= MAX_EVENTS
    assert (divergence is None) == (parting.failure is not None)
    assert divergence is None or divergence.difference == parting.divergence.difference


def test_three_lines_are_a_test_case() -> None:
    """The test case of the machine fails by the story."""
    from kvsched_fp.adapters.vllm.driving import VllmAdapter
    from tests.kit.forks import AdmitsWhilePaused

    case = scheduler_machine(VllmAdapter(AdmitsWhilePaused)).TestCase()
    result = case.defaultTestResult()
    case.run(result)
    [(_, text)] = result.failures

    assert "The engine is now paused_new." in text


@pytest.mark.parametrize("compare_state", [False, True])
def test_nothing_is_found_in_the_real_one(compare_state: bool) -> None:
    """With every feature, the classes that the engine takes do what the machine does."""
    from kvsched_fp.adapters.vllm.driving import VllmAdapter

    check_scheduler(VllmAdapter(compare_state=compare_state), profile="quick")


@pytest.mark.parametrize("name", ["UnchangedFork", "ReadsItsOwnClock", "ReadsItsOwnClockByName"])
def test_nothing_is_found_in_a_fork_that_changed_nothing(name: str) -> None:
    """A subclass is driven as the class that it derives from, with the clock of the driver."""
    from kvsched_fp.adapters.vllm.driving import VllmAdapter
    from tests.kit import forks

    check_scheduler(VllmAdapter(getattr(forks, name)), profile="quick", trace_dir=None)


def test_a_wrong_time_is_found() -> None:
    """What is told to have happened later than it is now is a difference."""
    from kvsched_fp.adapters.vllm.driving import VllmAdapter
    from tests.kit.forks import TellsTooLate

    with pytest.raises(SchedulersDiffer, match=r"outputs\[0\]\.events\[0\]\.time"):
        check_scheduler(VllmAdapter(TellsTooLate), trace_dir=None)


def test_the_clock_is_for_one_thread() -> None:
    """Other threads, which wait with time limits, read the real clock; so does this one behind it."""
    from kvsched_fp.adapters.vllm.driving.clock import Clock

    clock, elsewhere = Clock(), []
    clock.now = -2.5
    with clock.shown():
        here = (time.monotonic(), time.time(), time.monotonic_ns(), time.time_ns())
        thread = threading.Thread(target=lambda: elsewhere.append(time.monotonic()))
        thread.start()
        thread.join()

    assert (-2.5, -2.5, -2_500_000_000, -2_500_000_000) == here
    assert 0 < elsewhere[0] <= time.monotonic()


def test_a_class_of_another_kind_is_driven() -> None:
    """A class behind the interface that is no subclass of vLLM's scheduler is driven all the same."""
    from vllm.v1.core.sched.scheduler import Scheduler

    from kvsched_fp.adapters.vllm import OracleScheduler
    from kvsched_fp.adapters.vllm.driving import VllmAdapter

    # Its blocks have the names of vLLM's own hash function, and no others.
    features = frozenset(
        {Feature.PRIORITY, Feature.PAUSE, Feature.RESET, Feature.STATISTICS, Feature.V1_RUNNER}
    )

    assert not issubclass(OracleScheduler, Scheduler)
    check_scheduler(VllmAdapter(OracleScheduler, features=features), profile="quick")


def test_the_state_is_compared_too() -> None:
    """With `compare_state`, a figure is found that no outcome shows."""
    from vllm.v1.core.sched.scheduler import Scheduler

    from kvsched_fp.adapters.vllm.driving import VllmAdapter

    class TurnsTheFreeList(Scheduler):  # type: ignore[misc]  # untyped where vLLM is missing
        """The first free block goes to the back with every request."""

        def add_request(self, request: object) -> None:
            super().add_request(request)
            queue = self.kv_cache_manager.block_pool.free_block_queue
            if queue.num_free_blocks > 1:
                queue.append(queue.popleft())

    with pytest.raises(SchedulersDiffer) as caught:
        check_scheduler(VllmAdapter(TurnsTheFreeList, compare_state=True), profile="quick")

    assert caught.value.parting.is_in_view
    assert caught.value.parting.where.startswith("view.free_block_ids")
    assert "and a trace has none" in caught.value.story


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (dict, "<class 'dict'>; allowed: a subclass of vLLM's SchedulerInterface"),
        (7, "7; allowed: a subclass of vLLM's SchedulerInterface"),
    ],
)
def test_what_is_no_scheduler(kind: object, message: str) -> None:
    """What is no class of schedulers is refused, also where a function gives it; so is a wrong feature."""
    from kvsched_fp.adapters.vllm.driving import VllmAdapter

    with pytest.raises(InvalidConfig, match=f"kind: got {message}"):
        VllmAdapter(kind)
    with pytest.raises(InvalidConfig, match=f"kind: got {message}"):
        VllmAdapter(lambda _: kind).start(MINIMAL)
    with pytest.raises(InvalidConfig, match="features: got 'pauze'; allowed: any of priority"):
        VllmAdapter(features=["pauze"])


def test_a_class_that_lacks_methods() -> None:
    """A class behind the interface without its methods is refused, with what it lacks."""
    from vllm.v1.core.sched.interface import SchedulerInterface

    from kvsched_fp.adapters.vllm.driving import VllmAdapter

    with pytest.raises(InvalidConfig, match=r"it lacks .*add_request, .*finish_requests, "):
        VllmAdapter(SchedulerInterface)
