"""Processes that die, hang, or answer nonsense: each gives one clear error, and none is left behind."""

import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvsched_fp import AddRequest, InvalidConfig, Request, SamplingParams, Schedule, SchedulerConfig
from kvsched_fp.testing import AdapterError, Feature, SchedulersDiffer, check_scheduler
from kvsched_fp.testing.pipes import LineProcess
from kvsched_fp.testing.subprocess_adapter import SubprocessAdapter

CONFIG = SchedulerConfig(
    max_model_len=16, max_num_seqs=2, max_num_batched_tokens=8, num_blocks=9, block_size=4
)
ADD = AddRequest(
    Request(request_id="a", prompt_token_ids=[1, 2, 3], sampling_params=SamplingParams(max_tokens=1))
)

ANSWERS = """
import json, os, sys, time
def answer(line, message):
    if "event" in message:
        return on_event(message["event"])
    return '{"ready":true}' if "config" in message else '{"features":["pause"]}'
def on_event(event):
    return "{}"
CHANGED
for line in sys.stdin:
    print(answer(line, json.loads(line)), flush=True)
"""
"""A process that agrees to everything; what stands for CHANGED may define either function again."""


@pytest.fixture(autouse=True)
def _none_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """See that every process that a test starts has ended with it."""
    started: list[LineProcess] = []
    begin = LineProcess.__init__

    def noted(process: LineProcess, *arguments: Any, **options: Any) -> None:
        begin(process, *arguments, **options)
        started.append(process)

    monkeypatch.setattr(LineProcess, "__init__", noted)
    yield

    assert not any(process.is_running for process in started)


def start(folder: Path, changed: str = "", **options: float) -> SubprocessAdapter:
    """Start a process, and a run of it."""
    script = folder / "scheduler.py"
    script.write_text(ANSWERS.replace("CHANGED", textwrap.dedent(changed)))
    adapter = SubprocessAdapter([sys.executable, str(script)], **options)  # type: ignore[arg-type]
    try:
        adapter.start(CONFIG)
    except AdapterError:
        adapter.close()
        raise
    return adapter


def on_event(body: str) -> str:
    """Write what the process does about an event."""
    return f"def on_event(event):\n    {body}\n"


def test_a_process_that_answers(tmp_path: Path) -> None:
    """An event of which nothing comes is answered by an empty object."""
    adapter = start(tmp_path)

    assert adapter.happen(ADD) is None
    assert frozenset({Feature.PAUSE}) == adapter.features
    adapter.close()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("os._exit(3)", "the process ended with exit code 3"),
        ("os.kill(os.getpid(), 9)", "the process was killed by SIGKILL"),
        ("print('oh no', file=sys.stderr); sys.exit(1)", "ended with exit code 1; it said: oh no"),
        ("time.sleep(60)", "the process did not answer within 0.5 s"),
        ("return 'hello'", "answered 'hello' to add_request; allowed: one JSON object"),
        ("return '[1]'", r"answered '\[1\]' to add_request; allowed: one JSON object"),
        ("return '{\"a\":NaN}'", "NaN is not a JSON number"),
        ("return '[' * 99", "nested at most 16 deep"),
        ("return '{\"output\":{}}'", r"answered \{'output': \{\}\} to add_request; allowed: \{\}, or"),
        ('return \'{"error":"too hard"}\'', "the process refuses add_request: too hard"),
        ("return 'x' * 5000", "answered a line of more than 2000 bytes"),
        ("os.write(1, b'\\xff\\n'); time.sleep(60)", "which is not UTF-8"),
        ("os.close(1); time.sleep(60)", "closed its standard output"),
    ],
)
def test_a_process_that_fails(body: str, message: str, tmp_path: Path) -> None:
    """What it did is said, with what it wrote to standard error."""
    adapter = start(tmp_path, on_event(body), timeout=0.5, max_line_bytes=2000)
    with pytest.raises(AdapterError, match=message):
        adapter.happen(ADD)
    adapter.close()


def test_two_lines_for_one(tmp_path: Path) -> None:
    """A line that nobody has asked for is an error at the next event."""
    adapter = start(tmp_path, on_event("return '{}\\n{}'"))
    adapter.happen(ADD)
    time.sleep(0.2)  # both lines may not come together
    with pytest.raises(AdapterError, match=r"wrote b'\{\}\\n' that nobody had asked for"):
        adapter.happen(Schedule())
    adapter.close()


