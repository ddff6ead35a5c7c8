"""The same situation under other names: blocks renamed, step numbers moved."""

import attrs
from immutables import Map

from kvsched_fp.explore.situation import Situation
from kvsched_fp.ids import BlockId, BlockKey
from kvsched_fp.kvcache.chunked import IntVector, make_int_vector, make_object_vector
from kvsched_fp.kvcache.coordinator import as_block_ids
from kvsched_fp.kvcache.layered import LayeredMap
from kvsched_fp.kvcache.pool import NOT_FREE, BlockPool, as_tuple
from kvsched_fp.state import SchedulerState


def rename_blocks(situation: Situation, names: list[int]) -> Situation:
    """Give every block another id: `names[id]`. Block 0 keeps its own.

    Steps in flight keep the ids from before: nobody reads them any more.
    """
    kv = situation.state.kv
    tables = {
        request_id: tuple(
            attrs.evolve(table, block_ids=_rename_table(table.block_ids, names)) for table in tables
        )
        for request_id, tables in kv.tables.items()
    }
    renamed = attrs.evolve(kv, pool=_rename_pool(kv.pool, names), tables=Map(tables))
    return situation._replace(state=attrs.evolve(situation.state, kv=renamed))


def _rename_table(block_ids: IntVector, names: list[int]) -> IntVector:
    return make_int_vector([names[block_id] for block_id in block_ids])


def _rename_pool(pool: BlockPool, names: list[int]) -> BlockPool:
    link_names = {**dict(enumerate(names)), pool.num_blocks: pool.num_blocks, NOT_FREE: NOT_FREE}
    places = [*names, pool.num_blocks]

    def renamed_links(links: IntVector) -> IntVector:
        moved = [0] * len(places)
        for place, link in zip(places, links, strict=True):
            moved[place] = link_names[link]
        return make_int_vector(moved)

    old_ids = sorted(range(pool.num_blocks), key=names.__getitem__)
    cached: LayeredMap[BlockKey, BlockId | tuple[BlockId, ...]] = LayeredMap()
    for key, blocks in pool.cached.items():
        ids = as_block_ids(names[block_id] for block_id in as_tuple(blocks))
        cached = cached.set(key, ids if len(ids) > 1 else ids[0])
    return attrs.evolve(
        pool,
        next_free=renamed_links(pool.next_free),
        prev_free=renamed_links(pool.prev_free),
        ref_counts=make_int_vector([pool.ref_counts[block_id] for block_id in old_ids]),
        keys=make_object_vector([pool.keys[block_id] for block_id in old_ids]),
        cached=cached,
    )


def move_steps(situation: Situation, distance: int) -> Situation:
    """Let everything happen so many steps later."""
    state = situation.state
    progress = {
        request_id: attrs.evolve(
            progress, next_decode_eligible_step=progress.next_decode_eligible_step + distance
        )
        for request_id, progress in state.progress.items()
    }
    in_flight = tuple(attrs.evolve(output, step_id=output.step_id + distance) for output in state.in_flight)
    moved: SchedulerState = attrs.evolve(
        state,
        progress=Map(progress),
        in_flight=in_flight,
        current_step=state.current_step + distance,
        num_executed_steps=state.num_executed_steps + distance,
        last_prefill_step=state.last_prefill_step + distance,
    )
    return situation._replace(state=moved)
