"""A single field that the real scheduler gets wrong is found by its shadow at once, and named."""

from collections.abc import Callable
from typing import Any

import pytest

from kvsched_fp import SchedulerConfig, SchedulingPolicy
from tests.adapters.test_shadow import make_shadow, run

pytestmark = pytest.mark.usefixtures("_reference")


def _on_last_token(scheduler: Any, _: Any) -> None:
    scheduler.running[0]._output_token_ids[-1] += 1


def _on_last_hash(scheduler: Any, _: Any) -> None:
    scheduler.running[0].block_hashes[-1] = b"x" * 32


def _on_request(name: str) -> Callable[[Any, Any], None]:
    def fault(scheduler: Any, _: Any) -> None:
        request = scheduler.running[0]
        setattr(request, name, getattr(request, name) + 1)

    return fault


def _on_output(name: str, value: object) -> Callable[[Any, Any], None]:
    return lambda _, told: setattr(told[0].outputs[0], name, value)


def _with_metrics(_: Any, told: Any) -> None:
    from vllm.v1.metrics.stats import RequestSpecDecodeMetrics

    told[0].outputs[0].spec_decode_metrics = RequestSpecDecodeMetrics(2)


def _with_error(_: Any, told: Any) -> None:
    from vllm.v1.engine import RequestError

    told[0].outputs[0].error = RequestError(code="validation_error", message="no")


FAULTS = {
    'requests["a"].output_token_ids[0]': _on_last_token,
    'requests["a"].block_hashes[9]': _on_last_hash,
    'requests["a"].max_tokens': _on_request("max_tokens"),
    'requests["a"].arrival_time': _on_request("arrival_time"),
    'requests["a"].num_prompt_tokens': _on_request("num_prompt_tokens"),
    'requests["a"].priority': _on_request("priority"),
    "emitted.clients[0].outputs[0].pooled": _on_output("pooling_output", object()),
    "emitted.clients[0].outputs[0].spec_decode_metrics": _with_metrics,
    "emitted.clients[0].outputs[0].error": _with_error,
}
"""By where the shadow finds it, what an update leaves behind that it should not."""


@pytest.mark.parametrize("path", FAULTS)
def test_fault_of_an_update(config: SchedulerConfig, path: str) -> None:
    """The call that did it is the one that is reported."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class Faulty(Scheduler):
        def update_from_output(self, *arguments: Any) -> Any:
            told = super().update_from_output(*arguments)
            if self.current_step == 3:
                FAULTS[path](self, told)
            return told

    driver = make_shadow(_by_priority(config), Faulty, on_difference="record")
    run(driver, num_steps=3)
    report = driver.scheduler.report

    assert report is not None
    assert path == report.divergence.difference.path


def _by_priority(config: SchedulerConfig) -> SchedulerConfig:
    import attrs

    return attrs.evolve(config, policy=SchedulingPolicy.PRIORITY)


def test_drafts_that_were_never_invalid(config: SchedulerConfig) -> None:
    """A step of running requests says that there were invalid drafts, and there were none."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class Faulty(Scheduler):
        def schedule(self, throttle_prefills: bool = False) -> Any:
            output = super().schedule(throttle_prefills)
            if not output.scheduled_new_reqs:
                output.num_invalid_spec_tokens = {"a": 1}
            return output

    driver = make_shadow(config, Faulty, on_difference="record")
    run(driver)

    assert driver.scheduler.report is not None
    assert "output.num_invalid_spec_tokens" == driver.scheduler.report.divergence.difference.path


def test_a_scheduler_that_changes_priorities(config: SchedulerConfig) -> None:
    """What the scheduler itself did is no assignment from outside."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class Faulty(Scheduler):
        def schedule(self, throttle_prefills: bool = False) -> Any:
            output = super().schedule(throttle_prefills)
            self.running[0].priority += 1
            return output

    driver = make_shadow(_by_priority(config), Faulty, on_difference="record")
    run(driver, num_steps=1)

    assert driver.scheduler.report is not None
    assert 'requests["a"].priority' == driver.scheduler.report.divergence.difference.path
