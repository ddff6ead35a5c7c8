"""How the configuration, the events and what comes of them are written in a trace.

A trace is JSON Lines: one header (`header.py`), then one record per event.

    {"format": "kvsched-fp-trace", "version": 1, ..., "config": {...}}
    {"event": {"kind": "add_request", "request": {...}}}
    {"event": {"kind": "schedule", "throttle_prefills": false}, "output": {...}}
    {"event": {"kind": "update", "result": {...}}, "emitted": {...}}
    {"event": {"kind": "reset_prefix_cache", "reset_running_requests": false}, "done": true}

There is one codec per record class, with the fields under their own names and in their order; the rules
for plain values are in `values.py`. `write_...` gives text, `encode_...` the JSON value of it, and
`decode_...` mirrors `encode_...`. Ids that the reference keeps as a set are written sorted, since their
order carries nothing.
"""

import json as json_format
from typing import Any, TypeAlias

from kvsched_fp.config import (
    ALL_QUIRKS,
    Quirk,
    RunnerType,
    SchedulerConfig,
    SchedulingPolicy,
    SpecDecodeMetricsLevel,
)
from kvsched_fp.errors import InvalidConfig
from kvsched_fp.events import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    StepResult,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.grammar import AutomatonGrammar, PermissiveGrammar
from kvsched_fp.kvcache.groups.full import FullAttentionSpec
from kvsched_fp.kvcache.hashing import Blake2BlockHasher
from kvsched_fp.kvcache.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from kvsched_fp.machine import Outcome
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import (
    CachedRequestData,
    ClientOutputs,
    Emitted,
    EngineOutput,
    NewRequestData,
    PrefixCacheStats,
    SchedulerOutput,
    SchedulerStats,
    SpecDecodingStats,
)
from kvsched_fp.progress import PrefillStats, RequestEvent, RequestEventType, RequestSpecDecodeMetrics
from kvsched_fp.request import (
    FinishReason,
    LoRA,
    RepetitionDetection,
    Request,
    RequestStatus,
    SamplingParams,
)
from kvsched_fp.state import SchedulerState
from kvsched_fp.trace.block_names import OpaqueBlockHasher
from kvsched_fp.trace.values import (
    BOOLEAN,
    HEX,
    INTEGER,
    INTEGER_SET,
    INTEGERS,
    NUMBER,
    SORTED_TEXTS,
    TEXT,
    Codec,
    CodecError,
    enum_of,
    map_of,
    optional,
    record,
    require_keys,
    tuple_of,
    union,
    unless,
)

_TEXTS = tuple_of(TEXT)
_BLOCK_IDS = tuple_of(INTEGERS)


# The configuration.

GROUPS = tuple_of(union(full_attention=(FullAttentionSpec, record(FullAttentionSpec, block_size=INTEGER))))
"""The KV cache groups, each with its kind."""

HASHER = union(
    blake2b=(Blake2BlockHasher, record(Blake2BlockHasher)),
    opaque=(OpaqueBlockHasher, record(OpaqueBlockHasher)),
)
"""The block hasher: those that a trace can name."""

CONFIG = record(
    SchedulerConfig,
    max_model_len=INTEGER,
    max_num_seqs=INTEGER,
    max_num_active_seqs=optional(INTEGER),
    max_num_batched_tokens=INTEGER,
    max_num_scheduled_tokens=optional(INTEGER),
    use_v2_model_runner=BOOLEAN,
    policy=enum_of(SchedulingPolicy),
    enable_chunked_prefill=BOOLEAN,
    long_prefill_token_threshold=INTEGER,
    long_prefill_token_threshold_adaptive=BOOLEAN,
    scheduler_reserve_full_isl=BOOLEAN,
    watermark=NUMBER,
    prefill_schedule_interval=INTEGER,
    num_blocks=INTEGER,
    block_size=INTEGER,
    kv_cache_groups=GROUPS,
    enable_prefix_caching=BOOLEAN,
    num_lookahead_tokens=INTEGER,
    needs_kv_cache_zeroing=BOOLEAN,
    block_hasher=HASHER,
    enable_kv_cache_events=BOOLEAN,
    allow_undersized_pool=BOOLEAN,
    include_finished_set=BOOLEAN,
    log_stats=BOOLEAN,
    log_request_events=unless(False, BOOLEAN),
    runner_type=unless(RunnerType.GENERATE, enum_of(RunnerType)),
    max_loras=unless(None, INTEGER),
    async_scheduling=unless(False, BOOLEAN),
    pipeline_parallel_size=unless(1, INTEGER),
    data_parallel_size=unless(1, INTEGER),
    requires_kv_delivery=unless(False, BOOLEAN),
    num_spec_tokens=unless(0, INTEGER),
    num_spec_tokens_per_batch_size=unless(None, tuple_of(INTEGERS)),
    max_num_new_slots_for_drafting=unless(0, INTEGER),
    num_prefill_lookahead_tokens=unless(0, INTEGER),
    num_hash_lookahead_tokens=unless(0, INTEGER),
    drop_eagle_block=unless(False, BOOLEAN),
    spec_decode_metrics=unless(SpecDecodeMetricsLevel.NONE, enum_of(SpecDecodeMetricsLevel)),
    quirks=unless(ALL_QUIRKS, tuple_of(enum_of(Quirk))),
)


