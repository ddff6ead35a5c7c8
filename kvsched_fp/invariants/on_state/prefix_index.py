"""Which block is cached under which key.

INV-CACHE-04 is exact where tokens are known when they are scheduled, since every group is full attention.
"""

from itertools import chain

from kvsched_fp.config import Quirk, SchedulerConfig
from kvsched_fp.ids import BlockKey
from kvsched_fp.invariants.entry import Cost, StateInvariant, state_invariant
from kvsched_fp.invariants.pool_reading import blocks_under, integers
from kvsched_fp.invariants.shared import shared
from kvsched_fp.invariants.state_reading import Live, places, unpacked
from kvsched_fp.kvcache.pool import BlockPool
from kvsched_fp.state import SchedulerState


@state_invariant(
    "INV-CACHE-01",
    Cost.FULL,
    "Every block in the prefix index has the key that it stands under; one block stands alone, several "
    "different ones in a tuple.",
    "A look-up would answer a block that holds something else; and equal contents are equal values.",
)
def _index_agrees_with_keys(state: SchedulerState) -> str | None:
    return _wrong_entry(state.kv.pool)


@shared
def _wrong_entry(pool: BlockPool) -> str | None:
    keys = unpacked(pool).keys
    for key, blocks in pool.cached.items():
        if isinstance(blocks, tuple):
            if not 1 < len(blocks) == len(set(blocks)):
                return f"key {key.hex()} lists the blocks {blocks}"
            wrong = [block_id for block_id in blocks if keys[block_id] != key]
        elif keys[blocks] != key:
            wrong = [blocks]
        else:
            continue
        if wrong:
            found = [_show(keys[block_id]) for block_id in wrong]
            return f"the blocks {wrong}, listed under {key.hex()}, have the keys {found}"
    return None


@state_invariant(
    "INV-CACHE-02",
    Cost.FULL,
    "Every block with a key is listed under it.",
    "It could not be found, and its key would never leave.",
)
def _keys_agree_with_index(state: SchedulerState) -> str | None:
    return _missing_entry(state.kv.pool)


@shared
def _missing_entry(pool: BlockPool) -> str | None:
    keys = unpacked(pool).keys
    if len(pool.cached) == len(keys) - keys.count(None):
        return (
            None  # then INV-CACHE-01 says that each key lists one block, and there is no other with a key
        )
    for block_id, key in enumerate(keys):
        if key is not None and block_id not in blocks_under(pool.cached, key):
            return f"block {block_id} has the key {key.hex()} and is not listed under it"
    return None


@state_invariant(
    "INV-CACHE-03",
    Cost.FULL,
    "In a table, the first num_cached_blocks blocks have the keys of the holder's block hashes, the others "
    "none.",
    "The key says what is in the block; the holder knows.",
)
def _keys_are_the_holders_hashes(state: SchedulerState) -> str | None:
    keys = unpacked(state.kv.pool).keys
    may_outgrow = Quirk.OUTGROWS_MODEL_LEN in state.config.quirks
    for request_id, tables in state.kv.tables.items():
        hashes = state.progress[request_id].block_hashes
        for group_index, table in enumerate(tables):
            suffix = group_index.to_bytes(4, "big")
            expected: list[object] = [
                block_hash + suffix for block_hash in hashes[: table.num_cached_blocks]
            ]
            expected += [None] * (len(table.block_ids) - table.num_cached_blocks)
            found = [keys[block_id] for block_id in integers(table.block_ids)]
            if may_outgrow:
                # A session longer than max_model_len has no blocks for all of it (deviation D-11).
                del expected[len(found) :]
            if found != expected:
                return (
                    f"request {request_id}, group {group_index}, {table.num_cached_blocks} cached blocks: "
                    f"the keys of the blocks {list(table.block_ids)} are not those of its hashes"
                )
    return None


@state_invariant(
    "INV-CACHE-04",
    Cost.FULL,
    "With prefix caching, exactly the full blocks of computed tokens are cached of whoever holds blocks. "
    "The last known token need not count if it came behind the step that computes it, nor need what a "
    "drafter may compute again, nor what a hash looks ahead to.",
    "One block more names tokens that nobody computed; one less is computed again by the next request.",
)
def _full_blocks_are_cached(state: SchedulerState) -> str | None:
    block_size = state.config.block_size
    _, running, _, holding = places(state)
    for one in chain(running, holding):
        request_id = one[0]
        fewest, most = _num_tokens_to_cache(state.config, one)
        for group_index, table in enumerate(state.kv.tables[request_id]):
            if not fewest // block_size <= table.num_cached_blocks <= most // block_size:
                return (
                    f"request {request_id} has {table.num_cached_blocks} cached blocks of {block_size} in "
                    f"group {group_index}, for at least {fewest} and at most {most} tokens"
                )
    return None


def _num_tokens_to_cache(config: SchedulerConfig, one: Live) -> tuple[int, int]:
    """Give the fewest and the most tokens whose full blocks are cached."""
    _, _, progress, num_known = one
    if not config.enable_prefix_caching:
        return 0, 0
    num_computed_tokens = progress.num_computed_tokens
    fewest = num_computed_tokens
    if num_computed_tokens >= num_known and (config.num_spec_tokens or progress.num_output_placeholders):
        fewest = num_known - 1  # the last one may have come behind a step that computes it
    if Quirk.OUTGROWS_MODEL_LEN in config.quirks:
        # For what a session has beyond max_model_len, there are no blocks (deviation D-11).
        fewest = min(fewest, config.max_model_len)
    num_not_yet = max(config.num_reprefillable_tokens, config.num_hash_lookahead_tokens)
    return max(fewest - num_not_yet, 0), min(num_computed_tokens, num_known)


@state_invariant(
    "INV-CACHE-05",
    Cost.CHEAP,
    "Without prefix caching, the prefix index is empty.",
    "Nobody looks anything up.",
)
def _no_index_without_caching(state: SchedulerState) -> str | None:
    if state.config.enable_prefix_caching or not state.kv.pool.cached:
        return None
    return f"{len(state.kv.pool.cached)} keys are in the prefix index, and caching is off"


@state_invariant(
    "INV-CACHE-06",
    Cost.FULL,
    "In the free list, blocks without a key stand before the ones with a key.",
    "Nothing cached is evicted while an empty block is free.",
)
def _empty_blocks_go_first(state: SchedulerState) -> str | None:
    return _empty_behind_cached(state.kv.pool)


@shared
def _empty_behind_cached(pool: BlockPool) -> str | None:
    keys = unpacked(pool).keys
    last_cached: int | None = None
    for block_id in unpacked(pool).free:
        if keys[block_id] is not None:
            last_cached = block_id
        elif last_cached is not None:
            return f"free block {block_id} has no key and stands behind the cached block {last_cached}"
    return None


def _show(key: BlockKey | None) -> str:
    return "None" if key is None else key.hex()


INVARIANTS: tuple[StateInvariant, ...] = (
    _index_agrees_with_keys,
    _keys_agree_with_index,
    _keys_are_the_holders_hashes,
    _full_blocks_are_cached,
    _no_index_without_caching,
    _empty_blocks_go_first,
)
"""In the order in which they are checked."""
