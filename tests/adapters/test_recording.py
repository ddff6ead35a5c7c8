"""`RecordingScheduler` writes down what the real scheduler says, and changes nothing."""

import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from kvsched_fp import (
    AddRequest,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    PauseState,
    Request,
    ResetPrefixCache,
    SamplingParams,
    Schedule,
    SchedulerConfig,
    SchedulingPolicy,
    SetPauseState,
    StepResult,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
    initial_state,
    step,
)
from kvsched_fp.errors import InvalidConfig, InvalidEvent, TraceError, UnsupportedFeature
from kvsched_fp.trace import check_trace, open_trace_reader
from kvsched_fp.trace.header import count_other_sources
from kvsched_fp.trace.verdict import Verdict
from tests.unit.cli.helpers import run_cli

pytestmark = pytest.mark.usefixtures("_reference")

NUM_HISTORIES = 20


def make_recorder(config: SchedulerConfig, trace: Path) -> Any:
    """Build a recorder behind a driver."""
    from kvsched_fp.adapters.vllm import RecordingScheduler
    from tests.adapters.pairs import build_pair

    return build_pair(config, RecordingScheduler, trace=trace)[1]


def add(driver: Any, name: str, num_tokens: int = 40, **fields: Any) -> None:
    """Add a request whose prompt takes several steps."""
    request = Request(
        request_id=name,
        prompt_token_ids=range(100, 100 + num_tokens),
        sampling_params=SamplingParams(max_tokens=5),
        **fields,
    )
    driver.apply(AddRequest(request))


def serve(driver: Any, num_steps: int) -> None:
    """Plan and answer steps; every request that has its prompt samples a token."""
    for _ in range(num_steps):
        driver.apply(Schedule())
        scheduler = driver.scheduler
        batch = driver._in_flight[0].num_scheduled_tokens
        sampled = {name: (7,) for name in batch if not scheduler.requests[name].is_prefill_chunk}
        driver.apply(Update(StepResult(step_id=scheduler.current_step, sampled_token_ids=sampled)))


def check(trace: Path) -> Verdict:
    """Check a trace."""
    with open_trace_reader(trace) as reader:
        return check_trace(reader)


def play(seed: int, trace: Path, shape: str, *, with_all_features: bool) -> Counter[str]:
    """Record a random history, beside the real scheduler; count what was recorded, by kind of event."""
    from kvsched_fp.adapters.vllm import RecordingScheduler
    from tests.adapters.pairs import build_pair, draw_events, draw_world, raises_as_known

    config, features, own_rng = draw_world(seed, shape, with_all_features=with_all_features)
    real, recorder = build_pair(config, RecordingScheduler, trace=trace)
    machine = SimpleNamespace(state=initial_state(config), requests=recorder.scheduler.requests)
    seen: Counter[str] = Counter()
    for before, event in draw_events(seed, machine, features, own_rng):
        try:
            expected = real.apply(event)
        except (AssertionError, AttributeError, IndexError) as error:
            if raises_as_known(before, event, error):
                break
            raise
        actual = recorder.apply(event)
        assert repr((expected, real.view())) == repr((actual, recorder.view()))
        machine.state, _ = step(before, event)
        if not isinstance(event, FinishRequests) or actual:  # nobody was there to be ended
            seen[type(event).__name__] += 1
        if isinstance(event, Schedule):
            seen["preemptions"] += len(actual["preempted_req_ids"] or ())
    recorder.scheduler.shutdown()
    return seen


@pytest.mark.parametrize("shape", ["v1", "v2"])
def test_random_histories(tmp_path: Path, shape: str) -> None:
    """The recorder answers as the real one does, and its traces pass the check, whatever happens."""
    total: Counter[str] = Counter()
    for seed in range(NUM_HISTORIES):
        trace = tmp_path / f"{seed}.jsonl"
        seen = play(seed, trace, shape, with_all_features=False)
        verdict = check(trace)
        total += seen

        assert verdict.divergence is None, f"seed {seed}: {verdict.divergence}"
        assert seen.total() - seen["preemptions"] == verdict.num_events

    kinds = (AddRequest, FinishRequests, ResetPrefixCache, Schedule, SetPauseState, Update)
    assert {kind.__name__ for kind in kinds} | {"preemptions"} == set(+total)


