"""Finding the situations in which nothing happens by itself."""

from kvsched_fp.events import Event, Schedule, StepResult, Update
from kvsched_fp.explore.canonical import Canonicalizer
from kvsched_fp.explore.moves import Moves, StepFunction
from kvsched_fp.explore.situation import Situation
from kvsched_fp.invariants.liveness import Standstill, classify_standstill
from kvsched_fp.machine import Outcome
from kvsched_fp.outputs import SchedulerOutput

_SCHEDULE = Schedule()


class StandstillFinder:
    """Looks at the moves by which the engine plans a step."""

    def __init__(self, moves: Moves, canonicalizer: Canonicalizer, step: StepFunction) -> None:
        self._moves = moves
        self._canonicalizer = canonicalizer
        self._step = step

    def find(
        self, key: bytes, before: Situation, event: Event, after: Situation, outcome: Outcome
    ) -> Standstill | None:
        """Give what `before`, whose key is `key`, waits for if it is at a standstill, else None.

        The engine plans a step and takes in its answer; if nobody was in the step and the form is the same,
        every further step does the same. While a step is in flight, its answer is the engine's own event.
        """
        if not isinstance(outcome, SchedulerOutput) or outcome.num_scheduled_tokens:
            return None
        if event != _SCHEDULE or before.state.in_flight:
            return None
        answer = Update(StepResult(step_id=outcome.step_id))
        answered, _ = self._moves.follow(after, answer, self._step)
        if self._canonicalizer.key(answered) != key:
            return None
        return classify_standstill(before.state)
