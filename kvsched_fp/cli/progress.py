"""Progress bars of a run (requests done) and of a check (bytes read), and the progress of a search."""

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from kvsched_fp.explore.findings import SearchProgress

REFRESH_SECONDS = 0.1
"""Wall time between two refreshes."""


class _Bar:
    """What the bars share: they live as long as a `with` block, on a standard error that is a terminal."""

    def __init__(self, *columns: ProgressColumn, total: int | None, visible: bool, **fields: Any) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            *columns,
            console=console,
            disable=not visible or not console.is_terminal,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("", total=total, **fields)
        self._started = self._refreshed = time.perf_counter()

    def _take_turn(self) -> float | None:
        """Give the seconds so far if something should be shown now, else None; a turn lasts for a while."""
        now = time.perf_counter()
        if self._progress.disable or now - self._refreshed < REFRESH_SECONDS:
            return None
        self._refreshed = now
        return now - self._started

    def _show(self, **figures: Any) -> None:
        self._progress.update(self._task, **figures)
        self._progress.refresh()

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
        super().__init__(
            TextColumn("requests"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rates]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            total=num_requests,
            visible=visible,
            rates="",
        )

    def update(self, num_finished: int, num_steps: int) -> None:
        """Show where the run stands; most calls return at once."""
        elapsed = self._take_turn()
        if elapsed is not None:
            rates = f"{num_finished / elapsed:,.0f} requests/s  {num_steps / elapsed:,.0f} steps/s"
            self._show(completed=num_finished, rates=rates)


class CheckProgress(_Bar):
    """A bar on the standard error, shown only if that is a terminal, `visible`, and it takes a while."""

    def __init__(self, num_bytes: int, *, visible: bool) -> None:
        super().__init__(
            TextColumn("checked"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            total=num_bytes,
            visible=visible,
        )

    def update(self, num_read: int) -> None:
        """Show how many bytes were read so far; most calls return at once."""
        if self._take_turn() is not None:
            self._show(completed=num_read)


class ExploreProgress(_Bar):
    """A line on the standard error, shown only if that is a terminal and `visible`.

    Nobody knows how large a world is, so it has no bar.
    """

    def __init__(self, *, visible: bool) -> None:
        super().__init__(TextColumn("{task.description}"), TimeElapsedColumn(), total=None, visible=visible)

    def update(self, found: SearchProgress) -> None:
        """Show how far the search is; most calls return at once."""
        elapsed = self._take_turn()
        if elapsed is not None:
            text = (
                f"depth {found.depth}  {found.num_states:,} states  {found.num_to_expand:,} left in level  "
                f"{found.num_expanded / elapsed:,.0f} states/s  {found.num_moves / elapsed:,.0f} moves/s"
            )
            self._show(description=text)