@pytest.mark.parametrize("shape", ["v1", "v2"])
def test_random_histories_with_features(tmp_path: Path, shape: str) -> None:
    """So it is with whatever else an engine does; a trace ends where a grammar rejects what was sampled."""
    total: Counter[str] = Counter()
    for seed in range(NUM_HISTORIES):
        trace = tmp_path / f"{seed}.jsonl"
        total += play(seed, trace, shape, with_all_features=True)
        verdict = check(trace)

        assert verdict.divergence is None, f"seed {seed}: {verdict.divergence}"
        assert verdict.num_events > 0

    kinds = (GrammarFailed, GrammarReady, UpdateDrafts, UpdateDraftsInFlight)
    assert {kind.__name__ for kind in kinds} <= set(+total)


def test_check_accepts_it(config: SchedulerConfig, tmp_path: Path) -> None:
    """`kvsched-fp check` finds the pinned sources, no difference, and all invariants kept."""
    trace = tmp_path / "trace.jsonl"
    driver = make_recorder(config, trace)
    add(driver, "a")
    serve(driver, 4)
    driver.apply(SetPauseState(PauseState.PAUSED_NEW))
    driver.apply(ResetPrefixCache(reset_running_requests=True))
    driver.apply(FinishRequests("a"))
    result = run_cli("check", "--check", "every", trace)
    with open_trace_reader(trace) as reader:
        num_other_sources = count_other_sources(reader.header)

    assert (0, "") == (result.exit_code, result.stderr)
    assert f"{trace}: identical: 12 events, " in result.stdout
    assert 0 == num_other_sources


KILLED = """
import os, signal, sys
from pathlib import Path
from kvsched_fp import SchedulerConfig
from tests.adapters.test_recording import add, make_recorder, serve

config = SchedulerConfig(
    max_model_len=64, max_num_seqs=4, max_num_batched_tokens=16, num_blocks=60, block_size=4
)
driver = make_recorder(config, Path(sys.argv[1]))
add(driver, "a")
serve(driver, 3)
driver.scheduler.schedule()
os.kill(os.getpid(), signal.SIGKILL)
"""
"""An engine that is killed while a step is in flight."""


def test_killed(tmp_path: Path) -> None:
    """An engine that is killed leaves a trace of everything up to that moment."""
    trace = tmp_path / "trace.jsonl"
    done = subprocess.run([sys.executable, "-c", KILLED, trace], check=False, capture_output=True)

    assert -signal.SIGKILL == done.returncode, done.stderr.decode()
    verdict = check(trace)
    assert (1 + 3 * 2 + 1, None) == (verdict.num_events, verdict.divergence)


def test_assignment_before_the_first_call(config: SchedulerConfig, tmp_path: Path) -> None:
    """What is assigned before anything happens stands in the header."""
    trace = tmp_path / "trace.jsonl"
    driver = make_recorder(config, trace)
    driver.scheduler.use_v2_model_runner = False
    driver.scheduler.max_num_scheduled_tokens = 5
    add(driver, "a")
    serve(driver, 3)
    verdict = check(trace)
    with open_trace_reader(trace) as reader:
        recorded = reader.header.config

    assert (False, 5) == (recorded.use_v2_model_runner, recorded.max_num_scheduled_tokens)
    assert (7, None) == (verdict.num_events, verdict.divergence)


def raise_budget(scheduler: Any) -> None:
    """Assign an attribute of the scheduler."""
    scheduler.max_num_scheduled_tokens = 20


def raise_threshold(scheduler: Any) -> None:
    """Assign a field of its configuration."""
    scheduler.scheduler_config.long_prefill_token_threshold = 3


def move_interval(scheduler: Any) -> None:
    """Assign an attribute that the scheduler itself goes on writing."""
    scheduler.last_prefill_step += 1


def raise_priority(scheduler: Any) -> None:
    """Assign an attribute of a request."""
    scheduler.running[0].priority = -5


def ask_for_figures(scheduler: Any) -> None:
    """Ask for figures, which counts look-ups anew."""
    assert scheduler.make_stats().prefix_cache_stats.queries > 0