# The events.

_LORA = record(LoRA, name=TEXT, lora_id=INTEGER, path=TEXT)

_REQUEST = record(
    Request,
    request_id=TEXT,
    prompt_token_ids=INTEGERS,
    sampling_params=record(
        SamplingParams,
        max_tokens=INTEGER,
        min_tokens=INTEGER,
        eos_token_id=optional(INTEGER),
        stop_token_ids=INTEGER_SET,
        repetition_detection=optional(
            record(
                RepetitionDetection,
                max_pattern_size=INTEGER,
                min_pattern_size=INTEGER,
                min_count=INTEGER,
            )
        ),
        skip_reading_prefix_cache=BOOLEAN,
    ),
    arrival_time=NUMBER,
    priority=INTEGER,
    client_index=INTEGER,
    cache_salt=optional(TEXT),
    lora=unless(None, _LORA),
    pooling=unless(False, BOOLEAN),
    needs_grammar=unless(False, BOOLEAN),
    resumable=unless(False, BOOLEAN),
    canvas_length=unless(None, INTEGER),
    max_denoise_steps=unless(None, INTEGER),
)

_RESULT = record(
    StepResult,
    step_id=INTEGER,
    sampled_token_ids=map_of(TEXT, INTEGERS),
    pooled_request_ids=unless((), _TEXTS),
)

_TIME = unless(0.0, NUMBER)

_GRAMMAR = union(
    automaton=(
        AutomatonGrammar,
        record(AutomatonGrammar, moves=tuple_of(tuple_of(INTEGERS)), state=INTEGER),
    ),
    permissive=(PermissiveGrammar, record(PermissiveGrammar)),
)

EVENT = union(
    add_request=(AddRequest, record(AddRequest, request=_REQUEST, time=_TIME)),
    finish_requests=(
        FinishRequests,
        record(FinishRequests, request_ids=optional(_TEXTS), status=enum_of(RequestStatus)),
    ),
    schedule=(Schedule, record(Schedule, throttle_prefills=BOOLEAN, time=_TIME)),
    update=(Update, record(Update, result=_RESULT, time=_TIME)),
    update_drafts=(UpdateDrafts, record(UpdateDrafts, draft_token_ids=map_of(TEXT, INTEGERS))),
    update_drafts_in_flight=(
        UpdateDraftsInFlight,
        record(UpdateDraftsInFlight, step_id=INTEGER, draft_token_ids=map_of(TEXT, INTEGERS)),
    ),
    grammar_ready=(GrammarReady, record(GrammarReady, request_id=TEXT, grammar=_GRAMMAR)),
    grammar_failed=(GrammarFailed, record(GrammarFailed, request_id=TEXT, message=TEXT)),
    set_pause_state=(SetPauseState, record(SetPauseState, pause_state=enum_of(PauseState))),
    reset_prefix_cache=(
        ResetPrefixCache,
        record(ResetPrefixCache, reset_running_requests=BOOLEAN, time=_TIME),
    ),
)


# What goes to the model runner.