def test_a_process_that_reads_nothing(tmp_path: Path) -> None:
    """A line that is not taken in time is an error, too."""
    adapter = start(tmp_path, on_event("time.sleep(60)"), timeout=0.5)
    adapter._process._send(b'{"event":{}}\n', time.monotonic() + 1)
    with pytest.raises(AdapterError, match=r"did not read its input within 0\.5 s"):
        adapter._process.ask("x" * 2**20)
    adapter.close()


def test_fields_of_an_answer_are_named(tmp_path: Path) -> None:
    """An output with a wrong field is refused with its path."""
    adapter = start(tmp_path, on_event('return \'{"output":{"step_id":"one"}}\''))
    with pytest.raises(AdapterError, match="to schedule: output"):
        adapter.happen(Schedule())
    adapter.close()


def test_a_process_that_failed_is_started_again(tmp_path: Path) -> None:
    """The next run has a new process."""
    adapter = start(tmp_path, on_event("os._exit(3) if event['kind'] == 'schedule' else 0; return '{}'"))
    with pytest.raises(AdapterError, match="exit code 3"):
        adapter.happen(Schedule())
    adapter.start(CONFIG)

    assert adapter.happen(ADD) is None
    adapter.close()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("def answer(line, message): return '{}'", r"answered \{\} to the greeting; allowed: .*features"),
        ('def answer(line, message): return \'{"features":["magic"]}\'', "features: got 'magic'"),
    ],
)
def test_a_process_that_does_not_greet(changed: str, message: str, tmp_path: Path) -> None:
    """It has to say what it supports, in known words."""
    with pytest.raises((AdapterError, InvalidConfig), match=message):
        start(tmp_path, changed)


def test_a_process_that_refuses_the_header(tmp_path: Path) -> None:
    """A configuration that it does not take is its failure, in its own words."""
    changed = """
    def answer(line, message):
        return '{"error":"too small"}' if "config" in message else '{"features":[]}'
    """
    with pytest.raises(AdapterError, match="the process refuses the header: too small"):
        start(tmp_path, changed)


@pytest.mark.parametrize("command", ["", "/nowhere/at/all --really"])
def test_a_command_that_is_none(command: str) -> None:
    """A program that is not there is one clear error."""
    with pytest.raises((AdapterError, InvalidConfig), match=r"cannot be started|allowed: a program"):
        SubprocessAdapter(command)


def test_a_failure_is_a_difference(tmp_path: Path) -> None:
    """A process that dies at the first step is a difference with a story of two events at most."""
    adapter = start(tmp_path, on_event("os._exit(3) if event['kind'] == 'schedule' else 0; return '{}'"))
    with pytest.raises(SchedulersDiffer) as caught:
        check_scheduler(adapter, profile="quick", trace_dir=None)

    assert len(caught.value.parting.played) <= 2
    assert "there: failed: AdapterError: the process ended with exit code 3" in caught.value.story


def is_alive(process_id: int) -> bool:
    """Tell whether a process runs; one that has ended, and that nobody has waited for, does not."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_for_end(process_id: int) -> bool:
    """Tell whether a process ends soon: it is killed, but not waited for."""
    deadline = time.monotonic() + 5.0
    while is_alive(process_id) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_alive(process_id)


STARTS_A_CHILD = """
import subprocess
child = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
open("child", "w").write(str(child.pid))
def on_event(event):
    if event["kind"] == "schedule": BODY
    return "{}"
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("body", ["os._exit(3)", "return 'hello'", 'return \'{"error":"no"}\'', "pass"])
def test_what_the_process_has_started_ends_with_it(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its children end with it: at a failure, also one at which it ends first, and when it is closed."""
    monkeypatch.chdir(tmp_path)
    adapter = start(tmp_path, STARTS_A_CHILD.replace("BODY", body))
    child = int((tmp_path / "child").read_text())

    assert is_alive(child)
    if body == "pass":
        adapter.close()
    else:
        with pytest.raises(AdapterError):
            adapter.happen(Schedule())
    assert wait_for_end(child)
    adapter.close()


@pytest.mark.parametrize(
    "answer", ["hello", '{"a":NaN}', "{}", '{"error":"no"}', '{"output":{"step_id":"one"}}']
)
def test_nonsense_ends_the_process(answer: str, tmp_path: Path) -> None:
    """Whatever the failure was, the next run has a new process; what the old one wrote is told."""
    body = f"print(os.getpid(), file=sys.stderr, flush=True); return {answer!r}"
    adapter = start(tmp_path, on_event(body))
    said = []
    for _ in range(2):
        with pytest.raises(AdapterError, match=r"; it said: \d+$") as caught:
            adapter.happen(Schedule())
        said.append(str(caught.value).rpartition(" ")[2])
        adapter.start(CONFIG)

    assert said[0] != said[1]
    adapter.close()
