"""The reference's own block hash, as a value for our configuration.

With it both sides give a block the same name, so that hashes, the keys of the prefix index and the
key-value events are compared as they are.

Importing this module imports vLLM.
"""

from collections.abc import Sequence

import attrs
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import hash_block_tokens, init_none_hash

from kvsched_fp.ids import BlockHash
from kvsched_fp.kvcache.hashing import ExtraKeys

# The parent of every first block; vLLM keeps it in a global that the engine sets at start.
init_none_hash(sha256)


@attrs.frozen
class VllmBlockHasher:
    """SHA-256 over the pickled parent, token ids and extra keys."""

    def hash_block(
        self, parent: BlockHash | None, token_ids: Sequence[int], extra_keys: ExtraKeys | None
    ) -> BlockHash:
        """Name a full block."""
        return BlockHash(hash_block_tokens(sha256, parent, token_ids, extra_keys))
