"""Reference counts, the free list and the block tables.

The null block may stand in a table (in place of a block that is not needed any more); it is not counted.
INV-TABLE-03 is exact where no scheduled token is taken back, since every group is full attention.
"""

from collections.abc import Sequence
from itertools import chain

from kvsched_fp.config import Quirk
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, StateInvariant, state_invariant
from kvsched_fp.invariants.pool_reading import integers
from kvsched_fp.invariants.shared import shared
from kvsched_fp.invariants.state_reading import places, unpacked
from kvsched_fp.kvcache.pool import NOT_FREE, NULL_BLOCK, BlockPool
from kvsched_fp.state import SchedulerState


@state_invariant(
    "INV-BLOCK-01",
    Cost.CHEAP,
    "The pool has the configured size, and from none to all but the null block are free.",
    "A count out of range gives out blocks that are not there.",
)
def _pool_has_its_size(state: SchedulerState) -> str | None:
    pool, num_blocks = state.kv.pool, state.config.num_blocks
    if pool.num_blocks == num_blocks and 0 <= pool.num_free_blocks < num_blocks:
        return None
    return f"{pool.num_free_blocks} of {pool.num_blocks} blocks are free, configured are {num_blocks}"


@state_invariant(
    "INV-BLOCK-02",
    Cost.CHEAP,
    "The null block is never held, free or cached.",
    "It stands for no memory.",
)
def _null_block_is_untouched(state: SchedulerState) -> str | None:
    return _null_block_in_use(state.kv.pool)


@shared
def _null_block_in_use(pool: BlockPool) -> str | None:
    found = (pool.ref_counts[NULL_BLOCK], pool.next_free[NULL_BLOCK], pool.prev_free[NULL_BLOCK])
    if found == (0, NOT_FREE, NOT_FREE) and pool.keys[NULL_BLOCK] is None:
        return None
    return (
        f"the null block has reference count {found[0]}, links {found[1:]}, key {pool.keys[NULL_BLOCK]!r}"
    )


@state_invariant(
    "INV-BLOCK-03",
    Cost.FULL,
    "The reference count of a block is the number of table entries that list it.",
    "One too few frees a block in use; one too many loses it for ever.",
)
def _ref_counts_are_table_entries(state: SchedulerState) -> str | None:
    num_entries = [0] * state.config.num_blocks
    for tables in state.kv.tables.values():
        for table in tables:
            for block_id in integers(table.block_ids):
                num_entries[block_id] += 1
    num_entries[NULL_BLOCK] = 0
    ref_counts = unpacked(state.kv.pool).ref_counts
    if ref_counts == num_entries:
        return None
    index = first_difference(ref_counts, num_entries)
    return (
        f"block {index} has reference count {ref_counts[index]}, {num_entries[index]} table entries list it"
    )


@state_invariant(
    "INV-BLOCK-04",
    Cost.FULL,
    "The free list holds exactly the blocks with reference count zero but the null block, each once; its "
    "length is counted.",
    "A block that is free and held is given to two requests; one that is neither is lost.",
    reports=("vLLM PR #44409",),
)
def _free_are_unreferenced(state: SchedulerState) -> str | None:
    return _free_or_not(state.kv.pool)


@shared
def _free_or_not(pool: BlockPool) -> str | None:
    ref_counts, free = unpacked(pool).ref_counts, unpacked(pool).free
    for block_id in free:
        if block_id == NULL_BLOCK or ref_counts[block_id] != 0:
            return f"free block {block_id} has reference count {ref_counts[block_id]}"
    num_unreferenced = ref_counts.count(0) - 1
    if len(free) == pool.num_free_blocks == num_unreferenced:
        return None
    return (
        f"{len(free)} blocks are in the free list, {pool.num_free_blocks} are counted as free, "
        f"{num_unreferenced} have no reference"
    )


