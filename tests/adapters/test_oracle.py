"""`OracleScheduler` behaves like the real scheduler, seen through vLLM's own interface."""

from typing import Any

import attrs
import pytest

from kvsched_fp import InvalidConfig, InvalidEvent, Request, SamplingParams, SchedulerConfig

pytestmark = pytest.mark.usefixtures("_reference")

NUM_HISTORIES = 40


def make_oracle(config: SchedulerConfig) -> Any:
    """Build an oracle from what the real scheduler would be built from."""
    from tests.adapters.pairs import build_pair

    return build_pair(config)[1]


def add(driver: Any, name: str, num_tokens: int = 8, **fields: Any) -> Any:
    """Add a request of distinct tokens to a driver's scheduler; give vLLM's object."""
    from kvsched_fp import AddRequest

    request = Request(
        request_id=name,
        prompt_token_ids=range(100, 100 + num_tokens),
        sampling_params=SamplingParams(max_tokens=20),
        **fields,
    )
    driver.apply(AddRequest(request))
    return driver.requests[-1]


@pytest.mark.parametrize("seed", range(NUM_HISTORIES))
def test_identical(seed: int) -> None:
    """Outputs, requests and everything that can be seen inside are the same after every call."""
    from tests.adapters.pairs import play

    difference = play(seed)

    assert difference is None, str(difference)


ENGINES: dict[str, dict[str, Any]] = {
    "plain": {},
    "asynchronous": {"async_scheduling": True, "pipeline_parallel_size": 2},
    "drafts": {
        "num_spec_tokens": 2,
        "num_lookahead_tokens": 2,
        "num_spec_tokens_per_batch_size": ((1, 2, 2), (4, 9, 1)),
        "num_prefill_lookahead_tokens": 1,
        "drop_eagle_block": True,
        "spec_decode_metrics": "summary",
    },
    "hashes that look ahead": {
        "num_spec_tokens": 2,
        "num_prefill_lookahead_tokens": 1,
        "num_hash_lookahead_tokens": 1,
    },
    "pooling": {"runner_type": "pooling", "max_loras": 1},
    "encoder only": {
        "runner_type": "encoder_only",
        "data_parallel_size": 2,
        "prefill_schedule_interval": 4,
    },
    "diffusion": {"runner_type": "diffusion", "num_spec_tokens": 4, "async_scheduling": True},
}
"""Engines by what they do besides, as changes of the configuration."""


@pytest.mark.parametrize("engine", ENGINES)
def test_shows_every_attribute(config: SchedulerConfig, engine: str) -> None:
    """Every public attribute of the real scheduler can be read, and at the start has the same value."""
    from tests.adapters.pairs import build_pair, plain

    real, oracle = build_pair(attrs.evolve(config, **ENGINES[engine]))
    objects = {"waiting", "kv_holding_waiting", "kv_cache_manager", "encoder_cache_manager"}
    names = [name for name in vars(real.scheduler) if not name.startswith("_") and name not in objects]
    other = {"kv_event_publisher", "structured_output_manager", "vllm_config"}
    other |= {name for name in names if name.endswith("_config")}

    different = [
        name
        for name in names
        if name not in other
        and plain(getattr(real.scheduler, name)) != plain(getattr(oracle.scheduler, name))
    ]

    assert [] == different


def test_active_limit_takes_effect(config: SchedulerConfig) -> None:
    """`max_num_active_reqs` limits admission from its assignment on."""
    driver = make_oracle(config)
    for name in "abc":
        add(driver, name, 4)
    driver.scheduler.max_num_active_reqs = 2

    output = driver.scheduler.schedule()

    assert ["a", "b"] == list(output.num_scheduled_tokens)


def test_row_limit_is_checked(config: SchedulerConfig) -> None:
    """More running requests than `max_num_running_reqs` are an error, as with the real scheduler."""
    driver = make_oracle(config)
    for name in "abc":
        add(driver, name, 4)
    driver.scheduler.max_num_running_reqs = 2
    before = driver.scheduler.state

    with pytest.raises(InvalidConfig, match="max_num_running_reqs"):
        driver.scheduler.schedule()

    assert before == driver.scheduler.state


