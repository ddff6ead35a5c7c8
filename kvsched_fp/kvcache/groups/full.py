"""Full attention: every token attends to all before it, so a request keeps every block.

Upstream: `v1/core/single_type_kv_cache_manager.py::FullAttentionManager`.
"""

from collections.abc import Iterable, Sequence

import attrs

from kvsched_fp.errors import InvalidConfig
from kvsched_fp.ids import BlockHash, BlockId, BlockKey
from kvsched_fp.kvcache.hashing import make_block_keys
from kvsched_fp.kvcache.pool import BlockLookup


@attrs.frozen(kw_only=True)
class FullAttentionSpec:
    """One full-attention group."""

    block_size: int = 16
    """Tokens per block."""

    def __attrs_post_init__(self) -> None:
        if type(self.block_size) is not int or self.block_size < 1:
            raise InvalidConfig("block_size", self.block_size, "an integer >= 1")

    def num_blocks_for(self, num_tokens: int) -> int:
        """Count the blocks that `num_tokens` tokens occupy: all of them are kept."""
        return -(-num_tokens // self.block_size)

    def find_longest_cache_hit(
        self,
        lookup: BlockLookup,
        block_hashes: Sequence[BlockHash],
        max_length: int,
        group_indices: Sequence[int],
    ) -> tuple[tuple[BlockId, ...], ...]:
        """Follow the hash chain until a block is missing in any of the groups [K-HIT-01].

        Hashes are chained, so nothing behind a miss can hit.
        """
        candidates = block_hashes[: max_length // self.block_size]
        hits = [
            _cached_run(lookup, make_block_keys(candidates, group_index)) for group_index in group_indices
        ]
        num_common = min(map(len, hits))
        return tuple(tuple(hit[:num_common]) for hit in hits)


def _cached_run(lookup: BlockLookup, keys: Iterable[BlockKey]) -> list[BlockId]:
    """Follow `keys` until one is missing."""
    found = []
    for key in keys:
        block_id = lookup.first_block(key)
        if block_id is None:
            break
        found.append(block_id)
    return found
