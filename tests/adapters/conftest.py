"""What the tests of this folder share."""

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
