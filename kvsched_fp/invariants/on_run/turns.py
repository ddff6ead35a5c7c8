"""Who got in before whom: what the order of service promises, over all steps that somebody waits.

Both entries ask the same of every first admission: did anybody wait who had to be admitted before? They
know who waits from the events and the batches, and look at no queue. One thing they read in the state:
whether a preempted request waits for late output of its own. To remember that would be to keep the account
of its tokens once more, which `accounts.py` checks.

What may be overtaken by the rules is left out: who waits for a grammar, or for late output of its own; who
needs an adapter, by whoever needs none or another; and everybody, where the drafter reads ahead (a request
whose piece of prompt would end too close to the end of the prompt is passed over).
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import attrs

from kvsched_fp.config import SchedulerConfig, SchedulingPolicy
from kvsched_fp.events import (
    AddRequest,
    FinishRequests,
    GrammarReady,
    ResetPrefixCache,
    Schedule,
    Update,
)
from kvsched_fp.grammar import Grammar, GrammarError
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, RunInvariant, Step, run_invariant
from kvsched_fp.invariants.on_run.endings import added, ended, preempted_by_reset
from kvsched_fp.invariants.progress_reading import has_answered
from kvsched_fp.progress import Progress
from kvsched_fp.request import Request, RequestStatus
from kvsched_fp.state import SchedulerState

Rank: TypeAlias = tuple[float, float, str]
"""Whose turn it is: the smallest rank's.

