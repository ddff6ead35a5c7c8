"""Which rows of a step sample under a grammar, and how far their drafts can be followed.

The bitmask itself, a row of allowed tokens per position, is made from the grammars by whoever holds them.

Rules
-----
[G-MASK-01] A row needs a mask if its request, still live, has a grammar and is not in the middle of its
    prompt.
[G-MASK-02] The drafts of a row can be followed up to the padding [G-PAD-01].

Upstream: `v1/core/sched/scheduler.py::Scheduler.get_grammar_bitmask`.
"""

import attrs

from kvsched_fp.grammar import strip_padding
from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.state import SchedulerState


@attrs.frozen
class GrammarRows:
    """The rows that need a mask. Columns of equal length."""

    request_ids: tuple[RequestId, ...]
    """Their requests, in the order of the batch."""
    num_acceptable_drafts: tuple[int, ...]
    """Drafts of each that are not padding."""


def grammar_rows(state: SchedulerState, output: SchedulerOutput) -> GrammarRows | None:
    """Give the rows of a step that need a mask; None if there are none [G-MASK-01, G-MASK-02]."""
    if not output.has_structured_output_requests:
        return None
    rows = [
        request_id
        for request_id in output.num_scheduled_tokens
        if request_id in state.requests
        and state.requests[request_id].needs_grammar
        and not state.progress[request_id].is_prefill_chunk
    ]
    if not rows:
        return None
    drafts = [output.scheduled_spec_token_ids.get(request_id, ()) for request_id in rows]
    return GrammarRows(tuple(rows), tuple(len(strip_padding(row)) for row in drafts))
