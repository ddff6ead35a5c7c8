"""Options and Hypothesis profiles of the whole test suite."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile("dev", max_examples=40, deadline=None)
settings.register_profile("landing", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "deep", max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(  # nobody looks at the example, and verdicts must not depend on luck
    "mutants",
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rewrite`."""
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="rewrite the expected parts of tests/scenarios/*.txt; read the difference before you keep it",
    )
