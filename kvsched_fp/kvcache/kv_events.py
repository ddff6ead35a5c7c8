"""What the prefix index tells a router outside: blocks stored, removed, and all cleared.

Replaying these events gives the prefix index, if a mirror counts: several blocks may be stored under one
hash, and each is removed by an event of its own.

Upstream: `distributed/kv_events.py`.
"""

from typing import TypeAlias

import attrs

from kvsched_fp.ids import BlockHash


@attrs.frozen
class BlockStored:
    """Consecutive full blocks of one request went into the prefix index."""

    block_hashes: tuple[BlockHash, ...]
    """Their hashes, in order."""
    parent_block_hash: BlockHash | None
    """The hash of the block before the first, or None at the start."""
    token_ids: tuple[int, ...]
    """The tokens in the blocks."""
    block_size: int
    """Tokens per block."""
    extra_keys: tuple[tuple[str, ...] | None, ...]
    """Per block, the values of the extra keys that its hash covers, or None."""
    group_index: int
    """The KV cache group."""
    lora_id: int | None = None
    """The adapter, or None."""
    lora_name: str | None = None
    """Its name, or None."""
    lookahead_token_ids: tuple[tuple[int, ...], ...] | None = None
    """Per block, the tokens behind it that its hash covers; None where hashes cover none."""


@attrs.frozen
class BlockRemoved:
    """One block lost its place in the prefix index."""

    block_hashes: tuple[BlockHash, ...]
    """Its hash, alone."""
    group_index: int
    """The KV cache group."""


@attrs.frozen
class AllBlocksCleared:
    """The prefix index was emptied."""


KVCacheEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared
"""Any of the three."""
