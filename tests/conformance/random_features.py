"""What else a running engine does: drafts, overlapping steps, grammars, sessions, adapters, other models.

Each history gets few or many of these, so that every pair meets in about a tenth of the histories.
"""

from itertools import combinations
from random import Random

import attrs

from kvsched_fp import SchedulerConfig
from kvsched_fp.config import RunnerType, SpecDecodeMetricsLevel

FEATURES = (
    "async",
    "pipeline",
    "drafts",
    "dynamic drafts",
    "drafting slots",
    "prefill lookahead",
    "hash lookahead",
    "eagle block",
    "grammars",
    "adapters",
    "sessions",
    "data parallel",
    "kv delivery",
    "pooling",
    "encoder only",
    "diffusion",
)
"""Everything that a history may have."""

_OTHER_MODELS = {
    "pooling": RunnerType.POOLING,
    "encoder only": RunnerType.ENCODER_ONLY,
    "diffusion": RunnerType.DIFFUSION,
}
_NEED_DRAFTS = {"dynamic drafts", "drafting slots", "prefill lookahead", "hash lookahead", "eagle block"}


_SAMPLING = {"drafts", *_NEED_DRAFTS, "grammars", "sessions"}
_EITHER = {"hash lookahead", "eagle block"}
_EXCLUDED = {
    frozenset(_EITHER),
    *(frozenset(pair) for pair in combinations(_OTHER_MODELS, 2)),
    *(frozenset((model, feature)) for model in ("pooling", "encoder only") for feature in _SAMPLING),
    *(frozenset(("diffusion", feature)) for feature in (*_NEED_DRAFTS, "sessions")),
}
PAIRS = tuple(tuple(sorted(pair)) for pair in combinations(FEATURES, 2) if frozenset(pair) not in _EXCLUDED)
"""The pairs that may meet; the others have no meaning together, or the reference refuses them."""


def draw_features(rng: Random) -> frozenset[str]:
    """Draw the features of one history."""
    share = rng.choice((0.3, 0.3, 0.8, 0.8, 0.5))
    chosen = {feature for feature in FEATURES if feature not in _OTHER_MODELS and rng.random() < share}
    chosen -= _EITHER
    if rng.random() < 0.9:
        chosen.add(rng.choice(sorted(_EITHER)))
    if rng.random() < 0.54:
        chosen.add(rng.choice(list(_OTHER_MODELS)))
    if chosen & _NEED_DRAFTS:
        chosen.add("drafts")
    if "pooling" in chosen or "encoder only" in chosen:
        # Nothing is sampled, so there is nothing to draft, to constrain or to go on from.
        chosen -= _SAMPLING
    if "diffusion" in chosen:
        chosen -= {*_NEED_DRAFTS, "sessions"}
        chosen.add("drafts")  # the canvas
    return frozenset(chosen)


def with_features(rng: Random, config: SchedulerConfig, features: frozenset[str]) -> SchedulerConfig:
    """Switch the features on."""
    changes: dict[str, object] = {"log_request_events": config.log_stats}
    if "async" in features:
        changes["async_scheduling"] = True
    if "pipeline" in features:
        changes["pipeline_parallel_size"] = rng.randint(2, 3)
    if "data parallel" in features:
        changes["data_parallel_size"] = rng.randint(2, 4)
    if "kv delivery" in features:
        changes["requires_kv_delivery"] = True
    if "adapters" in features:
        changes["max_loras"] = rng.randint(1, 3)
    for feature, runner_type in _OTHER_MODELS.items():
        if feature in features:
            changes["runner_type"] = runner_type
    if "drafts" in features:
        changes |= _draw_drafting(rng, config, features)
    return attrs.evolve(config, **changes)


def _draw_drafting(rng: Random, config: SchedulerConfig, features: frozenset[str]) -> dict[str, object]:
    num_spec_tokens = rng.randint(1, 4)
    changes: dict[str, object] = {
        "num_spec_tokens": num_spec_tokens,
        "num_lookahead_tokens": rng.choice((0, num_spec_tokens, num_spec_tokens + 1)),
        "spec_decode_metrics": rng.choice(list(SpecDecodeMetricsLevel)),
    }
    if config.long_prefill_token_threshold:
        changes["long_prefill_token_threshold"] = min(
            config.max_model_len, max(config.long_prefill_token_threshold, num_spec_tokens + 1)
        )
        if config.max_model_len <= num_spec_tokens:
            changes["long_prefill_token_threshold"] = 0
    if "dynamic drafts" in features:
        changes["num_spec_tokens_per_batch_size"] = _draw_schedule(rng, num_spec_tokens)
    if "drafting slots" in features and config.max_num_batched_tokens > 1:
        most = min(3, config.max_num_batched_tokens - 1)
        changes["max_num_new_slots_for_drafting"] = rng.randint(1, most)
    if "prefill lookahead" in features:
        most = config.block_size if "eagle block" in features else 4
        changes["num_prefill_lookahead_tokens"] = rng.randint(1, most)
    if "hash lookahead" in features:
        changes["num_hash_lookahead_tokens"] = rng.randint(1, 3)
    if "eagle block" in features:
        changes["drop_eagle_block"] = True
    return changes


def _draw_schedule(rng: Random, num_spec_tokens: int) -> tuple[tuple[int, int, int], ...]:
    ranges = []
    first = 1
    for _ in range(rng.randint(1, 3)):
        last = first + rng.randint(0, 2)
        ranges.append((first, last, rng.randint(0, num_spec_tokens)))
        first = last + 1 + rng.randint(0, 1)
    return tuple(ranges)
