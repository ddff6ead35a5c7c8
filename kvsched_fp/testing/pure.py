"""The machine of this package as a scheduler under test: shows how an adapter is written, and must pass."""

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.events import Event
from kvsched_fp.machine import step
from kvsched_fp.state import SchedulerState, initial_state
from kvsched_fp.testing.adapter import Adapter
from kvsched_fp.testing.features import EVERYTHING
from kvsched_fp.testing.views import view_of
from kvsched_fp.trace.codec import Told, what_was_told


class PureAdapter(Adapter):
    """The pure functions."""

    features = EVERYTHING
    state: SchedulerState

    def start(self, config: SchedulerConfig) -> None:
        """Begin with an empty state."""
        self.state = initial_state(config)

    def happen(self, event: Event) -> Told:
        """Apply `step()`."""
        self.state, outcome = step(self.state, event)
        return what_was_told(event, self.state, outcome)

    def view(self) -> dict[str, object]:
        """Give all that is compared."""
        return view_of(self.state)
