"""Progress bars of a run (requests done) and of a check (bytes read), and the progress of a search."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from kvsched_fp.explore.findings import SearchProgress

REFRESH_SECONDS = 0.1
"""Wall time between two refreshes."""


class _Bar:
    """What the bars share: they live as long as a `with` block."""

    _progress: Progress

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()


class RunProgress(_Bar):
    """A bar on the standard error, shown only if that is a terminal and `visible`."""

    def __init__(self, num_requests: int | None, *, visible: bool) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("requests"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rates]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not visible or not console.is_terminal,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("", total=num_requests, rates="")
        self._started = self._refreshed = time.perf_counter()

    def update(self, num_finished: int, num_steps: int) -> None:
        """Show where the run stands; most calls return at once."""
        now = time.perf_counter()
        if self._progress.disable or now - self._refreshed < REFRESH_SECONDS:
            return
        self._refreshed = now
        elapsed = max(now - self._started, 1e-9)
        rates = f"{num_finished / elapsed:,.0f} requests/s  {num_steps / elapsed:,.0f} steps/s"
        self._progress.update(self._task, completed=num_finished, rates=rates)
        self._progress.refresh()


class CheckProgress(_Bar):
    """A bar on the standard error, shown only if that is a terminal, `visible`, and it takes a while."""

    def __init__(self, num_bytes: int, *, visible: bool) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("checked"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not visible or not console.is_terminal,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("", total=num_bytes)
        self._refreshed = time.perf_counter()

    def update(self, num_read: int) -> None:
        """Show how many bytes were read so far; most calls return at once."""
        now = time.perf_counter()
        if self._progress.disable or now - self._refreshed < REFRESH_SECONDS:
            return
        self._refreshed = now
        self._progress.update(self._task, completed=num_read)
        self._progress.refresh()


class ExploreProgress(_Bar):
    """A line on the standard error, shown only if that is a terminal and `visible`.

    Nobody knows how large a world is, so it has no bar.
    """

    def __init__(self, *, visible: bool) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            disable=not visible or not console.is_terminal,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None)
        self._started = self._refreshed = time.perf_counter()

    def update(self, found: SearchProgress) -> None:
        """Show how far the search is; most calls return at once."""
        now = time.perf_counter()
        if self._progress.disable or now - self._refreshed < REFRESH_SECONDS:
            return
        self._refreshed = now
        elapsed = max(now - self._started, 1e-9)
        text = (
            f"depth {found.depth}  {found.num_states:,} states  {found.num_to_expand:,} left in level  "
            f"{found.num_expanded / elapsed:,.0f} states/s  {found.num_moves / elapsed:,.0f} moves/s"
        )
        self._progress.update(self._task, description=text)
        self._progress.refresh()
