"""The codecs of the configuration, the events and what comes of them."""

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp import (
    DEFAULT,
    MINIMAL,
    AddRequest,
    AutomatonGrammar,
    Emitted,
    EngineOutput,
    Event,
    FinishReason,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    InvalidConfig,
    LoRA,
    PauseState,
    RepetitionDetection,
    Request,
    RequestStatus,
    ResetPrefixCache,
    RunnerType,
    SamplingParams,
    Schedule,
    SchedulerConfig,
    SchedulerOutput,
    SetPauseState,
    StepResult,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
    initial_state,
    step,
)
from kvsched_fp.grammar import PermissiveGrammar
from kvsched_fp.kvcache.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import ClientOutputs
from kvsched_fp.request import FINISH_REASONS
from kvsched_fp.trace.codec import (
    decode_config,
    decode_emitted,
    decode_event,
    decode_output,
    encode_config,
    encode_emitted,
    encode_event,
    encode_output,
    encode_record,
    what_was_told,
)
from kvsched_fp.trace.header import encode_header, pinned_sources
from kvsched_fp.trace.values import CodecError
from kvsched_fp.workloads.play import play
from tests.unit.workloads.helpers import make_workload
from tests.unit.worlds import make_config, make_request


def _through_json(written: Any) -> Any:
    return json.loads(json.dumps(written, allow_nan=False))


texts = st.text(min_size=1, max_size=4)
counts = st.integers(0, 50)
tokens = st.lists(st.integers(0, 2**63 - 1), max_size=5).map(tuple)
detections = st.builds(
    RepetitionDetection, max_pattern_size=st.integers(3, 9), min_pattern_size=st.integers(0, 3)
)
params = st.builds(
    SamplingParams,
    max_tokens=st.integers(50, 99),
    min_tokens=counts,
    eos_token_id=st.none() | counts,
    stop_token_ids=st.frozensets(counts, max_size=4),
    repetition_detection=st.none() | detections,
    skip_reading_prefix_cache=st.booleans(),
)
requests = st.builds(
    Request,
    request_id=texts,
    prompt_token_ids=tokens.filter(len),
    sampling_params=params,
    arrival_time=st.floats(allow_nan=False, allow_infinity=False),
    priority=st.integers(),
    client_index=counts,
    cache_salt=st.none() | texts,
    lora=st.none() | st.builds(LoRA, texts, st.integers(1, 9), texts),
    needs_grammar=st.booleans(),
    resumable=st.booleans(),
    canvas_length=st.none() | st.integers(1, 9),
    max_denoise_steps=st.none() | st.integers(1, 9),
)
results = st.builds(
    StepResult,
    step_id=st.integers(1, 99),
    sampled_token_ids=st.dictionaries(texts, tokens, max_size=4).map(OrderedMap),
    pooled_request_ids=st.lists(texts, unique=True, max_size=3),
)
drafts = st.dictionaries(texts, st.lists(st.integers(-1, 9), max_size=4), max_size=3)
times = st.floats(allow_nan=False, allow_infinity=False)
grammars = st.lists(st.frozensets(st.integers(0, 9), max_size=4), min_size=1, max_size=3).map(
    lambda states: AutomatonGrammar([[(token_id, 0) for token_id in sorted(allowed)] for allowed in states])
) | st.just(PermissiveGrammar())
events = st.one_of(
    st.builds(AddRequest, requests, times),
    st.builds(UpdateDrafts, drafts),
    st.builds(UpdateDraftsInFlight, st.integers(1, 99), drafts),
    st.builds(GrammarReady, texts, grammars),
    st.builds(GrammarFailed, texts, texts),
    st.builds(
        FinishRequests,
        st.none() | st.lists(texts, unique=True, max_size=3).map(tuple),
        st.sampled_from(list(FINISH_REASONS)),
    ),
    st.builds(Schedule, st.booleans(), times),
    st.builds(Update, results, times),
    st.builds(SetPauseState, st.sampled_from(list(PauseState))),
    st.builds(ResetPrefixCache, st.booleans(), times),
)


@given(events)
def test_events_come_back_equal(event: Event) -> None:
    """Writing and reading an event changes nothing."""
    assert event == decode_event(_through_json(encode_event(event)))


EVERYTHING = SchedulerConfig(
    log_request_events=True,
    runner_type="encoder_only",
    max_loras=2,
    async_scheduling=True,
    pipeline_parallel_size=3,
    data_parallel_size=2,
    num_spec_tokens=4,
    num_spec_tokens_per_batch_size=((1, 2, 4), (3, 9, 1)),
    max_num_new_slots_for_drafting=1,
    num_prefill_lookahead_tokens=2,
    num_hash_lookahead_tokens=1,
    spec_decode_metrics="summary",
)
"""Every feature that excludes no other is on."""


