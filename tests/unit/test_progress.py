"""The counters of a live request, and what else is kept about it."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrsistent import pvector

from kvsched_fp import Progress, Request, RequestStatus, SamplingParams
from kvsched_fp.grammar import GrammarError
from kvsched_fp.ids import BlockHash
from kvsched_fp.progress import (
    PrefillStats,
    RequestEvent,
    RequestEventType,
    RequestSpecDecodeMetrics,
    after_schedule,
    known_tokens,
    num_known_tokens,
    with_output,
    with_placeholders,
    without_output,
)

TOKEN_LISTS = st.lists(st.integers(0, 9), max_size=9)


@given(TOKEN_LISTS.filter(bool), TOKEN_LISTS, st.data())
def test_known_tokens_are_prompt_and_output(
    prompt: list[int], output: list[int], data: st.DataObject
) -> None:
    """[M-REQ-03] What is known is the prompt and then the output, and any piece of it can be read."""
    request = Request(request_id="a", prompt_token_ids=prompt, sampling_params=SamplingParams(max_tokens=1))
    progress = Progress(output_token_ids=pvector(output))
    known = (*prompt, *output)
    start = data.draw(st.integers(0, len(known)))
    end = data.draw(st.integers(start, len(known)))

    assert len(known) == num_known_tokens(request, progress)
    assert known[start:end] == known_tokens(request, progress, start, end)


METRICS = RequestSpecDecodeMetrics(2, (1, 2, 3), num_draft_tokens=12)
FULL = Progress(
    status=RequestStatus.RUNNING,
    num_computed_tokens=5,
    num_in_flight_tokens=3,
    is_prefill_chunk=True,
    output_token_ids=pvector([8, 9]),
    block_hashes=(BlockHash(b"h"),),
    num_preemptions=2,
    num_stale_output_tokens=1,
    drop_stale_output=True,
    prefill_stats=PrefillStats(4, 3, 1),
    num_output_placeholders=6,
    spec_token_ids=(7,),
    next_decode_eligible_step=11,
    spec_decode_metrics=METRICS,
    grammar=GrammarError("none"),
    chunks=(None,),
    events=(RequestEvent(RequestEventType.QUEUED, 1.0),),
    stop_reason=13,
)
"""Every field differs from its default."""


def test_every_field_of_the_example_counts() -> None:
    """What a copy forgets to carry over is at its default, which the example never is."""
    plain, full = (attrs.asdict(progress, recurse=False) for progress in (Progress(), FULL))

    assert {} == {name: value for name, value in plain.items() if value == full[name]}


AFTER_SCHEDULE: dict[str, Any] = {
    "num_computed_tokens": 6,
    "num_in_flight_tokens": 4,
    "is_prefill_chunk": False,
    "spec_token_ids": (),
}
WITH_PLACEHOLDERS: dict[str, Any] = {
    "num_output_placeholders": 9,
    "spec_token_ids": (-1, -1),
    "next_decode_eligible_step": 12,
}
WITHOUT_OUTPUT: dict[str, Any] = {
    "num_computed_tokens": 4,
    "num_in_flight_tokens": 0,
    "num_stale_output_tokens": 2,
    "num_output_placeholders": 5,
    "spec_decode_metrics": None,
}
WITH_OUTPUT: dict[str, Any] = {
    "num_computed_tokens": 4,
    "num_in_flight_tokens": 0,
    "num_stale_output_tokens": 2,
    "num_output_placeholders": 5,
    "output_token_ids": pvector([8, 9, 10]),
    "block_hashes": (BlockHash(b"h"), BlockHash(b"i")),
    "spec_decode_metrics": None,
    "grammar": None,
}


@pytest.mark.parametrize(
    ("copy", "changes", "taken_away"),
    [
        (after_schedule, AFTER_SCHEDULE, {}),
        (with_placeholders, WITH_PLACEHOLDERS, {}),
        (without_output, WITHOUT_OUTPUT, {}),
        (with_output, WITH_OUTPUT, {"prefill_stats": None, "events": ()}),
    ],
    ids=["after_schedule", "with_placeholders", "without_output", "with_output"],
)
def test_quick_way_keeps_every_field_that_it_does_not_take(
    copy: Any, changes: dict[str, Any], taken_away: dict[str, Any]
) -> None:
    """[M-REQ-03] Only what went out with an output is gone: the prefill's statistics and the events."""
    expected = attrs.evolve(FULL, **changes, **taken_away)

    assert expected == copy(FULL, *changes.values())


@pytest.mark.parametrize(
    ("detailed", "steps"), [(False, ((), ())), (True, ((2, 0, 0), (2, 1, 1)))], ids=["summary", "detailed"]
)
def test_verifications_are_counted_by_what_they_accepted(
    detailed: bool, steps: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    """A summary counts them, a detailed one keeps each as well."""
    metrics = RequestSpecDecodeMetrics(2, (0, 0, 0))
    for num_drafts, num_accepted in ((2, 2), (1, 0), (1, 0)):
        metrics = metrics.observe(num_drafts, num_accepted, detailed=detailed)

    assert RequestSpecDecodeMetrics(2, (2, 0, 1), 4, *steps) == metrics
