"""Sessions, and the time of what happens to them, inside vLLM."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from kvsched_fp import AddRequest, Request, SamplingParams, Schedule, SchedulerConfig, StepResult, Update
from kvsched_fp.trace import check_trace, open_trace_reader

pytestmark = pytest.mark.usefixtures("_reference")


class RunningClock:
    """Stands in for the module `time`: later with every reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Give the time."""
        self.now += 0.25
        return self.now

    time = monotonic


def chunk(name: str, *token_ids: int, resumable: bool = True) -> AddRequest:
    """Make the next input of a session of one output token, or its end."""
    return AddRequest(
        Request(
            request_id=name,
            prompt_token_ids=token_ids,
            sampling_params=SamplingParams(max_tokens=1),
            resumable=resumable,
        )
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> RunningClock:
    """Let every reading of the clock be another one, as it is in an engine."""
    from vllm.v1 import engine
    from vllm.v1.core.sched import scheduler

    from kvsched_fp.adapters.vllm import oracle

    made = RunningClock()
    for module in (engine, scheduler, oracle):
        monkeypatch.setattr(module, "time", made)
    return made


def converse(driver: Any) -> list[Any]:
    """Let two sessions stop in one update, each with its next input queued; then end both."""
    told = []
    for name in "ab":
        driver.apply(chunk(name, 1, 2, 3))
        driver.apply(chunk(name, 4, 5))
    for step_id in (1, 2):
        driver.apply(Schedule())
        sampled = dict.fromkeys("ab", (9,))
        told.append(driver.apply(Update(StepResult(step_id=step_id, sampled_token_ids=sampled))))
    driver.apply(chunk("a", 0, resumable=False))
    driver.apply(chunk("b", 6, 7))
    driver.apply(chunk("b", 0, resumable=False))
    driver.apply(Schedule())
    told.append(driver.apply(Update(StepResult(step_id=3, sampled_token_ids={"b": (9,)}))))
    return told


def test_several_readings_of_the_clock(
    config: SchedulerConfig, tmp_path: Path, clock: RunningClock
) -> None:
    """An update in which the real one reads the clock for each session is an event of one time."""
    from kvsched_fp.adapters.vllm import ShadowScheduler
    from tests.adapters.pairs import build_pair

    trace = tmp_path / "trace.jsonl"
    driver = build_pair(config, ShadowScheduler, trace=trace)[1]
    converse(driver)
    driver.scheduler.shutdown()
    with open_trace_reader(trace) as reader:
        times = [record.event.time for record in reader.records() if isinstance(record.event, Update)]
    with open_trace_reader(trace) as reader:
        verdict = check_trace(reader)

    assert driver.scheduler.report is None
    assert clock.now > times[0] > 0.0
    assert (13, None) == (verdict.num_events, verdict.divergence)


def test_oracle_shows_the_session(config: SchedulerConfig) -> None:
    """The oracle's sessions show what the real ones do, at every point and after their end."""
    from tests.adapters.pairs import build_pair, request_to_plain

    shown = []
    for driver in build_pair(attrs.evolve(config, log_request_events=True)):
        told = converse(driver)
        shown.append((told, [request_to_plain(request) for request in driver.requests]))

    assert repr(shown[0]) == repr(shown[1])
    assert ["FINISHED_ABORTED", "FINISHED_LENGTH_CAPPED"] == [
        request["status"].name for request in shown[1][1]
    ]


def test_a_second_end_is_refused(config: SchedulerConfig) -> None:
    """Nothing more may come for a session that got its end; the state is what it was."""
    from kvsched_fp import InvalidEvent
    from kvsched_fp.adapters.vllm import OracleScheduler
    from tests.adapters.pairs import build_pair

    driver = build_pair(config, OracleScheduler)[1]
    driver.apply(chunk("a", 1, 2, 3))
    driver.apply(chunk("a", 0, resumable=False))
    before = driver.scheduler.state

    with pytest.raises(InvalidEvent, match="this session got its end"):
        driver.apply(chunk("a", 0, resumable=False))

    assert before == driver.scheduler.state
