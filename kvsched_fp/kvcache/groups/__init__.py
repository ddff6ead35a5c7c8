"""Kinds of KV cache group. A group is the set of layers that share block tables.

`GroupSpec` is the protocol that the coordinator speaks; each kind is a file here.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from kvsched_fp.ids import BlockHash, BlockId
from kvsched_fp.kvcache.pool import BlockLookup


@runtime_checkable
class GroupSpec(Protocol):
    """What the coordinator asks of a kind of group. All methods are pure."""

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        ...

    def num_blocks_for(self, num_tokens: int) -> int:
        """Count the blocks that `num_tokens` tokens of one request occupy."""
        ...

    def find_longest_cache_hit(
        self,
        lookup: BlockLookup,
        block_hashes: Sequence[BlockHash],
        max_length: int,
        group_indices: Sequence[int],
    ) -> tuple[tuple[BlockId, ...], ...]:
        """Find the cached prefix of at most `max_length` tokens that all `group_indices` hold.

        Gives one tuple of block ids per group, all of one length.
        """
        ...
