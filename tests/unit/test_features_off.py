"""A feature that is off changes no byte; one that is on and not used changes only what says that it is on.

What is off is compared with traces that were recorded from the real scheduler when this package had none of
the features. What is on and not used is compared, in plain histories, with the same history without it.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest

from kvsched_fp import (
    AddRequest,
    AutomatonGrammar,
    Event,
    FinishRequests,
    GrammarReady,
    LoRA,
    Schedule,
    SchedulerConfig,
    StepResult,
    Update,
    initial_state,
    step,
)
from kvsched_fp.ids import RequestId
from kvsched_fp.trace import bundled_traces, encode_record, open_trace, open_trace_reader
from kvsched_fp.trace.codec import what_was_told
from tests.unit.worlds import make_config, make_request

with bundled_traces() as bundled:
    TRACES = list(bundled)


def replayed_bytes(recorded: Path, written: Path) -> bytes:
    """Play the events of a recorded trace, and give what is written of it."""
    with open_trace_reader(recorded) as reader:
        header = reader.header
        state = initial_state(header.config)
        with open_trace(written, header.config, header.source_sha256) as writer:
            for record in reader.records():
                state, outcome = step(state, record.event)
                writer.write(record.event, state, outcome)
    return written.read_bytes()


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_recorded_history_is_written_byte_for_byte(path: Path, tmp_path: Path) -> None:
    """With every feature off, header, events and outcomes are what they were."""
    assert path.read_bytes() == replayed_bytes(path, tmp_path / "trace.jsonl")


FEATURES: dict[str, dict[str, Any]] = {
    "asynchronous scheduling": {"async_scheduling": True},
    "pipeline": {"pipeline_parallel_size": 2},
    "data parallelism": {"data_parallel_size": 2},
    "delivery of blocks": {"requires_kv_delivery": True},
    "drafts": {"num_spec_tokens": 2},
    "drafts by batch size": {"num_spec_tokens_per_batch_size": ((1, 2, 1),)},
    "drafting slots": {"max_num_new_slots_for_drafting": 1},
    "prefill lookahead": {"num_prefill_lookahead_tokens": 1},
    "hash lookahead": {"num_hash_lookahead_tokens": 1},
    "eagle block": {"drop_eagle_block": True},
    "metrics of drafts": {"spec_decode_metrics": "summary"},
    "pooling": {"runner_type": "pooling"},
    "encoder only": {"runner_type": "encoder_only"},
    "diffusion": {"runner_type": "diffusion"},
    "adapters": {"max_loras": 1},
    "events of requests": {"log_request_events": True},
}
"""Each feature of a configuration, switched on."""

REQUEST_FEATURES: dict[str, dict[str, Any]] = {
    "pooling": {"pooling": True, "max_tokens": 1},
    "adapters": {"lora": LoRA("fine", 1)},
    "grammars": {"needs_grammar": True},
    "sessions": {"resumable": True},
    "diffusion": {"canvas_length": 2, "max_denoise_steps": 3},
}
"""What a request may ask for."""


@pytest.mark.parametrize("feature", FEATURES)
def test_feature_is_named_in_a_configuration_only_when_it_is_on(feature: str, tmp_path: Path) -> None:
    """A configuration without it is written as before; with it, just its own key is added."""
    changes = FEATURES[feature]
    written = []
    for config in (make_config(), make_config(**changes)):
        path = tmp_path / "trace.jsonl"
        open_trace(path, config).close()
        written.append(json.loads(path.read_bytes())["config"])
    off, on = written

    assert set(changes) == on.keys() - off.keys()
    assert off == {key: value for key, value in on.items() if key in off}


@pytest.mark.parametrize("feature", REQUEST_FEATURES)
def test_feature_is_named_in_a_request_only_when_it_is_asked_for(feature: str) -> None:
    """A request without it is written as before."""
    fields = REQUEST_FEATURES[feature]
    off, on = (
        encode_record(AddRequest(request), None)["event"]["request"]
        for request in (make_request("a", max_tokens=1), make_request("a", **{"max_tokens": 1} | fields))
    )

    assert fields.keys() - {"max_tokens"} == on.keys() - off.keys()
    assert off == {key: value for key, value in on.items() if key in off}


PLAIN = make_config(
    usable_blocks=12,
    max_num_batched_tokens=64,
    max_num_scheduled_tokens=9,
    max_num_seqs=4,
    enable_kv_cache_events=True,
    scheduler_reserve_full_isl=False,
)
"""A crowded world: requests are preempted, found in the cache, and ended from outside."""


def plain_history(config: SchedulerConfig, seed: int) -> list[Event]:
    """Make events in which each step is answered before the next, by one token per row that samples."""
    chance = Random(seed)
    state = initial_state(config)
    events: list[Event] = []

    def happen(event: Event) -> None:
        nonlocal state
        events.append(event)
        state, _ = step(state, event)

    for number in range(40):
        if chance.random() < 0.4:
            shared = chance.choice((0, 4, 8))
            prompt = shared + chance.randrange(1, 9)
            fields = {"max_tokens": chance.randrange(1, 12), "tokens": (1,) * shared}
            happen(AddRequest(make_request(f"r{number}", prompt, **fields)))
        if chance.random() < 0.05 and state.requests:
            happen(FinishRequests([chance.choice(sorted(state.requests))]))
        happen(Schedule())
        output = state.in_flight[0]
        rows = [row for row in output.num_scheduled_tokens if not state.progress[row].is_prefill_chunk]
        sampled = {row: (chance.randrange(9),) for row in rows}
        happen(Update(StepResult(step_id=output.step_id, sampled_token_ids=sampled)))
    return events


def outcomes(config: SchedulerConfig, events: Sequence[Event]) -> list[dict[str, Any]]:
    """Play events, and give what came of each as a trace has it."""
    state = initial_state(config)
    told = []
    for event in events:
        state, outcome = step(state, event)
        record = encode_record(event, what_was_told(event, state, outcome))
        told.append({key: value for key, value in record.items() if key != "event"})
    return told


def without(json_value: Any, keys: frozenset[str], parent: str = "") -> Any:
    """Give a JSON value without some keys, each named with the key that its object stands under."""
    if isinstance(json_value, dict):
        return {
            key: without(value, keys, key)
            for key, value in json_value.items()
            if f"{parent}.{key}" not in keys
        }
    if isinstance(json_value, list):
        return [without(item, keys, parent) for item in json_value]
    return json_value


UNUSED: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    # feature: (what switches it on, what both histories need for it not to be used, the keys that tell
    # of it, each behind the key under which its object stands)
    "asynchronous scheduling": ({"async_scheduling": True}, {}, set()),
    "pipeline": ({"pipeline_parallel_size": 2}, {}, {"scheduled_cached_requests.new_token_ids"}),
    "data parallelism": ({"data_parallel_size": 2}, {}, set()),
    "drafts": (
        # A number that goes by the batch is never padded to: padding is a use of drafts.
        {"num_spec_tokens": 2, "num_spec_tokens_per_batch_size": ((1, 99, 2),)},
        {},
        {"output.num_spec_tokens_to_schedule"},
    ),
    "drafts by batch size": ({"num_spec_tokens_per_batch_size": ((1, 99, 2),)}, {}, set()),
    "drafting slots": ({"max_num_new_slots_for_drafting": 2}, {}, set()),
    "prefill lookahead": ({"num_prefill_lookahead_tokens": 1}, {}, set()),
    "hash lookahead": ({"num_hash_lookahead_tokens": 1}, {"enable_prefix_caching": False}, set()),
    "eagle block": ({"drop_eagle_block": True}, {"enable_prefix_caching": False}, set()),
    "metrics of drafts": ({"spec_decode_metrics": "detailed"}, {}, {"outputs.spec_decode_metrics"}),
    "adapters": ({"max_loras": 1}, {}, set()),
    "events of requests": ({"log_request_events": True}, {}, {"outputs.events"}),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("use_v2_model_runner", [False, True], ids=["v1", "v2"])
@pytest.mark.parametrize("feature", UNUSED)
def test_feature_that_is_not_used_changes_nothing(
    feature: str, use_v2_model_runner: bool, seed: int
) -> None:
    """Steps are answered one by one, nobody proposes drafts, and no request asks for anything."""
    changes, base, keys = UNUSED[feature]
    config = attrs.evolve(PLAIN, use_v2_model_runner=use_v2_model_runner, **base)
    events = plain_history(config, seed)
    off = outcomes(config, events)
    on = outcomes(attrs.evolve(config, **changes), events)

    assert off == without(on, frozenset(keys))
    assert (on == off) is (not keys)


def test_plain_histories_are_not_dull() -> None:
    """Requests are preempted, resumed behind a hit and ended in them; else nothing would be shown."""
    told = [outcome for seed in range(4) for outcome in outcomes(PLAIN, plain_history(PLAIN, seed))]
    steps = [outcome["output"] for outcome in told if "output" in outcome]
    new = [request for planned in steps for request in planned["scheduled_new_requests"]]

    assert any(planned["preempted_request_ids"] for planned in steps)
    assert any(planned["finished_request_ids"] for planned in steps)
    assert any(request["num_computed_tokens"] for request in new)
    assert any(len(request["prefill_token_ids"]) > len(request["prompt_token_ids"]) for request in new)


def with_times(events: Sequence[Event]) -> Iterator[Event]:
    """Give the same events, each at its time."""
    for number, event in enumerate(events):
        yield event if isinstance(event, FinishRequests) else attrs.evolve(event, time=float(number))


def with_adapter(events: Sequence[Event]) -> Iterator[Event]:
    """Give the same events with one adapter for everybody."""
    for event in events:
        if isinstance(event, AddRequest):
            yield AddRequest(attrs.evolve(event.request, lora=LoRA("fine", 1)))
        else:
            yield event


def with_short_sessions(events: Sequence[Event]) -> Iterator[Event]:
    """Give the same events with each request as a session that is over with its first input."""
    for event in events:
        if isinstance(event, AddRequest):
            yield AddRequest(attrs.evolve(event.request, resumable=True))
        yield event  # the end marker: the same id, and not resumable


ANYTHING = AutomatonGrammar([[(token_id, 0) for token_id in range(9)]])


def with_grammars(events: Sequence[Event]) -> Iterator[Event]:
    """Give the same events with a grammar for each request that allows all, and is there at once."""
    for event in events:
        if isinstance(event, AddRequest):
            yield AddRequest(attrs.evolve(event.request, needs_grammar=True))
            yield GrammarReady(RequestId(event.request.request_id), ANYTHING)
        else:
            yield event


Rewrite = Callable[[Sequence[Event]], Iterator[Event]]
ASKED: dict[str, tuple[Rewrite, dict[str, Any], set[str]]] = {
    # feature: (how a history asks for it, what the configuration needs, the keys that tell of it)
    "times": (with_times, {}, set()),
    "adapters": (
        with_adapter,
        {"max_loras": 1, "enable_kv_cache_events": False},
        {"scheduled_new_requests.lora"},
    ),
    "sessions": (with_short_sessions, {}, set()),
    "grammars": (
        with_grammars,
        {},
        # A request is deferred until the scan finds that its grammar is there.
        {
            "output.has_structured_output_requests",
            "scheduler_stats.num_waiting_requests",
            "scheduler_stats.num_skipped_waiting_requests",
        },
    ),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("feature", ASKED)
def test_feature_that_is_asked_for_in_vain_changes_nothing(feature: str, seed: int) -> None:
    """One adapter for all, one input per session, grammars that allow all: decisions are the same."""
    rewrite, changes, keys = ASKED[feature]
    config = attrs.evolve(PLAIN, **changes)
    events = plain_history(PLAIN, seed)
    off = [told for told in outcomes(config, events) if told]
    on = [told for told in outcomes(config, list(rewrite(events))) if told]

    assert without(off, frozenset(keys)) == without(on, frozenset(keys))
