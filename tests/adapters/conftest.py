"""What the tests of this folder share."""

import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack
from unittest import mock

import pytest

from kvsched_fp import SchedulerConfig
from tests.conformance.pins import check_pins, find_reference


@pytest.fixture(scope="session")
def _reference() -> None:
    """Skip where vLLM is missing; fail where it is another than the pinned one."""
    if find_reference() is None:
        pytest.skip("vLLM is not installed: make an environment with tests/conformance/reference-env.sh")
    check_pins()


@pytest.fixture
def config() -> SchedulerConfig:
    """Give a small world: four requests fit, blocks of 4 tokens."""
    return SchedulerConfig(
        max_model_len=64, max_num_seqs=4, max_num_batched_tokens=16, num_blocks=60, block_size=4
    )


@pytest.fixture(autouse=True)
def _one_clock() -> Iterator[None]:
    """Give both sides the driver's clock, so that the times in the events of requests can be compared."""
    if importlib.util.find_spec("vllm") is None:
        yield
        return
    from vllm.v1 import engine
    from vllm.v1.core.sched import scheduler

    from kvsched_fp.adapters.vllm import oracle
    from tests.adapters.pairs import CLOCK

    CLOCK.now = 0.0
    with ExitStack() as stack:
        for module in (engine, scheduler, oracle):
            stack.enter_context(mock.patch.object(module, "time", CLOCK))
        yield