@state_invariant(
    "INV-BLOCK-05",
    Cost.FULL,
    "The backward links of the free list mirror the forward ones; a block that is not free has none.",
    "A block in the middle leaves by both; and equal free orders are equal values.",
)
def _links_mirror(state: SchedulerState) -> str | None:
    return _broken_link(state.kv.pool)


@shared
def _broken_link(pool: BlockPool) -> str | None:
    sentinel = pool.num_blocks
    _, _, _, next_free, free = unpacked(pool)
    expected_next, expected_prev = [NOT_FREE] * (sentinel + 1), [NOT_FREE] * (sentinel + 1)
    before = sentinel
    for block_id in chain(free, (sentinel,)):
        expected_next[before] = block_id
        expected_prev[block_id] = before
        before = block_id
    for name, links, expected in (
        ("next_free", next_free, expected_next),
        ("prev_free", integers(pool.prev_free), expected_prev),
    ):
        if links != expected:
            index = first_difference(links, expected)
            return f"{name}[{index}] is {links[index]}, the order of the free list says {expected[index]}"
    return None


@state_invariant(
    "INV-BLOCK-06",
    Cost.FULL,
    "A request lists no block twice.",
    "Two positions of one request would write to the same memory.",
    reports=("vLLM PR #44409",),
)
def _no_block_twice(state: SchedulerState) -> str | None:
    if unpacked(state.kv.pool).most_references <= 1:
        return None  # then INV-BLOCK-03 says that no block is listed twice by anybody
    for request_id, tables in state.kv.tables.items():
        block_ids = [block_id for table in tables for block_id in table.block_ids if block_id != NULL_BLOCK]
        if len(set(block_ids)) != len(block_ids):
            twice = next(block_id for block_id in block_ids if block_ids.count(block_id) > 1)
            return f"request {request_id} lists block {twice} twice"
    return None


@state_invariant(
    "INV-BLOCK-07",
    Cost.FULL,
    "Only cached blocks are shared.",
    "Two requests may hold a block only where they agree on what is in it.",
)
def _shared_are_cached(state: SchedulerState) -> str | None:
    return _shared_without_key(state.kv.pool)


@shared
def _shared_without_key(pool: BlockPool) -> str | None:
    ref_counts, most_references, keys, _, _ = unpacked(pool)
    if most_references <= 1:
        return None
    for block_id, (ref_count, key) in enumerate(zip(ref_counts, keys, strict=True)):
        if ref_count > 1 and key is None:
            return f"block {block_id} is not cached and has reference count {ref_count}"
    return None


@state_invariant(
    "INV-BLOCK-08",
    Cost.FULL,
    "Whoever shares a block agrees on all known tokens up to its end, on the salt and on the adapter.",
    "What was computed behind another prefix, for another tenant or adapter is something else.",
)
def _sharers_agree(state: SchedulerState) -> str | None:
    ref_counts, most_references, _, _, _ = unpacked(state.kv.pool)
    if most_references <= 1:
        return None
    block_size = state.config.block_size
    seen: dict[int, tuple[object, RequestId]] = {}
    for request_id, tables in sorted(state.kv.tables.items()):
        request, progress = state.requests[request_id], state.progress[request_id]
        known = (*request.prompt_token_ids, *progress.output_token_ids)
        adapter = request.lora and (request.lora.name, request.lora.path)
        for table in tables:
            for index, block_id in enumerate(table.block_ids):
                if ref_counts[block_id] < 2:
                    continue
                content = (known[: (index + 1) * block_size], request.cache_salt or None, adapter)
                first, other = seen.setdefault(block_id, (content, request_id))
                if first != content:
                    return f"requests {other} and {request_id} share block {block_id} and differ in it"
    return None


