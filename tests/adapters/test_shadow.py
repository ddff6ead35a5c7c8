"""`ShadowScheduler` finds nothing where there is nothing, and every planted fault where there is one."""

import itertools
import logging
from pathlib import Path
from typing import Any

import pytest

from kvsched_fp import AddRequest, Request, SamplingParams, Schedule, SchedulerConfig, StepResult, Update
from kvsched_fp.trace import check_trace, open_trace_reader

pytestmark = pytest.mark.usefixtures("_reference")

NUM_HISTORIES = 25


def make_shadow(config: SchedulerConfig, fault: type | None = None, **options: Any) -> Any:
    """Build a shadow, over the real scheduler or over a faulty one."""
    from kvsched_fp.adapters.vllm import ShadowScheduler
    from tests.adapters.pairs import build_pair

    kind = ShadowScheduler if fault is None else type("FaultyShadow", (ShadowScheduler, fault), {})
    return build_pair(config, kind, **options)[1]


def short_budget() -> type:
    """Make a real scheduler that gives one token too few in its third step."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class ShortBudget(Scheduler):
        def schedule(self, throttle_prefills: bool = False) -> Any:
            if self.current_step != 2:
                return super().schedule(throttle_prefills)
            self.max_num_scheduled_tokens -= 1
            try:
                return super().schedule(throttle_prefills)
            finally:
                self.max_num_scheduled_tokens += 1

    return ShortBudget


def miscounted_preemptions() -> type:
    """Make a real scheduler that writes a wrong figure on a request in its third update."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class Miscounted(Scheduler):
        def update_from_output(self, *arguments: Any) -> Any:
            told = super().update_from_output(*arguments)
            if self.current_step == 3:
                self.running[0].num_preemptions += 1
            return told

    return Miscounted


def run(driver: Any, num_steps: int = 6) -> None:
    """Serve two requests whose prompts take several steps."""
    for name, first in (("a", 0), ("b", 1000)):
        request = Request(
            request_id=name,
            prompt_token_ids=range(first, first + 40),
            sampling_params=SamplingParams(max_tokens=5),
        )
        driver.apply(AddRequest(request))
    for step_id in itertools.islice(itertools.count(1), num_steps):
        driver.apply(Schedule())
        batch = driver._in_flight[0].num_scheduled_tokens
        requests = driver.scheduler.requests
        sampled = {name: (7,) for name in batch if not requests[name].is_prefill_chunk}
        driver.apply(Update(StepResult(step_id=step_id, sampled_token_ids=sampled)))


@pytest.mark.parametrize("seed", range(NUM_HISTORIES))
def test_no_difference(seed: int) -> None:
    """On random histories, nothing differs, and what goes out is what the real scheduler says."""
    from kvsched_fp.adapters.vllm import ShadowScheduler
    from tests.adapters.pairs import play

    difference = play(seed, ShadowScheduler)

    assert difference is None, str(difference)


def test_recorded_trace_passes(config: SchedulerConfig, tmp_path: Path) -> None:
    """A trace of what the real scheduler said passes the check."""
    trace = tmp_path / "all.jsonl"
    driver = make_shadow(config, trace=trace)
    run(driver)
    driver.scheduler.shutdown()

    with open_trace_reader(trace) as reader:
        verdict = check_trace(reader)

    assert (14, None) == (verdict.num_events, verdict.divergence)


def test_fault_raises(config: SchedulerConfig, tmp_path: Path) -> None:
    """By default the first difference raises, and says where, what, why and what came before."""
    from kvsched_fp.adapters.vllm import ShadowDifference

    driver = make_shadow(config, short_budget(), folder=tmp_path)

    with pytest.raises(ShadowDifference) as caught:
        run(driver)

    divergence = caught.value.report.divergence
    difference = divergence.difference
    assert 3 == divergence.step_id
    assert ('output.num_scheduled_tokens["b"]', 7, 8) == (
        difference.path,
        difference.recorded,
        difference.ours,
    )
    assert ("S-BUD-01",) == divergence.rule_ids
    assert "schedule" in divergence.last_events[-1]


def test_trace_reproduces(config: SchedulerConfig, tmp_path: Path) -> None:
    """The trace of a difference shows the same difference when it is checked."""
    driver = make_shadow(config, short_budget(), folder=tmp_path, on_difference="record")
    run(driver)
    report = driver.scheduler.report

    with open_trace_reader(report.trace) as reader:
        found = check_trace(reader).divergence

    assert (report.divergence.step_id, report.divergence.difference) == (found.step_id, found.difference)


def test_fault_in_progress(config: SchedulerConfig, tmp_path: Path) -> None:
    """A figure on a request that is wrong is found, though no output shows it."""
    driver = make_shadow(config, miscounted_preemptions(), folder=tmp_path, on_difference="record")
    run(driver)

    difference = driver.scheduler.report.divergence.difference

    assert ('requests["a"].num_preemptions', 1, 0) == (
        difference.path,
        difference.recorded,
        difference.ours,
    )


def test_log(config: SchedulerConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`log` says it once and goes on with the real scheduler alone."""
    driver = make_shadow(config, short_budget(), folder=tmp_path, on_difference="log")
    with caplog.at_level(logging.ERROR, logger="kvsched_fp.shadow"):
        run(driver)

    assert 1 == len(caplog.records)
    assert "step 3" in caplog.text


def test_record(config: SchedulerConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`record` writes a report and a trace, and says nothing."""
    driver = make_shadow(config, short_budget(), folder=tmp_path, on_difference="record")
    run(driver)

    assert [] == caplog.records
    assert [".jsonl", ".txt"] == sorted(path.suffix for path in tmp_path.iterdir())


def test_environment(config: SchedulerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment chooses where the constructor says nothing."""
    monkeypatch.setenv("KVSCHED_FP_SHADOW", "record")
    monkeypatch.setenv("KVSCHED_FP_SHADOW_FOLDER", str(tmp_path))
    driver = make_shadow(config, short_budget())
    run(driver)

    assert driver.scheduler.report is not None


def test_assignment_takes_effect(config: SchedulerConfig) -> None:
    """What is assigned on the shadow is followed: no difference."""
    driver = make_shadow(config)
    driver.scheduler.use_v2_model_runner = False
    driver.scheduler.max_num_scheduled_tokens = 5
    run(driver)

    assert driver.scheduler.report is None


def test_assignment_ends_the_trace(config: SchedulerConfig, tmp_path: Path) -> None:
    """An assignment in the middle is followed; the trace, which cannot tell it, ends before it."""
    trace = tmp_path / "all.jsonl"
    driver = make_shadow(config, trace=trace)
    run(driver, 2)
    driver.scheduler.max_num_scheduled_tokens = 5
    driver.apply(Schedule())
    with open_trace_reader(trace) as reader:
        verdict = check_trace(reader)

    assert driver.scheduler.report is None
    assert (6, None) == (verdict.num_events, verdict.divergence)
