"""Faults in the order in which blocks are freed and used again."""

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator
from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue

from .planting import Fault, around


def _free_groups_last_first(coordinator: KVCacheCoordinator, request_id: str) -> None:
    for manager in coordinator.single_type_managers[::-1]:
        manager.free(request_id)


POOL = (
    around(
        "blocks are freed head first",
        BlockPool,
        "free_blocks",
        lambda original: lambda self, blocks: original(self, list(blocks)[::-1]),
    ),
    Fault(
        "a block that is not cached is used last",
        FreeKVCacheBlockQueue,
        "prepend_n",
        FreeKVCacheBlockQueue.append_n,
    ),
    Fault("the last group is freed first", KVCacheCoordinator, "free", _free_groups_last_first),
)
