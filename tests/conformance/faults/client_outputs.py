"""Faults in statistics and key-value events."""

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.metrics.stats import PrefixCacheStats

from .planting import Fault, around, inside
from .shapes import is_keyword, left_side_only

CLIENT_OUTPUTS = (
    inside(
        "deferred requests count as waiting",
        Scheduler,
        "make_stats",
        is_keyword("num_waiting_reqs"),
        left_side_only,
    ),
    around(
        "a resumed request counts as new in the statistics of the cache",
        PrefixCacheStats,
        "record",
        lambda original: lambda self, **options: original(self, **{**options, "preempted": False}),
    ),
    Fault("an eviction is not told", BlockPool, "_emit_block_removed_events", lambda *_: None),
    around(
        "a stored block has no parent",
        BlockPool,
        "_build_block_stored_event",
        lambda original: lambda *args, **options: original(*args, **{**options, "parent_block_hash": None}),
    ),
)
