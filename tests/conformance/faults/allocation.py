"""Faults in whether a request gets its blocks."""

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager

from .planting import after_init, around


def _raise_watermark(manager: KVCacheManager) -> None:
    manager.watermark_blocks += manager.watermark_blocks > 0


ALLOCATION = (
    after_init("the watermark is one block too high", KVCacheManager, _raise_watermark),
    around(
        "the watermark is kept while nothing runs",
        KVCacheManager,
        "allocate_slots",
        lambda original: (
            lambda *args, **options: original(*args, **{**options, "has_scheduled_reqs": True})
        ),
    ),
    around(
        "the full length is not asked for",
        KVCacheManager,
        "allocate_slots",
        lambda original: (
            lambda *args, **options: original(*args, **{**options, "full_sequence_must_fit": False})
        ),
    ),
    around(
        "no slots are taken for lookahead",
        KVCacheManager,
        "allocate_slots",
        lambda original: lambda *args, **options: original(*args, **{**options, "num_lookahead_tokens": 0}),
    ),
    around(
        "a hit on a free block is not counted as needed",
        SingleTypeKVCacheManager,
        "get_num_blocks_to_allocate",
        lambda original: (
            lambda self, request_id, num_tokens, hit, *rest, **options: (
                original(self, request_id, num_tokens, hit, *rest, **options)
                - self._get_num_evictable_blocks(hit)
            )
        ),
    ),
)
