"""What the tests of this folder share."""

from pathlib import Path

import pytest

from tests.conformance.pins import check_pins, find_reference


@pytest.fixture(scope="session")
def _reference() -> None:
    """Skip where vLLM is missing; fail where it is another than the pinned one."""
    if find_reference() is None:
        pytest.skip("vLLM is not installed: make an environment with tests/conformance/reference-env.sh")
    check_pins()


@pytest.fixture(autouse=True)
def _away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let traces that go to the default place go nowhere that lasts."""
    monkeypatch.chdir(tmp_path)
