"""Faults in what a block is called, and in what a prompt finds in the cache."""

from vllm.v1.core.block_pool import BlockHashToBlockMap, BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request

from .planting import Fault, around, inside
from .shapes import from_the_start, is_slice_of

PREFIX_INDEX = (
    inside(
        "a block gets the hash of an earlier one",
        BlockPool,
        "cache_full_blocks",
        is_slice_of("block_hashes", "num_cached_blocks"),
        from_the_start,
    ),
    Fault(
        "a hit takes the block cached last",
        BlockHashToBlockMap,
        "get_one_block",
        lambda self, key: (
            list(found.values())[-1] if isinstance(found := self._cache.get(key), dict) else found
        ),
    ),
    around(
        "two tokens of a hit are computed anew",
        KVCacheManager,
        "get_computed_blocks",
        lambda original: lambda self, request, _=None: original(self, request, request.num_tokens - 2),
    ),
    around(
        "the salt is not part of the hash",
        Request,
        "__init__",
        lambda original: lambda *args, **options: original(*args, **{**options, "cache_salt": None}),
    ),
)
