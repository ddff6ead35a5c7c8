"""vLLM's own block hash, as a value for our configuration.

With it both sides give a block the same name, so that hashes, the keys of the prefix index and the
KV events can be compared as they are.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import hash_block_tokens

from kvsched_fp.ids import BlockHash
from kvsched_fp.kvcache.hashing import ExtraKeys


@attrs.frozen
class VllmBlockHasher:
    """The hash function of that name in vLLM, chained as vLLM chains it.

    The parent of every first block is a global of vLLM, which the engine sets at start.
    """

    algorithm: str
    """The value of `cache_config.prefix_caching_hash_algo`."""
    _function: Callable[[Any], bytes] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_function", get_hash_fn_by_name(self.algorithm))

    def hash_block(
        self, parent: BlockHash | None, token_ids: Sequence[int], extra_keys: ExtraKeys | None
    ) -> BlockHash:
        """Name a full block."""
        return BlockHash(hash_block_tokens(self._function, parent, token_ids, extra_keys))
