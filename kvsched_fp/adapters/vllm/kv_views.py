"""Read-only look-alikes of the real KV cache manager, its coordinator, its pool and its blocks.

All of them are live: they show the state that the scheduler has now.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.kv_cache_interface import KVCacheConfig

from kvsched_fp.adapters.vllm.outputs import to_kv_event
from kvsched_fp.adapters.vllm.pairings import PREFIX_CACHE_STATS
from kvsched_fp.adapters.vllm.views import ReadOnly, refuse_change
from kvsched_fp.ids import BlockId, BlockKey, RequestId
from kvsched_fp.kvcache.coordinator import GroupTable
from kvsched_fp.kvcache.pool import NOT_FREE, NULL_BLOCK, BlockPool, as_tuple
from kvsched_fp.state import SchedulerState


class Source(Protocol):
    """Where the views look."""

    @property
    def state(self) -> SchedulerState:
        """The state of now."""
        ...


class BlockView(KVCacheBlock):  # type: ignore[misc]  # untyped where vLLM is missing
    """One block."""

    __slots__ = ("_id", "_pool")

    def __init__(self, pool: "BlockPoolView", block_id: int) -> None:
        object.__setattr__(self, "_pool", pool)
        object.__setattr__(self, "_id", block_id)

    def __setattr__(self, name: str, value: Any) -> None:
        refuse_change(f"block {self._id}.{name}")

    def set_block_hash(self, *_: Any, **__: Any) -> None:
        """Refuse."""
        refuse_change(f"block {self._id}.block_hash")

    def reset_hash(self) -> None:
        """Refuse."""
        refuse_change(f"block {self._id}.block_hash")

    @property
    def block_id(self) -> int:
        """The index of the block in its pool."""
        return self._id  # type: ignore[no-any-return]

    @property
    def pool(self) -> "BlockPoolView":
        """The pool."""
        return self._pool  # type: ignore[no-any-return]

    @property
    def ref_cnt(self) -> int:
        """How many block tables hold it."""
        return self._pool.value.ref_counts[self._id]  # type: ignore[no-any-return]

    @property
    def _block_hash(self) -> BlockKey | None:
        return self._pool.value.keys[self._id]  # type: ignore[no-any-return]

    @property
    def _block_hash_num_tokens(self) -> int | None:
        raise AttributeError("how many tokens a block's hash covers is not kept by kvsched_fp")

    @property
    def is_null(self) -> bool:
        """Whether it is the null block."""
        return self._id == NULL_BLOCK  # type: ignore[no-any-return]

    @property
    def prev_free_block(self) -> "BlockView | None":
        """The block before it in the free list."""
        return self._neighbour(self._pool.value.prev_free[self._id])

    @property
    def next_free_block(self) -> "BlockView | None":
        """The block behind it in the free list."""
        return self._neighbour(self._pool.value.next_free[self._id])

    def _neighbour(self, block_id: int) -> "BlockView | None":
        if block_id in (NOT_FREE, self._pool.num_gpu_blocks):
            return None
        return self._pool.blocks[block_id]  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"BlockView(block_id={self._id}, ref_cnt={self.ref_cnt}, block_hash={self._block_hash!r})"


class FreeQueueView(ReadOnly):
    """The free list, in eviction order."""

    __slots__ = ("_pool",)

    def __init__(self, pool: "BlockPoolView") -> None:
        object.__setattr__(self, "_pool", pool)

    @property
    def num_free_blocks(self) -> int:
        """Its length."""
        return self._pool.value.num_free_blocks  # type: ignore[no-any-return]

    def get_all_free_blocks(self) -> list[BlockView]:
        """List the free blocks."""
        return [self._pool.blocks[block_id] for block_id in self._pool.value.free_blocks()]


class PrefixIndexView(ReadOnly):
    """The prefix index: key -> block, or blocks by their ids."""

    __slots__ = ("_pool",)

    def __init__(self, pool: "BlockPoolView") -> None:
        object.__setattr__(self, "_pool", pool)

    def __len__(self) -> int:
        return len(self._pool.value.cached)

    def get_one_block(self, key: BlockKey) -> BlockView | None:
        """Give the block that was cached first under `key`."""
        block_id = self._pool.value.first_block(key)
        return None if block_id is None else self._pool.blocks[block_id]

    def contain(self, key: BlockKey, block_id: int) -> bool:
        """Tell whether `key` has that block."""
        return block_id in as_tuple(self._pool.value.cached.get(key, ()))

    @property
    def _cache(self) -> Mapping[BlockKey, BlockView | dict[int, BlockView]]:
        blocks = self._pool.blocks
        return {
            key: {block_id: blocks[block_id] for block_id in found}
            if isinstance(found, tuple)
            else blocks[found]
            for key, found in self._pool.value.cached.items()
        }


class BlockPoolView(ReadOnly):
    """The pool."""

    __slots__ = ("_source", "blocks", "cached_block_hash_to_block", "free_block_queue", "num_gpu_blocks")

    def __init__(self, source: Source) -> None:
        def fix(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        fix("_source", source)
        fix("num_gpu_blocks", source.state.config.num_blocks)
        fix("blocks", tuple(BlockView(self, block_id) for block_id in range(self.num_gpu_blocks)))
        fix("free_block_queue", FreeQueueView(self))
        fix("cached_block_hash_to_block", PrefixIndexView(self))

    @property
    def value(self) -> BlockPool:
        """The pool as a value."""
        return self._source.state.kv.pool  # type: ignore[no-any-return]

    @property
    def null_block(self) -> BlockView:
        """The block that stands for none."""
        return self.blocks[NULL_BLOCK]  # type: ignore[no-any-return]

    @property
    def enable_caching(self) -> bool:
        """Whether full blocks are kept for later requests."""
        return self._source.state.config.enable_prefix_caching  # type: ignore[no-any-return]

    @property
    def enable_kv_cache_events(self) -> bool:
        """Whether changes of the prefix index are reported."""
        return self._source.state.config.enable_kv_cache_events  # type: ignore[no-any-return]

    @property
    def hash_block_size(self) -> int:
        """Tokens per hash."""
        return self._source.state.config.block_size  # type: ignore[no-any-return]

    @property
    def num_hash_lookahead_tokens(self) -> int:
        """Tokens behind a block that its hash covers: none."""
        return 0

    @property
    def metrics_collector(self) -> None:
        """Not modelled."""

    @property
    def cached_block_hashes_by_block(self) -> dict[int, set[BlockKey]]:
        """Blocks with several keys: there are none."""
        return {}

    @property
    def kv_event_queue(self) -> list[Any]:
        """The events since the last update."""
        return [to_kv_event(event, None) for event in self._source.state.kv.pending_events]

    def get_num_free_blocks(self) -> int:
        """Count the free blocks."""
        return self.value.num_free_blocks

    def get_usage(self) -> float:
        """Give the share of the usable blocks that is not free."""
        return self.value.usage

    def get_cached_block(self, block_hash: bytes, kv_cache_group_ids: list[int]) -> list[BlockView] | None:
        """Give the blocks cached under a hash, one per group; None if one is missing."""
        keys = [BlockKey(block_hash + group.to_bytes(4, "big")) for group in kv_cache_group_ids]
        found = [self.cached_block_hash_to_block.get_one_block(key) for key in keys]
        return None if None in found else found


class TableView(Mapping[str, Any]):
    """One column of the block tables of one group: request id -> something, for requests that have it."""

    def __init__(self, group: "GroupView", read: Any) -> None:
        self._group = group
        self._read = read

    def __getitem__(self, request_id: str) -> Any:
        table = self._group.table_of(request_id)
        value = None if table is None else self._read(table)
        if not value:
            raise KeyError(request_id)
        return value

    def __iter__(self) -> Iterator[str]:
        return (request_id for request_id in self._group.holders() if request_id in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class GroupView(ReadOnly):
    """The manager of one group: who holds which blocks."""

    __slots__ = ("_pool", "_source", "kv_cache_group_id", "kv_cache_spec")

    def __init__(self, source: Source, pool: BlockPoolView, group_index: int, spec: Any) -> None:
        object.__setattr__(self, "_source", source)
        object.__setattr__(self, "_pool", pool)
        object.__setattr__(self, "kv_cache_group_id", group_index)
        object.__setattr__(self, "kv_cache_spec", spec)

    def holders(self) -> Iterator[str]:
        """Go through the requests that have a block table."""
        return iter(self._source.state.kv.tables)

    def table_of(self, request_id: str) -> GroupTable | None:
        """Give the block table of a request in this group, or None."""
        tables = self._source.state.kv.tables.get(RequestId(request_id))
        return None if tables is None else tables[self.kv_cache_group_id]

    @property
    def block_pool(self) -> BlockPoolView:
        """The pool."""
        return self._pool  # type: ignore[no-any-return]

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._source.state.config.block_size  # type: ignore[no-any-return]

    @property
    def enable_caching(self) -> bool:
        """Whether full blocks are kept for later requests."""
        return self._pool.enable_caching  # type: ignore[no-any-return]

    @property
    def req_to_blocks(self) -> TableView:
        """The blocks of each request."""
        blocks = self._pool.blocks
        return TableView(self, lambda table: [blocks[block_id] for block_id in table.block_ids])

    @property
    def num_cached_block(self) -> TableView:
        """How many blocks of each request are in the prefix index."""
        return TableView(self, lambda table: table.num_cached_blocks)

    @property
    def new_block_ids(self) -> list[BlockId]:
        """Blocks handed out since the last step: a step takes them all."""
        return []

    @property
    def _partial_hit_reqs(self) -> dict[str, Any]:
        return {}

    @property
    def _pending_cow_copies(self) -> list[Any]:
        return []


class CoordinatorView(ReadOnly):
    """What all groups have in common."""

    __slots__ = ("block_pool", "kv_cache_config", "single_type_managers")

    def __init__(self, source: Source, pool: BlockPoolView, kv_cache_config: KVCacheConfig) -> None:
        groups = enumerate(kv_cache_config.kv_cache_groups)
        managers = tuple(GroupView(source, pool, index, group.kv_cache_spec) for index, group in groups)
        object.__setattr__(self, "block_pool", pool)
        object.__setattr__(self, "kv_cache_config", kv_cache_config)
        object.__setattr__(self, "single_type_managers", managers)

    def get_blocks(self, request_id: str) -> tuple[list[BlockView], ...]:
        """Give the blocks of a request, per group."""
        return tuple(manager.req_to_blocks.get(request_id, []) for manager in self.single_type_managers)


class KVCacheManagerView(ReadOnly):
    """The KV cache manager."""

    __slots__ = ("_source", "block_pool", "coordinator", "kv_cache_config")

    def __init__(self, source: Source, kv_cache_config: KVCacheConfig) -> None:
        pool = BlockPoolView(source)
        object.__setattr__(self, "_source", source)
        object.__setattr__(self, "block_pool", pool)
        object.__setattr__(self, "kv_cache_config", kv_cache_config)
        object.__setattr__(self, "coordinator", CoordinatorView(source, pool, kv_cache_config))

    @property
    def usage(self) -> float:
        """The share of the usable blocks that is not free, from 0.0 to 1.0."""
        return self.block_pool.get_usage()  # type: ignore[no-any-return]

    @property
    def enable_caching(self) -> bool:
        """Whether full blocks are kept for later requests."""
        return self.block_pool.enable_caching  # type: ignore[no-any-return]

    @property
    def enable_kv_cache_events(self) -> bool:
        """Whether changes of the prefix index are reported."""
        return self.block_pool.enable_kv_cache_events  # type: ignore[no-any-return]

    @property
    def log_stats(self) -> bool:
        """Whether statistics are kept."""
        return self._source.state.config.log_stats  # type: ignore[no-any-return]

    @property
    def max_model_len(self) -> int:
        """The most tokens of one request."""
        return self._source.state.config.max_model_len  # type: ignore[no-any-return]

    @property
    def watermark_blocks(self) -> int:
        """Blocks kept free when admitting."""
        return self._source.state.config.watermark_blocks  # type: ignore[no-any-return]

    @property
    def num_kv_cache_groups(self) -> int:
        """How many groups there are."""
        return len(self.coordinator.single_type_managers)

    @property
    def prefix_cache_stats(self) -> Any:
        """The look-ups since the last report, or None where none are kept."""
        stats = self._source.state.kv.prefix_cache_stats
        return PREFIX_CACHE_STATS.to_theirs(stats) if self.log_stats else None

    @property
    def empty_kv_cache_blocks(self) -> KVCacheBlocks:
        """No blocks in any group."""
        return KVCacheBlocks(((),) * self.num_kv_cache_groups)

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        """Give the blocks of a request."""
        return KVCacheBlocks(self.coordinator.get_blocks(request_id))

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        """Give the block ids of a request, per group."""
        return self.get_blocks(request_id).get_block_ids()  # type: ignore[no-any-return]
