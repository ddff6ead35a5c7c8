"""Requests of a workload, and their prompts as runs."""

import pytest

from kvsched_fp.workloads.request import make_request, merge_runs
from tests.unit.workloads.helpers import make_workload


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([], ()),
        ([(0, 512)], ((0, 512),)),
        ([(0, 512), (512, 512), (1024, 3)], ((0, 1027),)),
        ([(0, 512), (1024, 512), (1536, 1)], ((0, 512), (1024, 513))),
        ([(512, 512), (0, 512)], ((512, 512), (0, 512))),
    ],
)
def test_joins_runs_that_follow_each_other(
    runs: list[tuple[int, int]], expected: tuple[tuple[int, int], ...]
) -> None:
    """Only runs that continue the one before are joined."""
    assert expected == merge_runs(runs)


def test_makes_a_request_that_ends_by_its_length() -> None:
    """The scheduler's request has the prompt written out and nothing but a length to end it."""
    (workload_request,) = make_workload((2.5, 3, 4))
    request = make_request(workload_request)

    assert ("r1", 2.5, (1_000_000, 1_000_001, 1_000_002)) == (
        request.request_id,
        request.arrival_time,
        request.prompt_token_ids,
    )
    assert (4, None, frozenset()) == (
        request.sampling_params.max_tokens,
        request.sampling_params.eos_token_id,
        request.sampling_params.stop_token_ids,
    )
