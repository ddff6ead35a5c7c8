"""A counter of the real scheduler that differs from that in the state is named, and no other."""

from collections.abc import Callable
from typing import Any

import pytest

from kvsched_fp import SchedulerConfig
from tests.adapters.test_shadow import make_shadow, run

pytestmark = pytest.mark.usefixtures("_reference")


def _set(name: str, value: object) -> Callable[[Any], None]:
    return lambda real: setattr(real, name, value)


def _pause(real: Any) -> None:
    from vllm.v1.core.sched.interface import PauseState

    real._pause_state = PauseState.PAUSED_NEW


def _take_a_block(real: Any) -> None:
    real.kv_cache_manager.block_pool.free_block_queue.popleft()


FAULTS: dict[str, Callable[[Any], None]] = {
    "current_step": _set("current_step", 99),
    "num_waiting_for_input": _set("num_waiting_for_streaming_input", 1),
    "num_free_blocks": _take_a_block,
    "prefill_capacity_bound": _set("prefill_capacity_bound", True),
    "last_prefill_step": _set("last_prefill_step", 99),
    "num_executed_steps": _set("num_executed_steps", 99),
    "num_requests": lambda real: real.requests.clear(),
    "num_waiting": lambda real: real.waiting.append(real.running[0]),
    "num_kv_holding_waiting": lambda real: real.kv_holding_waiting.append(real.running[0]),
    "deferred": lambda real: real.deferred_waiting.add(real.running[0]),
    "finished_request_ids": lambda real: real.finished_req_ids.add("c"),
    "finished_by_client": _set("finished_req_ids_dict", {0: {"c"}}),
    "grammar_errors": lambda real: real.grammar_compile_error_reqs.update(a=None),
    "pause_state": _pause,
}
"""By the name in a report, what makes it differ."""


@pytest.mark.parametrize("name", FAULTS)
def test_each_counter_is_compared(config: SchedulerConfig, name: str) -> None:
    """Before the fault nothing differs; behind it, the first difference is the counter."""
    from kvsched_fp.adapters.vllm.counters import find_different_counter

    driver = make_shadow(config)
    run(driver, num_steps=3)
    scheduler = driver.scheduler

    assert find_different_counter(scheduler, scheduler.state) is None

    FAULTS[name](scheduler)
    difference = find_different_counter(scheduler, scheduler.state)

    assert difference is not None
    assert name == difference.path.partition("[")[0].partition(".")[0]


def test_no_counter_is_forgotten() -> None:
    """Each counter that is compared has its fault above."""
    from kvsched_fp.adapters.vllm import counters

    assert set(FAULTS) == set(counters._NAMES)
