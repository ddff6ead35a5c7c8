"""What is counted about the prefix cache: look-ups, and how prompts were filled."""

import attrs

from kvsched_fp.events import ResetPrefixCache, Schedule, Update
from kvsched_fp.invariants.entry import ALL_EVENTS, Cost, Step, StepInvariant, step_invariant
from kvsched_fp.invariants.on_step.admission import start_of
from kvsched_fp.invariants.on_step.brought import outputs_told
from kvsched_fp.outputs import PrefixCacheStats
from kvsched_fp.progress import PrefillStats


@step_invariant(
    "INV-FIGURE-01",
    Cost.CHEAP,
    "With log_stats, each admission of a request that held no blocks and may read the prefix cache counts "
    "once: one look-up of all that is known, the tokens that were found, and apart from the others if it "
    "had been preempted. A reset that was done is noted; an update tells it all and begins anew.",
    "The rate of hits is what an operator sizes the cache by.",
    *ALL_EVENTS,
)
def _look_ups_are_counted(step: Step) -> str | None:
    expected = step.before.kv.prefix_cache_stats
    if isinstance(step.event, Update):
        expected = PrefixCacheStats()
    elif not step.before.config.log_stats:
        pass  # INV-COUNT-03
    elif isinstance(step.event, ResetPrefixCache) and step.outcome:
        expected = attrs.evolve(expected, reset=True)
    elif isinstance(step.event, Schedule) and step.before.config.enable_prefix_caching:
        expected = _with_admissions(step, expected)
    found = step.after.kv.prefix_cache_stats
    return None if found == expected else f"{type(step.event).__name__}: {found} is counted, not {expected}"


def _with_admissions(step: Step, stats: PrefixCacheStats) -> PrefixCacheStats:
    for request_id in step.admitted:
        request, earlier = step.after.requests[request_id], step.before.progress[request_id]
        if earlier.num_computed_tokens or request.sampling_params.skip_reading_prefix_cache:
            continue
        num_known = len(request.prompt_token_ids) + len(earlier.output_token_ids)
        prefix = "preempted_" if earlier.num_preemptions else ""
        counts = {"requests": 1, "queries": num_known, "hits": start_of(step, request_id)}
        changes = {prefix + name: getattr(stats, prefix + name) + count for name, count in counts.items()}
        stats = attrs.evolve(stats, **changes)
    return stats


@step_invariant(
    "INV-FIGURE-02",
    Cost.CHEAP,
    "The prefill statistics of a request say of the admission at which its prompt was looked up first, "
    "before any preemption, how much of the prompt was found and how much is to be computed.",
    "A client is told what it saved.",
    Schedule,
)
def _prefill_is_noted(step: Step) -> str | None:
    for request_id in step.admitted:
        earlier, progress = step.before.progress[request_id], step.after.progress[request_id]
        expected = earlier.prefill_stats
        if expected is not None and not (earlier.num_preemptions or earlier.num_computed_tokens):
            num_prompt_tokens = len(step.after.requests[request_id].prompt_token_ids)
            num_found = start_of(step, request_id)
            expected = PrefillStats(num_prompt_tokens, num_prompt_tokens - num_found, num_found)
        if progress.prefill_stats != expected:
            return f"request {request_id} starts with {progress.prefill_stats}, not {expected}"
    return None


@step_invariant(
    "INV-FIGURE-03",
    Cost.CHEAP,
    "What of a prompt is told to have gone into the prefix cache stands there with the first output, in "
    "every group, and was not found there.",
    "Writing to the cache may be charged for.",
    Update,
)
def _creation_is_told(step: Step) -> str | None:
    block_size, keys = step.before.config.block_size, step.after.kv.pool.keys
    for output in outputs_told(step):
        stats = output.prefill_stats
        if stats is None or output.error is not None:
            continue
        # A request that ended has given its blocks back; nobody has taken them in an update.
        tables = step.before.kv.tables.get(output.request_id, ())
        named = [[keys[block_id] is not None for block_id in table.block_ids] for table in tables]
        num_blocks = min((len(row) - [*reversed(row), True].index(True) for row in named), default=0)
        num_tokens = min(num_blocks * block_size, stats.num_prompt_tokens)
        num_created = max(num_tokens - stats.num_local_cached_tokens, 0)
        if stats.num_cache_creation_tokens != num_created:
            return (
                f"request {output.request_id} has {num_tokens} prompt tokens in the prefix cache and is "
                f"told {stats}"
            )
    return None


INVARIANTS: tuple[StepInvariant, ...] = (
    _look_ups_are_counted,
    _prefill_is_noted,
    _creation_is_told,
)
"""In the order in which they are checked."""
