"""Requests that wait for something outside, and what lets them go on.

Rules
-----
[S-BLOCK-01] A request that waits for its grammar goes on once the grammar is there. If there can be
    none, it stays, and the next update ends it and tells its client why.
[S-BLOCK-02] A session that waits for input goes on when a chunk comes [M-SESS-02], not here.

Upstream: `v1/core/sched/scheduler.py::Scheduler._handle_blocked_waiting_request`.
"""

from kvsched_fp.grammar import GrammarError
from kvsched_fp.progress import evolve_progress
from kvsched_fp.request import Request, RequestStatus, move
from kvsched_fp.transient import OpenState


def unblock(open_state: OpenState, request: Request) -> bool:
    """Let a waiting request go on if what it waits for is there; tell whether nothing holds it."""
    progress = open_state.progress[request.request_id]
    if progress.status is RequestStatus.WAITING_FOR_GRAMMAR:
        grammar = progress.grammar
        if isinstance(grammar, GrammarError):
            open_state.grammar_errors[request.request_id] = grammar.message  # [S-BLOCK-01]
        if grammar is None or isinstance(grammar, GrammarError):
            return False
        status = move(progress.status, RequestStatus.WAITING)
        open_state.progress[request.request_id] = evolve_progress(progress, status=status)
    return progress.status is not RequestStatus.WAITING_FOR_INPUT  # [S-BLOCK-02]