def test_model_runner_takes_effect(config: SchedulerConfig) -> None:
    """`use_v2_model_runner` may be assigned, and gives the output its shape."""
    driver = make_oracle(config)
    add(driver, "a")
    driver.scheduler.use_v2_model_runner = False

    output = driver.scheduler.schedule()

    assert output.scheduled_new_reqs[0].prefill_token_ids is None


def test_scheduler_config_takes_effect(config: SchedulerConfig) -> None:
    """What the real scheduler reads from `scheduler_config` in every step is read here as well."""
    driver = make_oracle(config)
    add(driver, "a")
    add(driver, "b")
    driver.scheduler.scheduler_config.long_prefill_token_threshold = 3

    output = driver.scheduler.schedule()

    assert {"a": 3, "b": 3} == output.num_scheduled_tokens


@pytest.mark.parametrize(
    "name", ["policy", "max_model_len", "running", "connector", "schedule", "kv_cache_manager"]
)
def test_other_assignments_are_refused(config: SchedulerConfig, name: str) -> None:
    """An assignment that would not take effect raises an error that names it."""
    driver = make_oracle(config)

    with pytest.raises(InvalidEvent, match=name):
        setattr(driver.scheduler, name, 7)


def test_priority_of_running_request_takes_effect(config: SchedulerConfig) -> None:
    """A request whose priority is raised is no longer the victim."""
    from kvsched_fp import SchedulingPolicy

    driver = make_oracle(attrs.evolve(config, policy=SchedulingPolicy.PRIORITY))
    request = add(driver, "a")
    driver.scheduler.schedule()

    request.priority = -5

    assert (-5, -5) == (request.priority, driver.scheduler.state.requests["a"].priority)


def test_priority_among_others_is_refused(config: SchedulerConfig) -> None:
    """The priority of one of several waiting requests cannot change: the real heap would be left wrong."""
    from kvsched_fp import SchedulingPolicy

    driver = make_oracle(attrs.evolve(config, policy=SchedulingPolicy.PRIORITY))
    add(driver, "a")
    request = add(driver, "b")

    with pytest.raises(InvalidEvent, match="priority"):
        request.priority = -5

    assert 0 == request.priority


def test_progress_cannot_be_assigned(config: SchedulerConfig) -> None:
    """What a scheduler writes on a request is read-only while it holds it, and free afterwards."""
    from vllm.v1.request import Request as VllmRequest
    from vllm.v1.request import RequestStatus

    driver = make_oracle(config)
    request = add(driver, "a")
    with pytest.raises(InvalidEvent, match="num_computed_tokens"):
        request.num_computed_tokens = 3
    with pytest.raises(InvalidEvent, match="append_output_token_ids"):
        request.append_output_token_ids(3)

    driver.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    request.num_computed_tokens = 3

    assert (VllmRequest, 3) == (type(request), request.num_computed_tokens)


def test_views_are_read_only(config: SchedulerConfig) -> None:
    """Nothing inside can be changed from outside."""
    driver = make_oracle(config)
    request = add(driver, "a")
    scheduler = driver.scheduler
    pool = scheduler.kv_cache_manager.block_pool

    for change in (
        lambda: scheduler.running.append(request),
        scheduler.waiting.pop_request,
        lambda: scheduler.requests.pop("a"),
        lambda: setattr(pool.blocks[1], "ref_cnt", 1),
        lambda: setattr(pool, "null_block", None),
        lambda: scheduler.kv_cache_manager.allocate_slots(request, 1),
        lambda: scheduler.encoder_cache_manager.allocate(request, 0),
    ):
        with pytest.raises(AttributeError):
            change()


def test_wrong_step_is_refused(config: SchedulerConfig) -> None:
    """A result for another step than the oldest in flight is refused, and changes nothing."""
    from kvsched_fp.adapters.vllm.driving.requests import to_model_runner_output

    driver = make_oracle(config)
    add(driver, "a", 40)
    driver.scheduler.schedule()
    add(driver, "b", 4)
    later = driver.scheduler.schedule()
    driver.scheduler.schedule()
    third = driver.scheduler.schedule()
    before = driver.scheduler.state

    assert later is not third
    with pytest.raises(InvalidEvent, match="oldest in flight"):
        driver.scheduler.update_from_output(third, to_model_runner_output(third.num_scheduled_tokens, {}))

    assert before == driver.scheduler.state
