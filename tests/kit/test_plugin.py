"""The pytest plugin: a ready test from the command line, and nothing where it is not asked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
from kvsched_fp.testing import CallAdapter, PureAdapter

class Lacking(CallAdapter):
    def start(self, config): pass
    def add_request(self, request, time): pass
    def finish_requests(self, request_ids, status): pass

class Typo(PureAdapter):
    features = ["pauze"]

class Wrong(PureAdapter):
    def view(self):
        return {"running": ["nobody"]}

class Plain(PureAdapter):
    features = frozenset()

def make():
    return Wrong()

def make_for(command):
    return Wrong()

def make_nothing():
    return 7

ready = Wrong()
nothing = 7
"""


@pytest.fixture
def _module(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "test_other.py").write_text("def test_other(): pass\n")


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest with the plugin; give the exit code and what it printed."""
    # The plugin of an installed package would be there twice.
    plugins = ("-p", "no:kvsched-fp", "-p", "kvsched_fp.testing.plugin")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *arguments],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.usefixtures("_module")
def test_an_adapter_is_tested(tmp_path: Path) -> None:
    """The ready test comes before those that are named, and says what it met."""
    code, text = run(
        tmp_path, "--kvsched-adapter", "mine:Plain", "--kvsched-profile", "quick", "test_other.py"
    )

    assert 0 == code, text
    assert "2 passed" in text
    assert "kvsched-fp: 90 runs" in text
    assert "met: " in text


@pytest.mark.usefixtures("_module")
@pytest.mark.parametrize("name", ["Wrong", "make", "ready"])
def test_a_difference_is_told(name: str, tmp_path: Path) -> None:
    """A class, a function and an object will do; the failure is the story alone, and all that is run."""
    code, text = run(tmp_path, "--kvsched-adapter", f"mine:{name}", "--kvsched-trace-dir", "traces")

    assert 1 == code
    assert "passed" not in text
    assert "the scheduler under test does something else at event 1: view.running[0]" in text
    assert "Traceback" not in text
    assert ["Wrong.jsonl"] == [path.name for path in (tmp_path / "traces").iterdir()]


@pytest.mark.usefixtures("_module")
def test_a_test_case_is_collected(tmp_path: Path) -> None:
    """The test case of a machine is one for pytest, without any option."""
    (tmp_path / "test_three.py").write_text(
        "from kvsched_fp.testing import scheduler_machine\n"
        "from mine import Wrong\n"
        "TestMine = scheduler_machine(Wrong()).TestCase\n"
    )
    code, text = run(tmp_path, "test_three.py")

    assert 1 == code
    assert "1 failed" in text
    assert "the scheduler under test does something else at event 1: view.running[0]" in text


CALLS = {
    "TestCase": "TestMine = scheduler_machine(Wrong()).TestCase",
    "check_scheduler": "def test_mine(): check_scheduler(Wrong())",
    "Hypothesis": "def test_mine(): run_state_machine_as_test(scheduler_machine(Wrong()))",
}
"""The ways to have a scheduler tested in a module."""


@pytest.mark.usefixtures("_module")
@pytest.mark.parametrize("call", CALLS)
def test_a_failure_shows_no_source_of_the_kit(call: str, tmp_path: Path) -> None:
    """The story is what pytest shows first, and no function of the kit."""
    (tmp_path / "test_three.py").write_text(
        "from hypothesis.stateful import run_state_machine_as_test\n"
        "from kvsched_fp.testing import check_scheduler, scheduler_machine\n"
        f"from mine import Wrong\n{CALLS[call]}\n"
    )
    code, text = run(tmp_path, "test_three.py")
    before, _, story = text.partition("the scheduler under test does something else at event 1: ")

    assert 1 == code
    assert story
    assert "kvsched_fp/testing" not in text
    assert "run_machine" not in text
    assert len(before.splitlines()) < 25


@pytest.mark.usefixtures("_module")
def test_a_failure_in_unittest_shows_no_source_of_the_kit(tmp_path: Path) -> None:
    """There, too, the story comes first."""
    (tmp_path / "three.py").write_text(
        f"from kvsched_fp.testing import scheduler_machine\nfrom mine import Wrong\n{CALLS['TestCase']}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "three"],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 1 == done.returncode
    assert "SchedulersDiffer: the scheduler under test does something else at event 1: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("_module")
@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("-k", "nothing"), ["collected 1 item / 1 deselected / 0 selected"]),
        (("--deselect", "kvsched-fp"), ["collected 1 item / 1 deselected / 0 selected"]),
        (("-k", "kvsched-fp", "--collect-only"), ["1 test collected in "]),
        (("-k", "scheduler", "--collect-only"), ["1 test collected in "]),
        (("--collect-only",), ["collected 1 item\n", "<SchedulerItem scheduler>", "1 test collected in "]),
        (("--collect-only", "-q"), ["kvsched-fp\n\n1 test collected in "]),
        (("--collect-only", "-k", "nothing"), ["no tests collected (1 deselected)"]),
        (("test_other.py", "--collect-only"), ["collected 2 items\n", "2 tests collected in "]),
        (("test_other.py", "-k", "other"), ["collected 2 items / 1 deselected / 1 selected", "1 passed"]),
        (("test_other.py", "-k", "other", "--lf"), ["collected 2 items / 1 deselected / 1 selected"]),
    ],
)
def test_the_ready_test_is_counted_and_selected_as_any_other(
    arguments: tuple[str, ...], parts: list[str], tmp_path: Path
) -> None:
    """By its name, `scheduler`, or by what it is listed as."""
    _, text = run(tmp_path, "--kvsched-adapter", "mine:Plain", *arguments)

    for part in parts:
        assert part in text
    assert "-1 selected" not in text


@pytest.mark.usefixtures("_module")
def test_nothing_happens_without_an_option(tmp_path: Path) -> None:
    """The plugin alone adds nothing."""
    code, text = run(tmp_path)

    assert 0 == code, text
    assert "1 passed" in text
    assert "kvsched" not in text


@pytest.mark.usefixtures("_module")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kvsched-adapter", "mine:Nobody"), "got 'mine:Nobody'; allowed: MODULE:NAME"),
        (("--kvsched-adapter", "mine"), "got 'mine'; allowed: MODULE:NAME"),
        (("--kvsched-adapter", "mine:nothing"), "mine:nothing is 7; allowed: an Adapter"),
        (("--kvsched-adapter", "mine:make_nothing"), "mine:make_nothing gives 7; allowed: an Adapter"),
        (("--kvsched-adapter", "mine:Lacking"), "mine:Lacking lacks schedule, update; allowed: an Adapter"),
        (("--kvsched-adapter", "json:dumps"), "json:dumps cannot be called without arguments: missing"),
        (
            ("--kvsched-adapter", "mine:make_for"),
            "without arguments: missing a required argument: 'command'",
        ),
        (("--kvsched-adapter", "json:JSONDecoder"), "is <class 'json.decoder.JSONDecoder'>; allowed"),
        (("--kvsched-adapter", "mine:Typo"), "features: got 'pauze'; allowed: any of priority"),
        (("--kvsched-adapter", "mine:Plain", "--kvsched-profile", "slow"), "profile: got 'slow'"),
        (("--kvsched-command", "/nowhere/at/all"), "'/nowhere/at/all' cannot be started"),
        (("--kvsched-command", "'unended"), "allowed: a program and its arguments, quoted as in a shell"),
        (("--kvsched-command", "a", "--kvsched-adapter", "b:c"), "only one of them"),
        (("--kvsched-command", ""), "--kvsched-command: got ''; allowed: a program"),
        (("--kvsched-adapter", ""), "--kvsched-adapter: got ''; allowed: MODULE:NAME"),
        (("--kvsched-command", "  "), "--kvsched-command: got '  '; allowed: a program"),
    ],
)
def test_what_cannot_be_tested(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    """A name or a command that is none is one clear error."""
    code, text = run(tmp_path, *arguments)

    assert 0 != code
    assert message in text
    assert "Traceback" not in text
