"""Which random histories are worth bundling: few and short ones that show every rare situation.

Importing this module imports vLLM.
"""

from collections import Counter
from pathlib import Path
from random import Random

import attrs

from kvsched_fp import Event, SchedulerConfig, SchedulingPolicy, initial_state, step
from kvsched_fp.kvcache.hashing import Blake2BlockHasher
from kvsched_fp.trace import open_trace
from tests.conformance.histories import History
from tests.conformance.pins import find_reference, hash_files
from tests.conformance.random_configs import draw_config
from tests.conformance.situations import situations_of

from .recorder import RecordedScheduler

NUM_CANDIDATES = 300
"""Histories to choose from."""
MAX_TOTAL_EVENTS = 2000
"""Events of all that are chosen."""
UNSOUND = "a late result charged to the next request of that id"
"""The reference loses count there, and we with it, so that an invariant is broken: not for a bundle."""
MIN_SEEN = 2
"""How often each situation should occur in all, where it can."""


@attrs.frozen
class Candidate:
    """One history, and what it shows."""

    seed: int
    config: SchedulerConfig
    events: tuple[Event, ...]
    situations: Counter[str]


def record_selection(folder: Path) -> None:
    """Choose histories and record them into `folder`."""
    reference = find_reference()
    assert reference is not None
    candidates = [draw_candidate(seed) for seed in range(NUM_CANDIDATES)]
    for candidate in choose([one for one in candidates if not one.situations[UNSOUND]]):
        path = folder / f"{_name(candidate)}.jsonl"
        recorded = RecordedScheduler(candidate.config)
        with open_trace(path, candidate.config, hash_files(reference)) as writer:
            for event in candidate.events:
                writer.write_told(event, recorded.happen(event))
        print(f"{path.stat().st_size:9,} bytes, {len(candidate.events):4} events  {path.name}")


def draw_candidate(seed: int) -> Candidate:
    """Draw the history of `seed`."""
    rng = Random(seed)
    config = draw_config(rng, Blake2BlockHasher())
    state = initial_state(config)
    history = History(rng, state)
    events: list[Event] = []
    situations: Counter[str] = Counter({_kind(config): MIN_SEEN})
    for event in history.events():
        before = state
        state, _ = step(state, event)
        history.observe(state)
        events.append(event)
        situations.update(situations_of(before, event, state))
    return Candidate(seed, config, tuple(events), situations)


def choose(candidates: list[Candidate]) -> list[Candidate]:
    """Choose greedily: always the history that adds most per event."""
    chosen: list[Candidate] = []
    seen: Counter[str] = Counter()
    while True:
        num_events = sum(len(candidate.events) for candidate in chosen)
        fitting = [one for one in candidates if num_events + len(one.events) <= MAX_TOTAL_EVENTS]
        best = max(fitting, key=lambda one: _gain(one, seen) / len(one.events), default=None)
        if best is None or _gain(best, seen) == 0:
            return sorted(chosen, key=lambda one: one.seed)
        chosen.append(best)
        candidates = [one for one in candidates if one is not best]
        seen.update(best.situations)


def _gain(candidate: Candidate, seen: Counter[str]) -> int:
    return sum(min(count, max(MIN_SEEN - seen[name], 0)) for name, count in candidate.situations.items())


def _name(candidate: Candidate) -> str:
    return f"history_{candidate.seed:03}_{_kind(candidate.config)}"


def _kind(config: SchedulerConfig) -> str:
    policy = "priority" if config.policy is SchedulingPolicy.PRIORITY else "fcfs"
    shape = "v2" if config.use_v2_model_runner else "v1"
    caching = "cached" if config.enable_prefix_caching else "uncached"
    return f"{policy}_{shape}_{caching}"
