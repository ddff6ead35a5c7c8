"""What a scheduler may support, and what a test must leave out where it does not.

Without any feature there is left: FCFS, prompts in chunks, one group of full attention without a prefix
cache, the output of the V2 model runner, one step in flight, no statistics. Every other field of the
configuration, every other event and every unusual request belongs to a feature.
"""

import enum
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import attrs

from kvsched_fp.config import RunnerType, SchedulerConfig, SchedulingPolicy, SpecDecodeMetricsLevel
from kvsched_fp.errors import InvalidConfig
from kvsched_fp.events import (
    AddRequest,
    Event,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    Update,
)
from kvsched_fp.request import SamplingParams


class Feature(enum.Enum):
    """Something that a scheduler under test may support."""

    PRIORITY = "priority"
    """The policy `priority`."""
    WHOLE_PROMPTS = "whole_prompts"
    """Prompts that may not be computed in pieces."""
    LONG_PREFILL = "long_prefill"
    """The long-prefill threshold."""
    RESERVE = "reserve"
    """Admission only if the whole prompt fits."""
    WATERMARK = "watermark"
    """Blocks that are kept free at admission."""
    PREFILL_INTERVAL = "prefill_interval"
    """Steps that hold prompts back."""
    ACTIVE_LIMIT = "active_limit"
    """A limit for running requests below `max_num_seqs`."""
    TOKEN_BUDGET = "token_budget"
    """A token budget besides the input budget."""
    PREFIX_CACHING = "prefix_caching"
    """The prefix cache, with salts and requests that do not read it."""
    KV_EVENTS = "kv_events"
    """Events of the prefix cache."""
    SEVERAL_GROUPS = "several_groups"
    """More than one KV cache group."""
    LOOKAHEAD = "lookahead"
    """Slots behind the computed tokens."""
    ZEROING = "zeroing"
    """Telling which blocks to clear."""
    FINISHED_SET = "finished_set"
    """Telling each client the ids that finished."""
    STATISTICS = "statistics"
    """The scheduler's figures, with every update."""
    REQUEST_EVENTS = "request_events"
    """Telling when a request was queued, scheduled and preempted."""
    V1_RUNNER = "v1_runner"
    """The output for the V1 model runner."""
    SEVERAL_CLIENTS = "several_clients"
    """More than one front end."""
    STOPPING = "stopping"
    """Ends by stop tokens, end of sequence and repetition."""
    BURSTS = "bursts"
    """Results of several tokens for one request without drafts, which no engine brings today."""
    REUSED_IDS = "reused_ids"
    """Requests that take the id of one that has ended."""
    STEPS_IN_FLIGHT = "steps_in_flight"
    """Several steps in flight without placeholders, as in a pipeline."""
    PAUSE = "pause"
    """The event `set_pause_state`."""
    RESET = "reset"
    """The event `reset_prefix_cache`."""
    ASYNC = "async"
    """Asynchronous scheduling: placeholders for what is in flight."""
    PIPELINE = "pipeline"
    """Several stages."""
    DATA_PARALLEL = "data_parallel"
    """Steps in which all ranks hold prompts back."""
    ADAPTERS = "adapters"
    """LoRA adapters."""
    DRAFTS = "drafts"
    """Speculative decoding."""
    GRAMMARS = "grammars"
    """Requests that wait for a grammar."""
    SESSIONS = "sessions"
    """Requests whose input comes in chunks."""
    POOLING = "pooling"
    """Pooling models."""
    ENCODER_ONLY = "encoder_only"
    """Encoder instances."""
    DIFFUSION = "diffusion"
    """Diffusion models."""


EVERYTHING: frozenset[Feature] = frozenset(Feature)
"""All features."""

_NEUTRAL: Mapping[Feature, Mapping[str, Any]] = {
    Feature.PRIORITY: {"policy": SchedulingPolicy.FCFS},
    Feature.WHOLE_PROMPTS: {"enable_chunked_prefill": True},
    Feature.LONG_PREFILL: {
        "long_prefill_token_threshold": 0,
        "long_prefill_token_threshold_adaptive": False,
    },
    Feature.RESERVE: {"scheduler_reserve_full_isl": False},
    Feature.WATERMARK: {"watermark": 0.0},
    Feature.PREFILL_INTERVAL: {"prefill_schedule_interval": 1},
    Feature.ACTIVE_LIMIT: {"max_num_active_seqs": None},
    Feature.TOKEN_BUDGET: {"max_num_scheduled_tokens": None},
    Feature.PREFIX_CACHING: {"enable_prefix_caching": False},
    Feature.KV_EVENTS: {"enable_kv_cache_events": False},
    Feature.LOOKAHEAD: {"num_lookahead_tokens": 0},
    Feature.ZEROING: {"needs_kv_cache_zeroing": False},
    Feature.FINISHED_SET: {"include_finished_set": False},
    Feature.STATISTICS: {"log_stats": False},
    Feature.REQUEST_EVENTS: {"log_request_events": False},
    Feature.V1_RUNNER: {"use_v2_model_runner": True},
    Feature.ASYNC: {"async_scheduling": False},
    Feature.PIPELINE: {"pipeline_parallel_size": 1},
    Feature.DATA_PARALLEL: {"data_parallel_size": 1},
    Feature.ADAPTERS: {"max_loras": None},
    Feature.DRAFTS: {
        "num_spec_tokens_per_batch_size": None,
        "max_num_new_slots_for_drafting": 0,
        "num_prefill_lookahead_tokens": 0,
        "num_hash_lookahead_tokens": 0,
        "drop_eagle_block": False,
        "spec_decode_metrics": SpecDecodeMetricsLevel.NONE,
    },
}
"""Per feature, the fields of the configuration that are about it, as they are without it."""

