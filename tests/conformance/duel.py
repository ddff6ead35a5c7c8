"""One history, played by both sides until they differ."""

from collections import Counter
from itertools import combinations

import attrs

from kvsched_fp import Event, Schedule, SchedulerConfig, SchedulerState

from .compare import Difference, first_difference
from .kinds import PLAIN, Kind
from .known_crashes import is_known_crash
from .oracle import OracleScheduler
from .plain import Plain
from .reference import ReferenceScheduler
from .situations import situations_of
from .situations_of_steps import count_decisions
from .vllm_hasher import VllmBlockHasher


@attrs.frozen
class Divergence:
    """Where a history went different ways."""

    seed: int
    config: SchedulerConfig
    events: tuple[Event, ...]
    """Up to and including the one that showed it."""
    difference: Difference

    def __str__(self) -> str:
        return (
            f"seed {self.seed}, event {len(self.events) - 1}: {self.events[-1]}\n"
            f"{self.difference}\nconfiguration: {self.config}"
        )


@attrs.define
class Tally:
    """What was played, over many histories."""

    num_histories: int = 0
    num_events: int = 0
    num_decisions: int = 0
    """Rows of a batch, and preemptions."""
    configs: set[SchedulerConfig] = attrs.field(factory=set)
    situations: Counter[str] = attrs.field(factory=Counter)
    """How often each of `SITUATIONS` occurred."""
    pairs: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    """In how many histories each pair of features met."""

    def count(self, before: SchedulerState, event: Event, after: SchedulerState) -> None:
        """Count one event that both sides agreed on."""
        self.num_events += 1
        self.situations.update(situations_of(before, event, after))
        if isinstance(event, Schedule):
            self.num_decisions += count_decisions(before, after)


def play_history(seed: int, tally: Tally, kind: Kind = PLAIN) -> Divergence | None:
    """Play the history of `seed`; give where it diverged, or None."""
    drawn = kind.draw(seed, VllmBlockHasher())
    config = drawn.config
    tally.num_histories += 1
    tally.configs.add(config)
    tally.pairs.update(combinations(sorted(drawn.features), 2))
    reference, oracle = ReferenceScheduler(config), OracleScheduler(config)
    history = drawn.history(oracle.state)
    events: list[Event] = []
    for event in history.events():
        events.append(event)
        before = oracle.state
        crash, difference = play_on_both(reference, oracle, event)
        if crash is not None:
            tally.situations[crash] += 1
            return None
        if difference is not None:
            return Divergence(seed, config, tuple(events), difference)
        tally.count(before, event, oracle.state)
        history.observe(oracle.state)
    return None


def play_on_both(
    reference: ReferenceScheduler, oracle: OracleScheduler, event: Event
) -> tuple[str | None, Difference | None]:
    """Let `event` happen on both sides; give the known crash of the reference, if any, and what differs.

    An event that both refuse, in the same words, is a difference, too: the history is nonsense.
    """
    before = oracle.state
    left, right = play_event(reference, event), play_event(oracle, event)
    crash = is_known_crash(before, event, left.get("raised", ""), right.get("raised", ""))
    if crash is not None:
        return crash, None
    # Almost always they are equal, and comparing two texts is the fastest way to know.
    difference = None if repr(left) == repr(right) else first_difference(left, right)
    if difference is None and "raised" in left:
        difference = Difference("raised", left, right)
    return None, difference


def play_event(side: ReferenceScheduler | OracleScheduler, event: Event) -> Plain:
    """Let `event` happen on one side; give the outcome and the state, or what was raised."""
    try:
        told = side.apply(event)
    except Exception as error:  # whatever a side raises is compared with the other side
        return {"raised": f"{type(error).__name__}: {error}"}
    return {"told": told, "view": side.view()}
