"""Where a scheduler under test and the machine parted."""

from operator import methodcaller
from pathlib import Path

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.events import Event
from kvsched_fp.trace.divergence import NUM_LAST_EVENTS, Divergence, describe, make_divergence
from kvsched_fp.trace.replay import Replayed
from kvsched_fp.trace.writer import open_trace


@attrs.frozen
class Parting:
    """A history at whose last event both parted."""

    config: SchedulerConfig
    """The configuration of the run."""
    played: tuple[Replayed, ...]
    """What happened; in the last, `difference` says where, unless there was a `failure`.

    Nothing, if the scheduler under test failed to start.
    """
    failure: str | None
    """What the scheduler under test raised at the last event, or when it was started."""
    raised_at: str | None = None
    """Where that was raised: file, line and function; None for an error of an adapter of this package."""
    is_in_view: bool = False
    """Whether the outcomes agree, and only what is seen of the states differs."""
    is_elusive: bool = False
    """Whether the same events, played once more, did not part."""

    @property
    def events(self) -> tuple[Event, ...]:
        """The history."""
        return tuple(replayed.event for replayed in self.played)

    @property
    def where(self) -> str:
        """Say in a word where they parted: the path of the field, or what was raised."""
        if not self.played:
            return f"failed to start: {self.failure}"
        difference = self.played[-1].difference
        if difference is None:
            return f"raised {self.failure}"
        return difference.path

    @property
    def divergence(self) -> Divergence | None:
        """Say it as `kvsched-fp check` does; None if the scheduler under test failed."""
        if not self.played or self.played[-1].difference is None:
            return None
        last = self.played[-NUM_LAST_EVENTS:]
        texts = tuple(describe(replayed.number, replayed.event, replayed.outcome) for replayed in last)
        return make_divergence(self.played[-1], texts)

    def write_trace(self, path: Path) -> None:
        """Write what the scheduler under test did as a trace.

        Of an event at which it failed, the trace has what should have come. Raises `TraceError` if `path`
        cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_trace(path, self.config, {}) as writer:
            for replayed in self.played:
                writer.write_told(replayed.event, replayed.record.told())


class SchedulersDiffer(AssertionError):  # noqa: N818  the names of errors are the project's vocabulary
    """The scheduler under test did something else. The text is the story."""

    def __init__(self, parting: Parting, story: str) -> None:
        super().__init__(story)
        self.parting = parting
        """Where."""
        self.story = story
        """What happened, for a person."""


HIDE = methodcaller("errisinstance", SchedulersDiffer)
"""For `__tracebackhide__`: a story says it all, so pytest leaves our functions out of its traceback."""