OUTPUT = record(
    SchedulerOutput,
    step_id=INTEGER,
    scheduled_new_requests=tuple_of(
        record(
            NewRequestData,
            request_id=TEXT,
            prompt_token_ids=INTEGERS,
            block_ids=_BLOCK_IDS,
            num_computed_tokens=INTEGER,
            prefill_token_ids=optional(INTEGERS),
            lora=unless(None, _LORA),
            pooling=unless(False, BOOLEAN),
        )
    ),
    scheduled_cached_requests=record(
        CachedRequestData,
        request_ids=_TEXTS,
        resumed_request_ids=SORTED_TEXTS,
        all_token_ids=map_of(TEXT, INTEGERS),
        new_block_ids=tuple_of(optional(_BLOCK_IDS)),
        num_computed_tokens=tuple_of(INTEGER),
        num_output_tokens=tuple_of(INTEGER),
        new_token_ids=unless((), tuple_of(INTEGERS)),
    ),
    num_scheduled_tokens=map_of(TEXT, INTEGER),
    total_num_scheduled_tokens=INTEGER,
    preempted_request_ids=SORTED_TEXTS,
    finished_request_ids=SORTED_TEXTS,
    new_block_ids_to_zero=optional(INTEGERS),
    scheduled_spec_token_ids=unless(OrderedMap(), map_of(TEXT, INTEGERS)),
    num_spec_tokens_to_schedule=unless(0, INTEGER),
    skip_drafts=unless(False, BOOLEAN),
    has_structured_output_requests=unless(False, BOOLEAN),
    pending_structured_output_tokens=unless(False, BOOLEAN),
    num_invalid_spec_tokens=unless(None, map_of(TEXT, INTEGER)),
)


# What goes to the clients.


def _decode_stop_reason(json: Any, path: str) -> int | str:
    if type(json) in (int, str):
        return json  # type: ignore[no-any-return]
    raise CodecError(path, json, "an integer, a text or null")


_STOP_REASON: Codec[int | str] = Codec(
    json_format.dumps, _decode_stop_reason, {"type": ["integer", "string"]}
)

_ENGINE_OUTPUT = record(
    EngineOutput,
    request_id=TEXT,
    new_token_ids=INTEGERS,
    finish_reason=optional(enum_of(FinishReason)),
    stop_reason=optional(_STOP_REASON),
    prefill_stats=optional(
        record(
            PrefillStats,
            num_prompt_tokens=INTEGER,
            num_computed_tokens=INTEGER,
            num_local_cached_tokens=INTEGER,
            num_cache_creation_tokens=INTEGER,
        )
    ),
    spec_decode_metrics=unless(
        None,
        record(
            RequestSpecDecodeMetrics,
            num_spec_tokens=INTEGER,
            histogram=tuple_of(INTEGER),
            num_draft_tokens=INTEGER,
            per_step_accepted=tuple_of(INTEGER),
            per_step_drafted=tuple_of(INTEGER),
        ),
    ),
    events=unless((), tuple_of(record(RequestEvent, type=enum_of(RequestEventType), time=NUMBER))),
    error=unless(None, TEXT),
    pooled=unless(False, BOOLEAN),
)

_STATS = record(
    SchedulerStats,
    num_running_requests=INTEGER,
    num_waiting_requests=INTEGER,
    num_skipped_waiting_requests=INTEGER,
    kv_cache_usage=NUMBER,
    prefix_cache_stats=record(
        PrefixCacheStats,
        reset=BOOLEAN,
        requests=INTEGER,
        queries=INTEGER,
        hits=INTEGER,
        preempted_requests=INTEGER,
        preempted_queries=INTEGER,
        preempted_hits=INTEGER,
    ),
    spec_decoding_stats=unless(
        None,
        record(
            SpecDecodingStats,
            num_spec_tokens=INTEGER,
            num_drafts=INTEGER,
            num_draft_tokens=INTEGER,
            num_accepted_tokens=INTEGER,
            num_accepted_tokens_per_pos=tuple_of(INTEGER),
            num_draft_tokens_per_pos=tuple_of(INTEGER),
        ),
    ),
)

_KV_EVENT = union(
    block_stored=(
        BlockStored,
        record(
            BlockStored,
            block_hashes=tuple_of(HEX),
            parent_block_hash=optional(HEX),
            token_ids=INTEGERS,
            block_size=INTEGER,
            extra_keys=tuple_of(optional(_TEXTS)),
            group_index=INTEGER,
            lora_id=unless(None, INTEGER),
            lora_name=unless(None, TEXT),
            lookahead_token_ids=unless(None, tuple_of(INTEGERS)),
        ),
    ),
    block_removed=(BlockRemoved, record(BlockRemoved, block_hashes=tuple_of(HEX), group_index=INTEGER)),
    all_blocks_cleared=(AllBlocksCleared, record(AllBlocksCleared)),
)