@state_invariant(
    "INV-TABLE-01",
    Cost.FULL,
    "Exactly the running requests and the waiting ones that hold blocks have tables, one per group.",
    "A table of anybody else keeps blocks for nothing.",
)
def _holders_have_tables(state: SchedulerState) -> str | None:
    holders = set(chain(state.running, state.kv_holding_waiting))
    num_groups = len(state.config.kv_cache_groups)
    for request_id, tables in state.kv.tables.items():
        if request_id not in holders:
            return f"request {request_id} has tables, but neither runs nor waits with blocks"
        if len(tables) != num_groups:
            return f"request {request_id} has {len(tables)} tables for {num_groups} groups"
    if len(holders) == len(state.kv.tables):
        return None
    without = next(request_id for request_id in holders if request_id not in state.kv.tables)
    return f"request {without} has no tables"


@state_invariant(
    "INV-TABLE-02",
    Cost.FULL,
    "The slots of whoever holds blocks cover every computed token, in every group; with the quirk "
    "OUTGROWS_MODEL_LEN, up to max_model_len.",
    "A token without a slot is written into somebody else's memory.",
)
def _slots_cover_computed(state: SchedulerState) -> str | None:
    block_size = state.config.block_size
    may_outgrow, tables = Quirk.OUTGROWS_MODEL_LEN in state.config.quirks, state.kv.tables
    _, running, _, holding = places(state)
    for request_id, _, progress, _ in chain(running, holding):
        num_computed_tokens = progress.num_computed_tokens
        if may_outgrow:
            # A session may be longer, for which there are no blocks (deviation D-11).
            num_computed_tokens = min(num_computed_tokens, state.config.max_model_len)
        for group_index, table in enumerate(tables[request_id]):
            if table.block_ids.length * block_size < num_computed_tokens:
                return (
                    f"request {request_id} has {len(table.block_ids)} blocks of {block_size} in group "
                    f"{group_index} for {num_computed_tokens} computed tokens"
                )
    return None


@state_invariant(
    "INV-TABLE-03",
    Cost.FULL,
    "A running request holds no block beyond its computed tokens and the lookahead. Where tokens are taken "
    "back, it keeps their blocks: none beyond what is known, num_spec_tokens more and the lookahead, or, "
    "with placeholders, beyond max_model_len.",
    "Blocks that are taken too early are missing for others.",
)
def _no_block_too_many(state: SchedulerState) -> str | None:
    block_size, lookahead = state.config.block_size, state.config.num_lookahead_tokens
    for request_id in state.running:
        num_slots = _num_reached(state, request_id) + lookahead
        most = _num_blocks(min(num_slots, state.config.max_model_len), block_size)
        for group_index, table in enumerate(state.kv.tables[request_id]):
            if len(table.block_ids) > most:
                return (
                    f"request {request_id} has {len(table.block_ids)} blocks of {block_size} in group "
                    f"{group_index} for {num_slots} tokens, lookahead included"
                )
    return None


def _num_reached(state: SchedulerState, request_id: RequestId) -> int:
    """Give the most tokens that a running request has ever counted as computed since it was admitted."""
    config, request, progress = state.config, state.requests[request_id], state.progress[request_id]
    if config.async_scheduling and (config.num_spec_tokens or request.resumable):
        return config.max_model_len
    if config.num_spec_tokens:
        num_known = len(request.prompt_token_ids) + len(progress.output_token_ids)
        return num_known + config.num_spec_tokens
    return progress.num_computed_tokens


def first_difference(found: Sequence[object], expected: Sequence[object]) -> int:
    """Give the first index at which two sequences differ, which may be behind the end of one of them."""
    pairs = enumerate(zip(found, expected, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(found), len(expected)))


def _num_blocks(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)


INVARIANTS: tuple[StateInvariant, ...] = (
    _pool_has_its_size,
    _null_block_is_untouched,
    _ref_counts_are_table_entries,
    _free_are_unreferenced,
    _links_mirror,
    _no_block_twice,
    _shared_are_cached,
    _sharers_agree,
    _holders_have_tables,
    _slots_cover_computed,
    _no_block_too_many,
)
"""In the order in which they are checked."""
