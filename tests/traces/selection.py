"""Which random histories are worth bundling: few and short ones that show every rare situation.

Importing this module imports vLLM.
"""

from collections import Counter
from pathlib import Path

import attrs

from kvsched_fp import Event, SchedulerConfig, SchedulingPolicy, initial_state, step
from kvsched_fp.kvcache.hashing import Blake2BlockHasher
from kvsched_fp.trace import open_trace
from tests.conformance.kinds import FEATURED, PLAIN, Kind
from tests.conformance.pins import find_reference, hash_files
from tests.conformance.situations import situations_of
from tests.conformance.small import draw_events
from tests.mutants.play import play_drawn

from .recorder import RecordedScheduler

NUM_CANDIDATES = 300
"""Histories of each kind to choose from."""
MAX_TOTAL_EVENTS = {PLAIN: 2000, FEATURED: 1500}
"""Events of all that are chosen."""
MIN_SEEN = {PLAIN: 2, FEATURED: 1}
"""How often each situation should occur in all, where it can."""
UNSOUND = "a late result charged to the next request of that id"
"""The reference loses count there, and we with it, so that an invariant is broken: not for a bundle."""


@attrs.frozen
class Candidate:
    """One history, and what it shows."""

    seed: int
    kind: Kind
    config: SchedulerConfig
    events: tuple[Event, ...]
    situations: Counter[str]
    """Features included: each is a situation."""


def record_selection(folder: Path) -> None:
    """Choose histories and record them into `folder`."""
    reference = find_reference()
    assert reference is not None
    for candidate in (*choose_among(PLAIN), *choose_among(FEATURED)):
        path = folder / f"{_name(candidate)}.jsonl"
        recorded = RecordedScheduler(candidate.config)
        with open_trace(path, candidate.config, hash_files(reference)) as writer:
            for event in candidate.events:
                writer.write_told(event, recorded.happen(event))
        print(f"{path.stat().st_size:9,} bytes, {len(candidate.events):4} events  {path.name}")


def choose_among(kind: Kind) -> list[Candidate]:
    """Choose from the histories of one kind."""
    drawn = (draw_candidate(seed, kind) for seed in range(NUM_CANDIDATES))
    return choose(kind, [one for one in drawn if not one.situations[UNSOUND]])


def draw_candidate(seed: int, kind: Kind) -> Candidate:
    """Draw the history of `seed`; one with features is kept within what the invariants speak of."""
    drawn = kind.draw(seed, Blake2BlockHasher())
    events = play_drawn(drawn).events if kind.has_features else draw_events(drawn)
    state = initial_state(drawn.config)
    situations = Counter(dict.fromkeys((_shape(drawn.config), *drawn.features), MIN_SEEN[kind]))
    for event in events:
        before = state
        state, _ = step(before, event)
        situations.update(situations_of(before, event, state))
    return Candidate(seed, kind, drawn.config, events, situations)


def choose(kind: Kind, candidates: list[Candidate]) -> list[Candidate]:
    """Choose greedily: always the history that adds most per event."""
    chosen: list[Candidate] = []
    seen: Counter[str] = Counter()
    while True:
        num_events = sum(len(candidate.events) for candidate in chosen)
        fitting = [one for one in candidates if num_events + len(one.events) <= MAX_TOTAL_EVENTS[kind]]
        best = max(fitting, key=lambda one: _gain(one, seen) / len(one.events), default=None)
        if best is None or _gain(best, seen) == 0:
            return sorted(chosen, key=lambda one: one.seed)
        chosen.append(best)
        candidates = [one for one in candidates if one is not best]
        seen.update(best.situations)


def _gain(candidate: Candidate, seen: Counter[str]) -> int:
    most = MIN_SEEN[candidate.kind]
    return sum(min(count, max(most - seen[name], 0)) for name, count in candidate.situations.items())


def _name(candidate: Candidate) -> str:
    begin = "features" if candidate.kind.has_features else "history"
    return f"{begin}_{candidate.seed:03}_{_shape(candidate.config)}"


def _shape(config: SchedulerConfig) -> str:
    policy = "priority" if config.policy is SchedulingPolicy.PRIORITY else "fcfs"
    shape = "v2" if config.use_v2_model_runner else "v1"
    caching = "cached" if config.enable_prefix_caching else "uncached"
    return f"{policy}_{shape}_{caching}"