@pytest.mark.parametrize(
    "config",
    [
        DEFAULT,
        MINIMAL,
        EVERYTHING,
        SchedulerConfig(drop_eagle_block=True),
        SchedulerConfig(
            max_num_active_seqs=7,
            max_num_scheduled_tokens=100,
            policy="priority",
            watermark=0.25,
            use_v2_model_runner=False,
        ),
    ],
)
def test_configs_come_back_equal(config: SchedulerConfig) -> None:
    """Writing and reading a configuration changes nothing."""
    assert config == decode_config(_through_json(encode_config(config)))


@pytest.mark.parametrize("config", [DEFAULT, EVERYTHING])
def test_the_fields_of_a_config_keep_their_order(config: SchedulerConfig) -> None:
    """The order of keys is that of the fields, so that equal configurations give equal bytes."""
    written = encode_config(config)

    assert [field.name for field in attrs.fields(SchedulerConfig) if field.name in written] == list(written)


@pytest.mark.parametrize("use_v2_model_runner", [True, False])
def test_what_comes_out_of_a_run_comes_back_equal(use_v2_model_runner: bool) -> None:
    """Outputs and emitted values of a run with preemptions, of both model runners."""
    config = make_config(
        usable_blocks=7,
        use_v2_model_runner=use_v2_model_runner,
        enable_kv_cache_events=True,
        include_finished_set=True,
        needs_kv_cache_zeroing=True,
    )
    num_preempted = 0
    for played in play(config, make_workload((0.0, 8, 12), (0.0, 9, 14), (0.0, 5, 3))):
        if isinstance(played.outcome, SchedulerOutput):
            num_preempted += len(played.outcome.preempted_request_ids)

            assert played.outcome == decode_output(_through_json(encode_output(played.outcome)))
        emitted = played.after.emitted

        assert emitted == decode_emitted(_through_json(encode_emitted(emitted)))

    assert num_preempted > 0


FEATURES: list[dict[str, Any]] = [
    {"async_scheduling": True, "num_spec_tokens": 2, "spec_decode_metrics": "detailed"},
    {"num_spec_tokens": 2, "pipeline_parallel_size": 2, "num_lookahead_tokens": 2},
    {"max_loras": 1, "log_request_events": True, "num_hash_lookahead_tokens": 1},
    {"runner_type": "pooling", "max_loras": 1},
]


@pytest.mark.parametrize("changes", FEATURES, ids=str)
def test_what_the_features_add_comes_back_equal(changes: dict[str, Any]) -> None:
    """Drafts, placeholders, metrics, tokens for a pipeline, adapters, events, errors, pooled outputs."""
    config = make_config(enable_kv_cache_events=True, **changes)
    pools = config.runner_type is RunnerType.POOLING
    lora = None if config.max_loras is None else LoRA("fine", 1)
    state = initial_state(config)
    for name in "abc":
        asks = {"lora": lora, "pooling": pools, "needs_grammar": name != "b" and not pools}
        request = make_request(name, 9, max_tokens=1 if pools else 6, **asks)
        state, _ = step(state, AddRequest(request, time=1.0))
    if not pools:
        state, _ = step(state, GrammarReady("a", AutomatonGrammar([[(7, 0)]])))
        state, _ = step(state, GrammarFailed("c", "why"))
    for number in range(8):
        if config.num_spec_tokens and not config.async_scheduling:
            state, _ = step(state, UpdateDrafts(dict.fromkeys(state.running, (7, 7))))
        state, output = step(state, Schedule(time=2.0))
        if config.async_scheduling and number == 1:
            state, _ = step(state, UpdateDraftsInFlight(output.step_id, {"a": (7, 8), "b": (7, 8)}))
            output = state.in_flight[-1]

        assert output == decode_output(_through_json(encode_output(output)))

        if number == 0 and config.async_scheduling:
            continue
        oldest = state.in_flight[0]
        rows = tuple(oldest.num_scheduled_tokens)
        sampled = {} if pools else dict.fromkeys(rows, (7,))
        result = StepResult(
            step_id=oldest.step_id, sampled_token_ids=sampled, pooled_request_ids=rows if pools else ()
        )
        state, _ = step(state, Update(result, time=3.0))

        assert state.emitted == decode_emitted(_through_json(encode_emitted(state.emitted)))


def test_rare_parts_of_emitted_come_back_equal() -> None:
    """Stop reasons of both kinds, and all kinds of KV cache event."""
    emitted = Emitted(
        OrderedMap(
            {
                3: ClientOutputs(
                    (
                        EngineOutput("a", (1, 2, 3), FinishReason.STOP, 3, None),
                        EngineOutput("b", (), FinishReason.REPETITION, "repetition_detected", None),
                    )
                ),
                1: ClientOutputs(finished_request_ids=("a",)),
            }
        ),
        (
            BlockStored((b"\x01" * 16,), b"\x02" * 16, (1, 2, 3, 4), 4, (("salt",), None), 0),
            BlockRemoved((b"\x01" * 16,), 1),
            AllBlocksCleared(),
        ),
    )

    assert emitted == decode_emitted(_through_json(encode_emitted(emitted)))