FCFS: its place in the order of addition; else priority, arrival, id.
"""

BEFORE_ALL: Rank = (-1.0, 0.0, "")
"""The rank of a preempted request under FCFS."""


def _rank(config: SchedulerConfig, request: Request, num_added: int) -> Rank:
    """Give the rank of a request that was never admitted."""
    if config.policy is SchedulingPolicy.PRIORITY:
        return (request.priority, request.arrival_time, request.request_id)
    return (num_added, 0.0, "")


def _rank_of_preempted(config: SchedulerConfig, request: Request) -> Rank:
    return BEFORE_ALL if config.policy is SchedulingPolicy.FCFS else _rank(config, request, 0)


def _adapter(request: Request) -> int | None:
    return None if request.lora is None else request.lora.lora_id


@attrs.define
class _NeverAdmitted:
    """The ranks of those that were added and never admitted."""

    num_added: int
    """How many have been added since the scheduler began."""
    ranks: dict[RequestId, Rank]

    def add(self, step: Step) -> None:
        """Take down the request that a step added."""
        request = step.event.request
        self.ranks[request.request_id] = _rank(step.before.config, request, self.num_added)
        self.num_added += 1

    def leave(self, request_ids: Iterable[RequestId]) -> None:
        """Strike out who ended, or has answered."""
        for request_id in request_ids:
            self.ranks.pop(request_id, None)


def _never_admitted_in(state: SchedulerState) -> _NeverAdmitted:
    return _NeverAdmitted(
        state.num_added,
        {
            request_id: _rank(state.config, state.requests[request_id], state.add_numbers[request_id])
            for request_id, progress in state.progress.items()
            if _never_ran(progress)
        },
    )


def _never_ran(progress: Progress) -> bool:
    is_waiting = progress.status in (RequestStatus.WAITING, RequestStatus.WAITING_FOR_GRAMMAR)
    return is_waiting and not has_answered(progress)


@attrs.define
class _Newcomers:
    """Who was never admitted, and who of them waits for nothing but its turn."""

    never_admitted: _NeverAdmitted
    ready: dict[RequestId, int | None]
    """Those that wait for nothing but their turn, with the adapter in whose line they are."""
    lines: dict[int | None, list[tuple[Rank, RequestId]]]
    """By adapter, a heap of the ready ones; who has left may still be in it."""

    def line_up(self, request: Request) -> None:
        """Note that a newcomer waits for nothing but its turn."""
        request_id, adapter = request.request_id, _adapter(request)
        line, ranks = self.lines.setdefault(adapter, []), self.never_admitted.ranks
        if len(line) > 2 * len(ranks):  # most of them have left, behind one that waits long
            line[:] = [entry for entry in line if self._is_in(adapter, entry)]
            heapify(line)
        self.ready[request_id] = adapter
        heappush(line, (ranks[request_id], request_id))

    def _is_in(self, adapter: int | None, entry: tuple[Rank, RequestId]) -> bool:
        """Tell whether an entry is not left over: its id may be that of another request by now.

        By priority, that one may have the same rank, and stand in the line of another adapter.
        """
        rank, request_id = entry
        return (
            request_id in self.ready
            and self.ready[request_id] == adapter
            and self.never_admitted.ranks[request_id] == rank
        )

    def first(self, adapter: int | None) -> tuple[Rank, RequestId] | None:
        """Give the newcomer with this adapter whose turn it is, and its rank."""
        line = self.lines.get(adapter, [])
        while line and not self._is_in(adapter, line[0]):
            heappop(line)
        return line[0] if line else None

    def leave(self, request_ids: Iterable[RequestId]) -> None:
        """Strike out who ended, or has answered."""
        request_ids = tuple(request_ids)
        for request_id in request_ids:
            self.ready.pop(request_id, None)
        self.never_admitted.leave(request_ids)


def _newcomers_of(state: SchedulerState) -> _Newcomers:
    newcomers = _Newcomers(_never_admitted_in(state), {}, {})
    for request_id in newcomers.never_admitted.ranks:
        request = state.requests[request_id]
        if not request.needs_grammar or _has_grammar(state.progress[request_id].grammar):
            newcomers.line_up(request)
    return newcomers


def _has_grammar(grammar: Grammar | GrammarError | None) -> bool:
    return grammar is not None and not isinstance(grammar, GrammarError)


@run_invariant(
    "INV-TURN-01",
    Cost.CHEAP,
    "Nobody is admitted for the first time while somebody else who never was waits for nothing but its "
    "turn, and has it before: who was added before (FCFS), or is less by priority, arrival time and id. "
    "Who needs an adapter may be overtaken by who needs none or another; anybody, where the drafter reads "
    "ahead of a piece of prompt.",
    "Every step that passes somebody over may be followed by one more; in order, everybody's turn comes.",
    AddRequest,
    FinishRequests,
    GrammarReady,
    Schedule,
    Update,
    start=_newcomers_of,
    memory="for each request that was never admitted, its rank",
    reports=("vLLM PR #57841",),
)
def _newcomers_keep_their_turns(newcomers: _Newcomers, step: Step) -> str | None:
    match step.event:
        case Schedule():
            return _let_newcomers_in(newcomers, step)
        case AddRequest(request) if added(step) is not None:
            newcomers.never_admitted.add(step)
            if not request.needs_grammar:
                newcomers.line_up(request)
        case GrammarReady(request_id, _):
            newcomers.line_up(step.before.requests[request_id])
    newcomers.leave((*ended(step), *step.went_on))
    return None


def _let_newcomers_in(newcomers: _Newcomers, step: Step) -> str | None:
    for request_id in step.admitted:
        rank = newcomers.never_admitted.ranks.get(request_id)
        newcomers.leave([request_id])
        if rank is None or step.before.config.num_prefill_lookahead_tokens:
            continue
        for adapter in dict.fromkeys((None, _adapter(step.before.requests[request_id]))):
            waiting = newcomers.first(adapter)
            if waiting is not None and waiting[0] < rank:
                return f"request {request_id} is admitted, and {waiting[1]} still waits for its turn before"
    return None


@attrs.define
class _Returning:
    """Who was never admitted, and who was preempted and has not come back."""

    newcomers: _NeverAdmitted
    preempted: dict[RequestId, Rank]


def _returning_of(state: SchedulerState) -> _Returning:
    preempted = {
        request_id: _rank_of_preempted(state.config, state.requests[request_id])
        for request_id, progress in state.progress.items()
        if progress.status is RequestStatus.PREEMPTED
    }
    return _Returning(_never_admitted_in(state), preempted)


@run_invariant(
    "INV-TURN-02",
    Cost.CHEAP,
    "Nobody is admitted for the first time while a preempted request waits for nothing but its turn, and "
    "has it before: under FCFS always, else by priority, arrival time and id. Who needs an adapter may be "
    "overtaken by who needs none or another; anybody, where the drafter reads ahead of a piece of prompt.",
    "Who gave way for others comes back before new ones come in, or gives way for ever.",
    AddRequest,
    FinishRequests,
    ResetPrefixCache,
    Schedule,
    Update,
    start=_returning_of,
    memory="for each request that was never admitted, and each that is preempted, its rank",
    reports=("vLLM #41951",),
)
def _preempted_come_back_first(returning: _Returning, step: Step) -> str | None:
    if isinstance(step.event, Schedule):
        evidence = _let_in(returning, step)
        if evidence is not None:
            return evidence
        _note_preempted(returning, step, step.victims)
    elif isinstance(step.event, ResetPrefixCache):
        _note_preempted(returning, step, preempted_by_reset(step))
    elif added(step) is not None:
        returning.newcomers.add(step)
    gone = (*ended(step), *step.went_on)
    returning.newcomers.leave(gone)
    for request_id in gone:
        returning.preempted.pop(request_id, None)
    return None


def _note_preempted(returning: _Returning, step: Step, request_ids: Iterable[RequestId]) -> None:
    for request_id in request_ids:
        request = step.before.requests[request_id]
        returning.preempted[request_id] = _rank_of_preempted(step.before.config, request)


def _let_in(returning: _Returning, step: Step) -> str | None:
    for request_id in step.admitted:
        returning.preempted.pop(request_id, None)
        rank = returning.newcomers.ranks.pop(request_id, None)
        if rank is None or not returning.preempted or step.before.config.num_prefill_lookahead_tokens:
            continue
        adapters = (None, _adapter(step.before.requests[request_id]))
        for preempted_id, other_rank in returning.preempted.items():
            progress = step.before.progress[preempted_id]
            waits_for_output = progress.num_stale_output_tokens and not progress.drop_stale_output
            may_be_overtaken = _adapter(step.before.requests[preempted_id]) not in adapters
            if other_rank < rank and not waits_for_output and not may_be_overtaken:
                return f"request {request_id} is admitted, and {preempted_id}, which was preempted, waits"
    return None


INVARIANTS: tuple[RunInvariant, ...] = (_newcomers_keep_their_turns, _preempted_come_back_first)
"""In the order in which they are checked."""
