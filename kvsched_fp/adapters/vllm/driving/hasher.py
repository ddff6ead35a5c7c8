"""The names of blocks, by any hash function of ours, for vLLM's requests."""

from collections.abc import Callable
from typing import Any

from vllm.v1.core.kv_cache_utils import BlockHash as VllmBlockHash
from vllm.v1.request import Request as VllmRequest

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.ids import BlockHash
from kvsched_fp.kvcache.hashing import extend_block_hashes
from kvsched_fp.request import LoRA


def make_named_hasher(config: SchedulerConfig) -> Callable[[VllmRequest], list[Any]] | None:
    """Give what a request of vLLM's calls for the names of its new full blocks, as `config` names them.

    None where nothing is cached, as the engine has it.
    """
    return _RequestHasher(config) if config.enable_prefix_caching else None


class _RequestHasher:
    """Names the blocks of a request that are full and have no name."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config

    def __call__(self, request: VllmRequest) -> list[Any]:
        num_known = len(request.block_hashes)
        parent = tuple(BlockHash(name) for name in request.block_hashes[-1:])
        first_position = num_known * self._config.block_size
        lora = request.lora_request
        extended = extend_block_hashes(
            self._config.block_hasher,
            parent,
            tuple(request.all_token_ids[first_position:]),
            first_position,
            self._config.block_size,
            request.cache_salt,
            None if lora is None else LoRA(lora.lora_name, lora.lora_int_id, lora.lora_path),
            self._config.num_hash_lookahead_tokens,
        )
        return [VllmBlockHash(name) for name in extended[len(parent) :]]