def test_an_unequal_order_is_written_unequally() -> None:
    """The order of a batch is part of its value."""
    first = Update(StepResult(step_id=1, sampled_token_ids={"a": (1,), "b": (2,)}))
    second = Update(StepResult(step_id=1, sampled_token_ids={"b": (2,), "a": (1,)}))

    assert encode_event(first) != encode_event(second)


def test_a_record_holds_what_came_of_its_event() -> None:
    """A step has its output, an update what it told, a reset whether it was done; other events nothing."""
    config = make_config()
    state = initial_state(config)
    written = []
    for event in (
        AddRequest(make_request("a", 5)),
        Schedule(),
        Update(StepResult(step_id=1, sampled_token_ids={"a": (7,)})),
        ResetPrefixCache(),
        SetPauseState(PauseState.PAUSED_ALL),
        FinishRequests(None),
    ):
        state, outcome = step(state, event)
        written.append(encode_record(event, what_was_told(event, state, outcome)))

    assert [
        ["event"],
        ["event", "output"],
        ["event", "emitted"],
        ["event", "done"],
        ["event"],
        ["event"],
    ] == [list(record) for record in written]
    assert [("a", 5)] == [tuple(pair) for pair in written[1]["output"]["num_scheduled_tokens"]]
    assert [7] == written[2]["emitted"]["clients"][0][1]["outputs"][0]["new_token_ids"]
    assert written[3]["done"] is False


def test_the_header_says_what_the_file_is() -> None:
    """Format, version and reference stand before the configuration."""
    assert {
        "format": "kvsched-fp-trace",
        "version": 1,
        "reference": "vllm 0.33.0",
        "source_sha256": dict(pinned_sources()),
        "config": encode_config(MINIMAL),
    } == encode_header(MINIMAL)


def test_a_config_that_a_trace_cannot_name_is_refused() -> None:
    """A block hasher of the caller's own has no name in a trace."""

    class OwnHasher:
        def hash_block(self, *_: object) -> bytes:
            return b""

    with pytest.raises(InvalidConfig, match="'OwnHasher'; allowed: in a trace, one of blake2b"):
        encode_config(attrs.evolve(DEFAULT, block_hasher=OwnHasher()))


@pytest.mark.parametrize(
    ("path", "change", "allowed"),
    [
        ("event.request.request_id", {"request_id": ""}, "a non-empty string"),
        ("event.request.prompt_token_ids", {"prompt_token_ids": []}, "at least one token id"),
        ("event.request.prompt_token_ids", {"prompt_token_ids": [-1]}, "integers from 0"),
        ("event.request.arrival_time", {"arrival_time": None}, "a number"),
        ("event.request", {"colour": 1}, "an object with the keys request_id, prompt_token_ids"),
    ],
)
def test_reading_a_wrong_event_names_the_place(path: str, change: dict[str, Any], allowed: str) -> None:
    """The error has the path to the field, whoever found it."""
    written = encode_event(AddRequest(make_request("a", 5)))
    written["request"].update(change)

    with pytest.raises(CodecError) as caught:
        decode_event(written)

    assert path == caught.value.field
    assert allowed in caught.value.allowed


def test_reading_a_wrong_stop_reason_names_the_place() -> None:
    """A stop reason is a token or a word."""
    output = EngineOutput("a", (1,), FinishReason.STOP, 1, None)
    written = encode_emitted(Emitted(OrderedMap({0: ClientOutputs((output,))})))
    written["clients"][0][1]["outputs"][0]["stop_reason"] = 1.5

    with pytest.raises(
        CodecError, match=r"emitted\.clients\[0\]\[1\]\.outputs\[0\]\.stop_reason: got 1\.5"
    ):
        decode_emitted(written)


def test_reading_a_wrong_status_names_the_place() -> None:
    """A status that is not final is refused by the event itself."""
    written = encode_event(FinishRequests(None))
    written["status"] = RequestStatus.RUNNING.value

    with pytest.raises(CodecError, match=r"event\.status: .*a final status"):
        decode_event(written)


def test_reading_a_contradictory_config_names_the_field() -> None:
    """The checks of the configuration apply to one from a file too."""
    written = encode_config(MINIMAL)
    written["num_blocks"] = 2

    with pytest.raises(CodecError, match=r"config\.num_blocks: got 2; allowed: at least 7"):
        decode_config(written)