EMITTED = record(
    Emitted,
    clients=map_of(
        INTEGER,
        record(
            ClientOutputs,
            outputs=tuple_of(_ENGINE_OUTPUT),
            finished_request_ids=optional(SORTED_TEXTS),
            scheduler_stats=optional(_STATS),
        ),
    ),
    kv_events=tuple_of(_KV_EVENT),
)


# The public names.


def encode_config(config: SchedulerConfig) -> dict[str, Any]:
    """Write a configuration. Raises `InvalidConfig` for a block hasher or group that has no name here."""
    try:
        return CONFIG.encode(config)  # type: ignore[no-any-return]
    except CodecError as error:
        raise InvalidConfig("a part of the config", error.value, f"in a trace, {error.allowed}") from None


def decode_config(json: Any) -> SchedulerConfig:
    """Read a configuration back. Raises `CodecError`."""
    return CONFIG.decode(json, "config")


def encode_event(event: Event) -> dict[str, Any]:
    """Write an event."""
    return EVENT.encode(event)  # type: ignore[no-any-return]


def decode_event(json: Any) -> Event:
    """Read an event back. Raises `CodecError`."""
    return EVENT.decode(json, "event")  # type: ignore[no-any-return]


def encode_output(output: SchedulerOutput) -> dict[str, Any]:
    """Write the output of a step."""
    return OUTPUT.encode(output)  # type: ignore[no-any-return]


def decode_output(json: Any) -> SchedulerOutput:
    """Read the output of a step back. Raises `CodecError`."""
    return OUTPUT.decode(json, "output")


def encode_emitted(emitted: Emitted) -> dict[str, Any]:
    """Write what an update told the clients."""
    return EMITTED.encode(emitted)  # type: ignore[no-any-return]


def decode_emitted(json: Any) -> Emitted:
    """Read what an update told the clients back. Raises `CodecError`."""
    return EMITTED.decode(json, "emitted")


Told: TypeAlias = SchedulerOutput | Emitted | bool | None
"""What came of an event: the output of a step, what an update told, whether a reset was done; or None."""


def what_was_told(event: Event, after: SchedulerState, outcome: Outcome) -> Told:
    """Give what came of `event`, from what `machine.step()` gave."""
    return after.emitted if isinstance(event, Update) else outcome


def write_told(told: Told) -> str:
    """Write what came of an event, as it stands behind the event in a record; nothing for None."""
    if isinstance(told, SchedulerOutput):
        return f',"output":{OUTPUT.write(told)}'
    if isinstance(told, Emitted):
        return f',"emitted":{EMITTED.write(told)}'
    return "" if told is None else f',"done":{BOOLEAN.write(told)}'


def encode_told(told: Told) -> dict[str, Any]:
    """Write what came of an event, under the key that says what it is; nothing for None."""
    return json_format.loads(f"{{{write_told(told)[1:]}}}")  # type: ignore[no-any-return]


_TOLD_BY_EVENT: dict[type[Event], tuple[str, Codec[Any]]] = {
    Schedule: ("output", OUTPUT),
    Update: ("emitted", EMITTED),
    ResetPrefixCache: ("done", BOOLEAN),
}


def told_key(event: Event) -> str | None:
    """Name the key under which the record of `event` holds what came of it; None if nothing does."""
    entry = _TOLD_BY_EVENT.get(type(event))
    return None if entry is None else entry[0]


def decode_told(json: dict[str, Any], event: Event) -> Told:
    """Read what came of `event` out of its record. Raises `CodecError`."""
    entry = _TOLD_BY_EVENT.get(type(event))
    keys = ("event",) if entry is None else ("event", entry[0])
    require_keys(json, "record", keys)
    return None if entry is None else entry[1].decode(json[entry[0]], entry[0])


def write_record(event: Event, told: Told) -> str:
    """Write one event, and what came of it."""
    return f'{{"event":{EVENT.write(event)}{write_told(told)}}}'


def encode_record(event: Event, told: Told) -> dict[str, Any]:
    """Write one event, and what came of it."""
    return json_format.loads(write_record(event, told))  # type: ignore[no-any-return]
