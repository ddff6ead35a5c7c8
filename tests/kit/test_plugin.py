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
    plugins = ("-p", "no:kvsched-fp", "-p", "kvsched_fp.testing.plugin", "-p", "no:cacheprovider")
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
        (("--kvsched-command", "a", "--kvsched-adapter", "b:c"), "only one of them"),
        (("--kvsched-command", ""), "--kvsched-command: got ''; allowed: a program"),
        (("--kvsched-adapter", ""), "--kvsched-adapter: got ''; allowed: MODULE:NAME"),
    ],
)
def test_what_cannot_be_tested(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    """A name or a command that is none is one clear error."""
    code, text = run(tmp_path, *arguments)

    assert 0 != code
    assert message in text
    assert "Traceback" not in text