@pytest.mark.parametrize(
    "change", [raise_budget, raise_threshold, move_interval, raise_priority, ask_for_figures]
)
def test_what_a_trace_cannot_tell(
    config: SchedulerConfig,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Any], None],
) -> None:
    """It ends the trace and says so; the scheduler goes on, and what is recorded passes the check."""
    trace = tmp_path / "trace.jsonl"
    driver = make_recorder(attrs.evolve(config, policy=SchedulingPolicy.PRIORITY), trace)
    add(driver, "a")
    if change is ask_for_figures:
        driver.apply(Schedule())
    else:
        serve(driver, 1)
    num_events = len(trace.read_bytes().splitlines()) - 1
    with caplog.at_level(logging.ERROR, logger="kvsched_fp.trace"):
        change(driver.scheduler)
        driver.apply(Schedule())
        driver.apply(SetPauseState(PauseState.PAUSED_ALL))
    verdict = check(trace)

    assert (num_events, None) == (verdict.num_events, verdict.divergence)
    assert [f"ends after {num_events} events"] == [
        record.getMessage().partition(f"{trace} ")[2].partition(":")[0] for record in caplog.records
    ]


def test_harmless_questions(config: SchedulerConfig, tmp_path: Path) -> None:
    """Asking for figures when nothing was looked up since the last ones loses nothing."""
    trace = tmp_path / "trace.jsonl"
    driver = make_recorder(config, trace)
    add(driver, "a")
    serve(driver, 1)
    driver.scheduler.make_stats()
    serve(driver, 2)
    verdict = check(trace)

    assert (7, None) == (verdict.num_events, verdict.divergence)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk(config: SchedulerConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A disk that becomes full ends the trace; the scheduler goes on."""
    trace = tmp_path / "trace.jsonl"
    driver = make_recorder(config, trace)
    add(driver, "a")
    with Path("/dev/full").open("wb") as full, caplog.at_level(logging.ERROR):
        writer = driver.scheduler._watcher._trace._writer
        os.dup2(full.fileno(), writer._stream.fileno())
        serve(driver, 2)

    assert "No space left on device" in caplog.text
    assert 2 == driver.scheduler.current_step


def test_a_file_that_cannot_be_written(config: SchedulerConfig, tmp_path: Path) -> None:
    """That is an error of the constructor."""
    with pytest.raises(TraceError, match="Is a directory"):
        make_recorder(config, tmp_path)


def test_no_file(config: SchedulerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder has to be told where to write."""
    from kvsched_fp.adapters.vllm import RecordingScheduler
    from tests.adapters.pairs import build_pair

    monkeypatch.delenv("KVSCHED_FP_TRACE", raising=False)
    with pytest.raises(InvalidConfig, match="KVSCHED_FP_TRACE"):
        build_pair(config, RecordingScheduler)


def test_long_prompts_are_refused(config: SchedulerConfig, tmp_path: Path) -> None:
    """A prompt that no trace could hold is refused before the real scheduler has it."""
    driver = make_recorder(config, tmp_path / "trace.jsonl")
    with pytest.raises(InvalidEvent, match="prompt_token_ids"):
        add(driver, "a", config.max_model_len + 1)

    assert not driver.scheduler.has_request("a")


def test_what_is_not_modelled_is_refused(config: SchedulerConfig, tmp_path: Path) -> None:
    """A step that says something for which a trace has no field is refused, and named."""
    from vllm.v1.core.sched.scheduler import Scheduler

    from kvsched_fp.adapters.vllm import RecordingScheduler
    from tests.adapters.pairs import build_pair

    class Talking(Scheduler):
        def schedule(self, throttle_prefills: bool = False) -> Any:
            output = super().schedule(throttle_prefills)
            output.num_common_prefix_blocks = [1]
            return output

    kind = type("TalkingRecorder", (RecordingScheduler, Talking), {})
    driver = build_pair(config, kind, trace=tmp_path / "trace.jsonl")[1]

    with pytest.raises(UnsupportedFeature, match="num_common_prefix_blocks"):
        driver.scheduler.schedule()


def test_another_step_is_refused(config: SchedulerConfig, tmp_path: Path) -> None:
    """A result for another step than the oldest in flight is refused before the real scheduler has it."""
    from kvsched_fp.adapters.vllm.driving.requests import to_model_runner_output

    driver = make_recorder(config, tmp_path / "trace.jsonl")
    add(driver, "a", 20)
    scheduler = driver.scheduler
    scheduler.schedule()
    add(driver, "b")
    later = scheduler.schedule()
    returned = to_model_runner_output(later.num_scheduled_tokens, {})

    with pytest.raises(InvalidEvent, match="those of step 1, the oldest in flight"):
        scheduler.update_from_output(later, returned)

    assert 20 == scheduler.requests["a"].num_in_flight_tokens
