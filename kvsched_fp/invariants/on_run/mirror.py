"""The prefix index as somebody outside knows it, who has heard its events and nothing else."""

from collections import Counter
from collections.abc import Iterable

from kvsched_fp.events import Update
from kvsched_fp.ids import BlockKey
from kvsched_fp.invariants.entry import Cost, RunInvariant, Step, run_invariant
from kvsched_fp.invariants.pool_reading import blocks_under, named_keys
from kvsched_fp.kvcache.kv_events import AllBlocksCleared, BlockStored, KVCacheEvent
from kvsched_fp.state import SchedulerState


def _mirror_of(state: SchedulerState) -> Counter[BlockKey]:
    """Give what the outside has heard: the index without what is still to be told."""
    pending = state.kv.pending_events
    if AllBlocksCleared() in pending:
        return Counter()  # whatever it was
    cached = state.kv.pool.cached
    mirror = Counter({key: len(blocks_under(cached, key)) for key in cached})
    for key, change in _changes(pending):
        mirror[key] -= change
    return +mirror


@run_invariant(
    "INV-MIRROR-01",
    Cost.CHEAP,
    "The events of the prefix index, added up since the run began, give the prefix index: after every "
    "update, as many keys, and under each of which was told, as many blocks.",
    "A router that hears the events sends requests to where their prefix is.",
    Update,
    start=_mirror_of,
    memory="for each key of the prefix index, a number",
)
def _events_give_the_index(mirror: Counter[BlockKey], step: Step) -> str | None:
    if not step.before.config.enable_kv_cache_events:
        return None
    cached, events = step.after.kv.pool.cached, step.after.emitted.kv_events
    if AllBlocksCleared() in events:
        mirror.clear()
        events = events[len(events) - events[::-1].index(AllBlocksCleared()) :]
    named = set()
    for key, change in _changes(events):
        mirror[key] += change
        named.add(key)
        if mirror[key] < 0:
            return f"key {key.hex()} is removed once more than it was stored"
    for key in named:
        if mirror[key] != len(blocks_under(cached, key)):
            found = blocks_under(cached, key)
            return f"by the events, {mirror[key]} blocks are under key {key.hex()}; those are {found}"
        if not mirror[key]:
            del mirror[key]
    if len(mirror) == len(cached):
        return None
    return f"by the events, {len(mirror)} keys are in the prefix index, which has {len(cached)}"


def _changes(events: Iterable[KVCacheEvent]) -> Iterable[tuple[BlockKey, int]]:
    """Give the keys that events store and remove, in order, with 1 or -1."""
    for event in events:
        assert not isinstance(event, AllBlocksCleared)
        change = 1 if isinstance(event, BlockStored) else -1
        for key in named_keys(event):
            yield key, change


INVARIANTS: tuple[RunInvariant, ...] = (_events_give_the_index,)
"""In the order in which they are checked."""
