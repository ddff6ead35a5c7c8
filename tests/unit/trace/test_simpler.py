"""How small a history is, and simpler events and configurations."""

from typing import Any

import attrs
import pytest

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    RepetitionDetection,
    Request,
    RequestStatus,
    ResetPrefixCache,
    SamplingParams,
    Schedule,
    SchedulerConfig,
    StepResult,
    Update,
)
from kvsched_fp.ids import StepId
from kvsched_fp.kvcache.groups.full import FullAttentionSpec
from kvsched_fp.trace.simpler import measure, simpler_configs, simpler_events, with_fewer_blocks

CONFIG = SchedulerConfig()


def _add(prompt: tuple[int, ...], **changes: Any) -> AddRequest:
    params = changes.pop("sampling_params", SamplingParams(max_tokens=1))
    return AddRequest(
        Request(request_id="a", prompt_token_ids=prompt, sampling_params=params, **changes)  # type: ignore[arg-type]
    )


def _update(**rows: tuple[int, ...]) -> Update:
    return Update(StepResult(step_id=StepId(1), sampled_token_ids=rows))  # type: ignore[arg-type]


EVENTS: tuple[Event, ...] = (
    _add((7, 8, 9), priority=3, cache_salt="salt"),
    _add(
        (0,),
        sampling_params=SamplingParams(
            max_tokens=4,
            min_tokens=2,
            stop_token_ids=(5,),  # type: ignore[arg-type]
            repetition_detection=RepetitionDetection(max_pattern_size=1),
        ),
    ),
    _update(a=(1, 2), b=(), c=(0,)),
    FinishRequests(("a", "b"), RequestStatus.FINISHED_ERROR),  # type: ignore[arg-type]
    Schedule(throttle_prefills=True),
    ResetPrefixCache(reset_running_requests=True),
)


def test_fewer_events_count_before_anything_else() -> None:
    """A longer prompt is smaller than one event more."""
    long = [_add(tuple(range(500)), priority=4)]

    assert measure(CONFIG, long) < measure(CONFIG, [_add((0,)), Schedule()])


def test_a_field_at_its_default_counts_before_numbers() -> None:
    """A large pool that nobody need think about is simpler than a small one."""
    small = attrs.evolve(CONFIG, num_blocks=9, allow_undersized_pool=True)

    assert measure(CONFIG, []) < measure(small, [])
    assert measure(small, []) < measure(attrs.evolve(small, num_blocks=10), [])


def test_early_requests_are_smaller() -> None:
    """Where nothing else differs."""
    add = _add((0,))

    assert measure(CONFIG, [add, Schedule()]) < measure(CONFIG, [Schedule(), add])


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_to_an_end_of_its_simplifications(event: Event) -> None:
    """Taking the first that is smaller, again and again, ends at the plainest event of the kind."""
    while smaller := next(
        (one for one in simpler_events(event) if measure(CONFIG, [one]) < measure(CONFIG, [event])), None
    ):
        event = smaller

    plainest = (_add((0,)), _update(), FinishRequests(("a",)), Schedule(), ResetPrefixCache())  # type: ignore[arg-type]
    assert event in plainest


def test_what_is_plain_stays() -> None:
    """There is nothing simpler."""
    plain = [_add((0,)), _update(), Schedule(), ResetPrefixCache()]

    assert [] == [simpler for event in plain for simpler in simpler_events(event)]


def test_every_field_of_a_configuration_goes_to_its_default() -> None:
    """Each alone; blocks of another size take their groups along."""
    groups = (FullAttentionSpec(block_size=4),) * 2
    config = attrs.evolve(
        CONFIG,
        max_model_len=64,
        block_size=4,
        kv_cache_groups=groups,
        watermark=0.1,
        log_stats=False,
        max_num_seqs=3,
    )
    found = list(simpler_configs(config))

    assert attrs.evolve(config, watermark=0.0) in found
    assert attrs.evolve(config, log_stats=True) in found
    assert attrs.evolve(config, max_num_seqs=128) in found
    assert attrs.evolve(config, kv_cache_groups=groups[:1]) in found
    groups_of_16 = (FullAttentionSpec(block_size=16),) * 2
    assert attrs.evolve(config, block_size=16, kv_cache_groups=groups_of_16) in found


def test_numbers_are_lowered_as_far_as_they_go() -> None:
    """To the least, to half, and by one; what is no configuration is left out."""
    config = attrs.evolve(CONFIG, max_model_len=64, num_blocks=5)
    found = {(simpler.max_model_len, simpler.num_blocks) for simpler in simpler_configs(config)}

    assert {(1, 5), (32, 5), (63, 5)} <= found
    assert all(num_blocks in {5, 1000} for _, num_blocks in found)


def test_a_smaller_pool_must_be_one() -> None:
    """A pool that cannot hold one request is none, unless that is allowed."""
    config = attrs.evolve(CONFIG, max_model_len=64, num_blocks=6)

    assert [5] == [smaller.num_blocks for smaller in with_fewer_blocks(config, 1)]
    assert [] == list(with_fewer_blocks(config, 2))
