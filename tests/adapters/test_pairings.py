"""Our records and vLLM's, field by field."""

from typing import Any

import attrs
import pytest

from kvsched_fp import Request, SamplingParams, SchedulerConfig, add_request, initial_state, schedule
from kvsched_fp.kvcache.kv_events import BlockStored
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import PrefixCacheStats, SchedulerOutput, SchedulerStats, SpecDecodingStats
from kvsched_fp.progress import RequestEvent, RequestEventType, RequestSpecDecodeMetrics

pytestmark = pytest.mark.usefixtures("_reference")


@pytest.fixture
def output(config: SchedulerConfig) -> SchedulerOutput:
    """Give a step with one new request."""
    request = Request(
        request_id="a", prompt_token_ids=range(9), sampling_params=SamplingParams(max_tokens=3)
    )
    return schedule(add_request(initial_state(config), request))[1]


def to_theirs(output: SchedulerOutput) -> Any:
    """Give a step in vLLM's words."""
    from kvsched_fp.adapters.vllm.pairings import NEW_REQUEST, STEP, WITHOUT

    nothing = {"mm_features": [], "sampling_params": None, "pooling_params": None, "lora_request": None}
    new = [NEW_REQUEST.to_theirs(request, **nothing) for request in output.scheduled_new_requests]
    return STEP.to_theirs(output, scheduled_new_reqs=new, **WITHOUT)


def test_a_step_comes_back(output: SchedulerOutput) -> None:
    """What is written in vLLM's words and read again is what it was."""
    from kvsched_fp.adapters.vllm.pairings import STEP

    assert output == STEP.to_ours(to_theirs(output), step_id=output.step_id)


def test_a_step_with_features_comes_back(output: SchedulerOutput) -> None:
    """So it is with drafts, grammars, and what a pipeline sends ahead."""
    from kvsched_fp.adapters.vllm.pairings import STEP

    rows = attrs.evolve(output.scheduled_cached_requests, new_token_ids=((1, 2), ()))
    output = attrs.evolve(
        output,
        scheduled_cached_requests=rows,
        scheduled_spec_token_ids=OrderedMap({"b": (3, -1), "a": (4,)}),
        num_spec_tokens_to_schedule=2,
        skip_drafts=True,
        has_structured_output_requests=True,
        pending_structured_output_tokens=True,
        num_invalid_spec_tokens=OrderedMap({"b": 1}),
    )

    assert output == STEP.to_ours(to_theirs(output), step_id=output.step_id)


def test_figures_come_back() -> None:
    """The scheduler's figures are the same in both directions."""
    from kvsched_fp.adapters.vllm.pairings import SCHEDULER_STATS

    drafts = SpecDecodingStats(2, 3, 4, 1, (1, 0), (2, 2))
    stats = SchedulerStats(1, 2, 3, 0.5, PrefixCacheStats(reset=True, requests=4, hits=5), drafts)

    assert stats == SCHEDULER_STATS.to_ours(SCHEDULER_STATS.to_theirs(stats))


def test_what_happened_to_a_request_comes_back() -> None:
    """Events and the metrics of drafts are the same in both directions."""
    from kvsched_fp.adapters.vllm.pairings import REQUEST_EVENT, SPEC_DECODE_METRICS

    metrics = RequestSpecDecodeMetrics(2, (1, 0, 3), 7, (0, 2, 2, 2), (1, 2, 2, 2))
    events = [RequestEvent(kind, 0.5) for kind in RequestEventType]

    assert metrics == SPEC_DECODE_METRICS.to_ours(SPEC_DECODE_METRICS.to_theirs(metrics))
    assert events == [REQUEST_EVENT.to_ours(REQUEST_EVENT.to_theirs(event)) for event in events]


def test_names_of_blocks_are_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default vLLM publishes the last 8 bytes of a hash, so that is what comes back."""
    from kvsched_fp.adapters.vllm.pairings import BLOCK_STORED

    monkeypatch.delenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", raising=False)
    stored = BlockStored((bytes(range(32)),), None, (1, 2), 2, (None,), 0)
    written = BLOCK_STORED.to_theirs(stored, medium="GPU")

    assert (bytes(range(24, 32)),) == BLOCK_STORED.to_ours(written).block_hashes


def test_what_is_not_modelled_is_named(output: SchedulerOutput) -> None:
    """A field of vLLM's that says something for which we have no field does not go unnoticed."""
    from kvsched_fp.adapters.vllm.pairings import first_unmodelled

    written = to_theirs(output)
    assert first_unmodelled(written) is None
    written.num_common_prefix_blocks = [1]
    written.skip_drafts = True

    assert ("num_common_prefix_blocks", [1]) == first_unmodelled(written)


def test_every_field_of_ours_is_paired() -> None:
    """A field that is added to a record of ours cannot be forgotten."""
    from vllm.v1.metrics.stats import PrefixCacheStats as VllmPrefixCacheStats

    from kvsched_fp.adapters.vllm.pairing import Pair, Pairing

    with pytest.raises(TypeError, match="PrefixCacheStats has the fields"):
        Pairing(PrefixCacheStats, VllmPrefixCacheStats, Pair("hits", "hits"))
