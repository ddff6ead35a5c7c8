"""Making a divergence small, with the real scheduler as the judge, and saving it as a trace.

A trace has outcomes and no state, so the history of the seed is played to its end: what began in the state
alone mostly shows in an outcome later on. It also names blocks by `Blake2BlockHasher`, where the suite has
the reference's own hash function. Where nothing shows in that way, the next best is taken: the reference's
hashes, which a trace calls opaque; then a difference in the state, which `run --replay` shows and
`kvsched-fp check` does not.

Importing this module imports vLLM.
"""

from pathlib import Path

import attrs

from kvsched_fp import Event, InvalidEvent, SchedulerConfig, initial_state, step
from kvsched_fp.kvcache.hashing import Blake2BlockHasher
from kvsched_fp.trace import open_trace
from kvsched_fp.trace.block_names import OpaqueBlockHasher
from kvsched_fp.trace.codec import what_was_told
from kvsched_fp.trace.shrink import DEFAULT_MAX_TRIES, shrink
from tests.traces.recorder import RecordedScheduler

from .kinds import PLAIN, Drawn, Kind
from .live_judge import judge_everything, judge_outcomes
from .vllm_hasher import VllmBlockHasher


@attrs.frozen
class Small:
    """A small history that still differs, at its last event."""

    config: SchedulerConfig
    events: tuple[Event, ...]
    num_tries: int
    """Smaller histories that were played."""
    shows_in_outcomes: bool
    """Whether a trace shows the difference; else only the states differ, or the reference crashed."""


def make_small(seed: int, kind: Kind = PLAIN, *, max_tries: int = DEFAULT_MAX_TRIES) -> Small | None:
    """Shrink the history of `seed`; None if it does not differ."""
    for judge_of in (judge_outcomes, judge_everything):
        for hasher in (Blake2BlockHasher(), VllmBlockHasher()):
            drawn = kind.draw(seed, hasher)
            config, events = drawn.config, draw_events(drawn)
            shrunk = shrink(config, events, judge_of(config), judge_of=judge_of, max_tries=max_tries)
            if shrunk is not None:
                return Small(shrunk.config, shrunk.events, shrunk.num_tries, judge_of is judge_outcomes)
    return None


def draw_events(drawn: Drawn) -> tuple[Event, ...]:
    """Draw a whole history, up to an event that we refuse: `known_crashes.py`."""
    state = initial_state(drawn.config)
    history = drawn.history(state)
    events: list[Event] = []
    for event in history.events():
        try:
            state, _ = step(state, event)
        except InvalidEvent:
            break
        history.observe(state)
        events.append(event)
    return tuple(events)


def save_trace(small: Small, path: Path) -> None:
    """Write a small history down, as the real scheduler tells it; what it did not tell, as we do."""
    config = small.config
    if isinstance(config.block_hasher, VllmBlockHasher):
        config = attrs.evolve(config, block_hasher=OpaqueBlockHasher())
    recorded, after = RecordedScheduler(small.config), initial_state(small.config)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_trace(path, config, {}) as writer:
        for event in small.events:
            after, outcome = step(after, event)
            try:
                told = recorded.happen(event)
            except Exception:  # whatever the reference raises, no record can tell
                told = what_was_told(event, after, outcome)
            writer.write_told(event, told)
