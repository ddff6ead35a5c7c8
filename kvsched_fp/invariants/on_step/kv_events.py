"""The events of the prefix index replay to the prefix index.

The index may list several blocks under one key, and each of them is stored and removed by an event of its
own. So a mirror has to count: a key is in the index while more was stored than removed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.events import ResetPrefixCache, Schedule, Update
from kvsched_fp.ids import BlockHash, BlockKey
from kvsched_fp.invariants.entry import ALL_EVENTS, Cost, Step, StepInvariant, step_invariant
from kvsched_fp.invariants.on_step.brought import outputs_told
from kvsched_fp.invariants.pool_reading import blocks_under, named_keys
from kvsched_fp.kvcache.kv_events import AllBlocksCleared, BlockStored, KVCacheEvent
from kvsched_fp.request import Request


@step_invariant(
    "INV-EVENT-01",
    Cost.CHEAP,
    "An update hands out all events since the update before, in order, and then the blocks that it caches "
    "itself; where all tokens are known when they are scheduled, there are none.",
    "A router that misses one is wrong about the index for ever.",
    Update,
)
def _events_go_out_once(step: Step) -> str | None:
    pending, told = step.before.kv.pending_events, step.after.emitted.kv_events
    own = told[len(pending) :]
    may_cache = _caches_late(step) and all(isinstance(event, BlockStored) for event in own)
    if told[: len(pending)] == pending and (may_cache or not own) and not step.after.kv.pending_events:
        return None
    num_left = len(step.after.kv.pending_events)
    return f"{len(pending)} events were pending, {len(told)} went out, {num_left} are left"


@step_invariant(
    "INV-EVENT-02",
    Cost.CHEAP,
    "The events of a step say, key by key, how the number of blocks under the key changed, and no other "
    "key comes or goes.",
    "Replayed from the start they give the prefix index.",
    Schedule,
    Update,
    ResetPrefixCache,
)
def _events_replay(step: Step) -> str | None:
    if not step.before.config.enable_kv_cache_events:
        return None
    pending = step.before.kv.pending_events
    if _events_behind(step)[: len(pending)] != pending:
        return f"the {len(pending)} pending events did not stay"
    cached, now = step.before.kv.pool.cached, step.after.kv.pool.cached
    changes, cleared = _count_changes(_events_behind(step)[len(pending) :])
    num_keys = 0 if cleared else len(cached)
    for key, change in changes.items():
        num_blocks = 0 if cleared else len(blocks_under(cached, key))
        num_now = len(blocks_under(now, key))
        if num_blocks + change != num_now:
            return f"key {key.hex()}: {num_blocks} blocks, {change:+} by the events, {num_now} in the index"
        num_keys += (num_blocks + change > 0) - (num_blocks > 0)
    return None if num_keys == len(now) else f"the events leave {num_keys} keys, the index has {len(now)}"


@step_invariant(
    "INV-EVENT-03",
    Cost.CHEAP,
    "Nothing but a schedule and a reset changes the prefix index; but that an update adds to it where "
    "tokens are not known when they are scheduled.",
    "A request that ends leaves its blocks to later ones.",
    *(kind for kind in ALL_EVENTS if kind is not Schedule and kind is not ResetPrefixCache),
)
def _index_stays(step: Step) -> str | None:
    before, after = step.before.kv, step.after.kv
    num_more = len(after.pool.cached) - len(before.pool.cached)
    if num_more and not (num_more > 0 and isinstance(step.event, Update) and _caches_late(step)):
        return f"{len(before.pool.cached)} keys became {len(after.pool.cached)}"
    if len(after.pending_events) > len(before.pending_events):
        return f"{type(step.event).__name__} made {len(after.pending_events)} pending events"
    return None


@step_invariant(
    "INV-EVENT-04",
    Cost.FULL,
    "Blocks come and go under no key but those that the events of the step name.",
    "A change that is not reported is one that a mirror misses.",
    *ALL_EVENTS,
)
def _unnamed_keys_stay(step: Step) -> str | None:
    before, after = step.before.kv, step.after.kv
    if before.pool.cached is after.pool.cached or isinstance(step.event, ResetPrefixCache):
        return None
    named: Collection[BlockKey] = ()
    if isinstance(step.event, Schedule) or (isinstance(step.event, Update) and _caches_late(step)):
        if not step.before.config.enable_kv_cache_events:
            return None
        named, _ = _count_changes(_events_behind(step)[len(before.pending_events) :])
    for key in {*before.pool.cached, *after.pool.cached}.difference(named):
        earlier, later = blocks_under(before.pool.cached, key), blocks_under(after.pool.cached, key)
        if earlier != later:
            return f"key {key.hex()} listed the blocks {earlier} and lists {later}, without an event"
    return None


@step_invariant(
    "INV-EVENT-05",
    Cost.FULL,
    "Blocks that are told to be stored are those of one request of the step, and the event says what it "
    "says: their tokens, the block before them, the adapter, the salt, and what their hashes look ahead "
    "to.",
    "A router names the prompts of its own by it.",
    Schedule,
    Update,
)
def _stored_as_its_owner_says(step: Step) -> str | None:
    if not step.before.config.enable_kv_cache_events:
        return None
    new = _events_behind(step)[len(step.before.kv.pending_events) :]
    stored = [event for event in new if isinstance(event, BlockStored)]
    owners = list(_owners(step)) if stored else []
    # The names of what a request was told with its end have gone with it.
    may_be_gone = step.went_on or any(row[4] is None for row in step.rows)
    for event in stored:
        said = [it for it in (_as_told_by(owner, step.before.config, event) for owner in owners) if it]
        if event not in said and (said or not may_be_gone):
            return f"{event} is told; by the requests of the step, it is {said}"
    return None


class _Owner(NamedTuple):
    """A request, as it was when its row was planned or came back."""

    request: Request
    known: tuple[int, ...]
    hashes: tuple[BlockHash, ...]


def _owners(step: Step) -> Iterator[_Owner]:
    """Give the requests whose blocks may be stored; of one that stopped, the hashes from before."""
    if isinstance(step.event, Schedule):
        for request_id in (*step.output.num_scheduled_tokens, *step.victims):
            request, progress = step.after.requests[request_id], step.after.progress[request_id]
            known = (*request.prompt_token_ids, *progress.output_token_ids)
            yield _Owner(request, known, progress.block_hashes)
        return
    told_ids = {output.request_id: output.new_token_ids for output in outputs_told(step)}
    for request_id, _, request, earlier, progress, _ in step.rows:
        if earlier is not None:
            known = (*request.prompt_token_ids, *earlier.output_token_ids, *told_ids.get(request_id, ()))
            has_stopped = progress is None or request_id in step.went_on
            yield _Owner(request, known, (earlier if has_stopped else progress).block_hashes)


def _as_told_by(owner: _Owner, config: SchedulerConfig, event: BlockStored) -> BlockStored | None:
    """Give the event about the same blocks as a request would tell it; None if it has no such blocks."""
    request, known, hashes = owner
    size, lora, num_ahead = config.block_size, request.lora, config.num_hash_lookahead_tokens
    start = hashes.index(event.block_hashes[0]) if event.block_hashes[0] in hashes else len(hashes)
    end = start + len(event.block_hashes)
    if hashes[start:end] != event.block_hashes:
        return None
    names = () if lora is None else (lora.name,)
    salts = (request.cache_salt,) if request.cache_salt and start == 0 else ()
    behind = tuple(known[(at + 1) * size :][:num_ahead] for at in range(start, end))
    return BlockStored(
        block_hashes=event.block_hashes,
        parent_block_hash=hashes[start - 1] if start else None,
        token_ids=known[start * size : end * size],
        block_size=size,
        extra_keys=((*names, *salts) or None, *[names or None] * (end - start - 1)),
        group_index=event.group_index,
        lora_id=None if lora is None else lora.lora_id,
        lora_name=None if lora is None else lora.name,
        lookahead_token_ids=behind if num_ahead else None,
    )


def _caches_late(step: Step) -> bool:
    """Tell whether tokens may be unknown when they are scheduled, so that an update caches their blocks."""
    return step.before.config.async_scheduling or step.before.config.num_spec_tokens > 0


def _events_behind(step: Step) -> tuple[KVCacheEvent, ...]:
    """Give the events that were pending and those of the step; an update has handed them out."""
    if isinstance(step.event, Update):
        return step.after.emitted.kv_events
    return step.after.kv.pending_events


def _count_changes(events: Iterable[KVCacheEvent]) -> tuple[Counter[BlockKey], bool]:
    """Count stored less removed blocks per key since the last clearing, and tell whether there was one."""
    changes: Counter[BlockKey] = Counter()
    cleared = False
    for event in events:
        if isinstance(event, AllBlocksCleared):
            changes.clear()
            cleared = True
            continue
        change = 1 if isinstance(event, BlockStored) else -1
        for key in named_keys(event):
            changes[key] += change
    return changes, cleared


INVARIANTS: tuple[StepInvariant, ...] = (
    _events_go_out_once,
    _events_replay,
    _index_stays,
    _unnamed_keys_stay,
    _stored_as_its_owner_says,
)
"""In the order in which they are checked."""
