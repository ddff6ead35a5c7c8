"""The names of a request's full blocks, as the configuration asks for them."""

from collections.abc import Sequence

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.ids import BlockHash
from kvsched_fp.kvcache.hashing import extend_block_hashes
from kvsched_fp.request import Request


def hash_new_blocks(
    config: SchedulerConfig,
    request: Request,
    block_hashes: tuple[BlockHash, ...],
    token_ids: Sequence[int],
) -> tuple[BlockHash, ...]:
    """Append the hashes of the blocks that `token_ids` fill: the known tokens behind the hashed blocks.

    Without prefix caching no block has a name.
    """
    if not config.enable_prefix_caching:
        return block_hashes
    return extend_block_hashes(
        config.block_hasher,
        block_hashes,
        token_ids,
        len(block_hashes) * config.block_size,
        config.block_size,
        request.cache_salt,
        request.lora,
        config.num_hash_lookahead_tokens,
    )
