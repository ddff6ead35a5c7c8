"""The progress bar."""

import io

import pytest
from rich.console import Console

from kvsched_fp.cli import progress
from kvsched_fp.cli.progress import CheckProgress, RunProgress


def _shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, visible: bool = True) -> str:
    stream = io.StringIO()

    def make_console(**_: object) -> Console:
        return Console(file=stream, force_terminal=terminal, width=120)

    monkeypatch.setattr(progress, "Console", make_console)
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    with RunProgress(200, visible=visible) as bar:
        bar.update(50, 1000)
    return stream.getvalue()


def test_shows_requests_rates_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, a bar with both rates."""
    shown = _shown(monkeypatch, terminal=True)

    for part in ("50/200", "requests/s", "steps/s", "left"):
        assert part in shown


def test_shows_nothing_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is not filled with bars."""
    assert "" == _shown(monkeypatch, terminal=False)


def test_shows_nothing_when_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--quiet` is obeyed on a terminal too."""
    assert "" == _shown(monkeypatch, terminal=True, visible=False)


@pytest.mark.parametrize(("terminal", "shown"), [(True, True), (False, False)])
def test_a_check_shows_the_bytes_read(monkeypatch: pytest.MonkeyPatch, terminal: bool, shown: bool) -> None:
    """On a terminal alone."""
    stream = io.StringIO()
    monkeypatch.setattr(
        progress, "Console", lambda **_: Console(file=stream, force_terminal=terminal, width=120)
    )
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    with CheckProgress(2_000_000, visible=True) as bar:
        bar.update(500_000)

    assert shown == ("0.5/2.0 MB" in stream.getvalue())
