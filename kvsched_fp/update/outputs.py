"""What one update tells the clients and the world.

Rules
-----
[U-OUT-01] A client gets its outputs in the order of the batch; clients come in the order of their first
    output.
[U-OUT-02] With `include_finished_set`, a client also gets the ids that finished since the last update,
    however they ended; clients that get nothing else come last.
[U-OUT-03] With `log_stats`, the statistics go to the first client, or to client 0 if none gets anything.
[U-OUT-04] What happened to the prefix index since the last update goes out once.

Upstream: the tail of `v1/core/sched/scheduler.py::Scheduler.update_from_output`, `make_stats`.
"""

from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import ClientOutputs, Emitted, PrefixCacheStats, SchedulerStats
from kvsched_fp.update.results import Results

_NO_LOOK_UPS = PrefixCacheStats()


def take_emitted(results: Results) -> Emitted:
    """Collect what is to be told, and forget it [U-OUT-01]."""
    outputs, finished = results.outputs, results.finished_by_client
    told = list(dict.fromkeys([*outputs, *finished]))  # [U-OUT-02]
    first = next(iter(told), 0)
    stats = None
    if results.config.log_stats:
        told = told or [first]
        stats = _take_stats(results)
    clients = {
        client: ClientOutputs(
            tuple(outputs.get(client, ())),
            finished.get(client),
            stats if client == first else None,  # [U-OUT-03]
        )
        for client in told
    }
    results.finished_by_client = {}
    kv_events = tuple(results.kv.events)
    results.kv.events.clear()  # [U-OUT-04]
    return Emitted(OrderedMap.adopt(clients), kv_events)


def _take_stats(results: Results) -> SchedulerStats:
    num_deferred = len(results.deferred)
    stats = SchedulerStats(
        num_running_requests=len(results.running),
        num_waiting_requests=results.num_waiting - num_deferred,
        num_skipped_waiting_requests=num_deferred,
        kv_cache_usage=results.kv.pool.usage,
        prefix_cache_stats=results.kv.stats,
        spec_decoding_stats=results.spec_decoding_stats,
    )
    results.kv.stats = _NO_LOOK_UPS
    return stats