OF_MODEL: Mapping[RunnerType, Feature] = {
    RunnerType.POOLING: Feature.POOLING,
    RunnerType.ENCODER_ONLY: Feature.ENCODER_ONLY,
    RunnerType.DIFFUSION: Feature.DIFFUSION,
}
"""The kinds of model that are features."""

_OF_EVENT: Mapping[type[Event], Feature] = {
    SetPauseState: Feature.PAUSE,
    ResetPrefixCache: Feature.RESET,
}
"""The events that are features. Those about drafts and grammars only come where others asked for them."""


def features_named(names: Collection[Feature | str]) -> frozenset[Feature]:
    """Find features, each given by its name or as it is.

    Raises `InvalidConfig` for a name that is none, and for what can be gone through only once: a scheduler
    is asked for its features more than once.
    """
    if isinstance(names, str) or not isinstance(names, Collection):
        raise InvalidConfig("features", names, "a set or a list of Feature, or of names of features")
    found = set()
    for name in names:
        try:
            found.add(Feature(name))
        except ValueError:
            allowed = ", ".join(feature.value for feature in Feature)
            raise InvalidConfig("features", name, f"any of {allowed}") from None
    return frozenset(found)


def restrict(values: dict[str, Any], allowed: frozenset[Feature]) -> None:
    """Put the neutral value into each field whose feature is not allowed."""
    for feature, neutral in _NEUTRAL.items():
        if feature not in allowed:
            values.update({name: value for name, value in neutral.items() if name in values})
    if Feature.TOKEN_BUDGET not in allowed:
        values.pop("max_num_scheduled_tokens", None)
    runner_type = values.get("runner_type", RunnerType.GENERATE)
    if runner_type in OF_MODEL and OF_MODEL[runner_type] not in allowed:
        values["runner_type"] = RunnerType.GENERATE
    is_diffusion = values.get("runner_type") is RunnerType.DIFFUSION
    if Feature.DRAFTS not in allowed and not is_diffusion:
        values.pop("num_spec_tokens", None)


def needed_by_config(config: SchedulerConfig) -> frozenset[Feature]:
    """Give the features that a configuration makes use of."""
    needed = {
        feature
        for feature, neutral in _NEUTRAL.items()
        if any(getattr(config, name) != value for name, value in neutral.items())
    }
    if config.runner_type in OF_MODEL:
        needed.add(OF_MODEL[config.runner_type])
    elif config.num_spec_tokens:
        needed.add(Feature.DRAFTS)
    if len(config.kv_cache_groups) > 1:
        needed.add(Feature.SEVERAL_GROUPS)
    return frozenset(needed)


def needed_by_event(event: Event) -> frozenset[Feature]:
    """Give the features that an event makes use of, as far as it shows."""
    needed = set()
    if type(event) in _OF_EVENT:
        needed.add(_OF_EVENT[type(event)])
    match event:
        case AddRequest(request):
            params = request.sampling_params
            is_set = {
                Feature.ADAPTERS: request.lora is not None,
                Feature.GRAMMARS: request.needs_grammar,
                Feature.SESSIONS: request.resumable,
                Feature.SEVERAL_CLIENTS: request.client_index > 0,
                Feature.PREFIX_CACHING: request.cache_salt is not None or params.skip_reading_prefix_cache,
                Feature.STOPPING: params
                != SamplingParams(
                    max_tokens=params.max_tokens,
                    skip_reading_prefix_cache=params.skip_reading_prefix_cache,
                ),
            }
            needed |= {feature for feature, value in is_set.items() if value}
        case Schedule(throttle_prefills=True):
            needed.add(Feature.DATA_PARALLEL)
        case Update(result) if result.pooled_request_ids:
            needed.add(Feature.POOLING)
    return frozenset(needed)


def fits(config: SchedulerConfig, events: Iterable[Event], allowed: frozenset[Feature]) -> bool:
    """Tell whether a history keeps to the features that are allowed, as far as it shows."""
    return needed_by_config(config) <= allowed and all(
        needed_by_event(event) <= allowed for event in events
    )


assert {name for fields in _NEUTRAL.values() for name in fields} <= {
    field.name for field in attrs.fields(SchedulerConfig)
}
