"""Liveness as safety: what a state waits for in which nothing happens by itself.

A state is at a *standstill* if the engine's own events lead nowhere: it plans a step, nobody is in it, its
answer comes back, and the state is what it was, but for counters. Then everybody who is live must wait for
an event that is not the engine's to send, and that event has a name. Whoever does not is STUCK: no step
will ever serve it, and nobody is going to do anything about it.

Whether a state is at a standstill, the caller finds out by playing that step (the model checker does, in
`kvsched_fp/explore/standstill.py`); what it waits for then, `classify_standstill` reads from the values
alone.
"""

import enum
from collections.abc import Iterator

import attrs

from kvsched_fp.config import Quirk
from kvsched_fp.events import PauseState
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.room_reading import (
    all_fall_short,
    holders_with_input,
    lacks_blocks,
    who_goes_last,
)
from kvsched_fp.request import RequestStatus
from kvsched_fp.state import SchedulerState


class Awaited(enum.Enum):
    """An event from outside that lets somebody go on."""

    RESULT = "the result of a step in flight"
    """`Update`."""
    GRAMMAR = "a grammar"
    """`GrammarReady` or `GrammarFailed`."""
    INPUT = "the next input of a session"
    """`AddRequest` with the id of a session. Its row and its blocks may be what others wait for."""
    UNPAUSE = "the end of a pause"
    """`SetPauseState`."""


class StandstillKind(enum.Enum):
    """What to make of a state at a standstill."""

    DONE = "done"
    """Nobody is live."""
    WAITING = "waiting"
    """Everybody waits for something outside that has a name."""
    STUCK = "stuck"
    """Somebody waits for nothing."""


@attrs.frozen
class Standstill:
    """What a state at a standstill waits for."""

    kind: StandstillKind
    """What to make of it."""
    awaited: tuple[Awaited, ...] = ()
    """What is waited for, in the order of `Awaited`, each once."""
    stuck: tuple[RequestId, ...] = ()
    """Who waits for nothing, in the order of their ids."""

    def __str__(self) -> str:
        if self.kind is StandstillKind.STUCK:
            return f"stuck: {', '.join(self.stuck)}"
        if self.kind is StandstillKind.WAITING:
            return f"waiting for {' and '.join(awaited.value for awaited in self.awaited)}"
        return str(self.kind.value)


def classify_standstill(state: SchedulerState) -> Standstill:
    """Say what a state waits for that is at a standstill. A pure function of the state.

    | who is live                                   | waits for |
    |-----------------------------------------------|-----------|
    | anybody, while a step is in flight            | `RESULT`  |
    | whoever waits for a grammar that is not there | `GRAMMAR` |
    | a session that waits for its next input       | `INPUT`   |
    | anybody else, while everything is paused; the waiting without blocks, while new ones are | `UNPAUSE` |
    | who is next in line, if sessions that wait for input keep the last rows or the blocks that it lacks; and all behind it | `INPUT` |
    | who runs, without the quirk PREEMPTS_IN_VAIN, if such sessions keep the blocks that even the one lacks to whom all others give way, and nobody else waits with blocks in hand to whom these would be enough; and all in the queue | `INPUT` |
    | anybody else                                  | nothing: STUCK |

    With that quirk, nobody who runs waits for anything: it can always compute its next token, or make room
    for it, or is preempted. For a state that is not at a standstill the answer means nothing: its own steps
    will change it.
    """  # noqa: E501  rows of a table
    if state.in_flight:
        return Standstill(StandstillKind.WAITING, (Awaited.RESULT,))
    if not state.requests:
        return Standstill(StandstillKind.DONE)
    excuses = dict(_excuses(state))
    stuck = sorted(request_id for request_id in state.requests if excuses.get(request_id) is None)
    if stuck:
        return Standstill(StandstillKind.STUCK, stuck=tuple(stuck))
    found = set(excuses.values())
    return Standstill(StandstillKind.WAITING, tuple(awaited for awaited in Awaited if awaited in found))


def _excuses(state: SchedulerState) -> Iterator[tuple[RequestId, Awaited | None]]:
    """Give what each request waits for, or None."""
    running_wait_for = Awaited.INPUT if _sessions_stop_the_running(state) else None
    head_waits_for: Awaited | None = None
    is_head = True
    for queue, is_paused in (
        (state.kv_holding_waiting, state.pause_state is PauseState.PAUSED_ALL),
        (state.waiting, state.pause_state is not PauseState.UNPAUSED),
    ):
        for request_id in queue:
            progress = state.progress[request_id]
            if progress.status is RequestStatus.WAITING_FOR_GRAMMAR and progress.grammar is None:
                yield request_id, Awaited.GRAMMAR
            elif progress.status is RequestStatus.WAITING_FOR_INPUT:
                yield request_id, Awaited.INPUT
            elif is_paused:
                yield request_id, Awaited.UNPAUSE
            else:
                if is_head:
                    keep_out = running_wait_for or _sessions_keep_out(state, request_id)
                    head_waits_for = Awaited.INPUT if keep_out else None
                    is_head = False
                yield request_id, head_waits_for
    if state.pause_state is PauseState.PAUSED_ALL:
        running_wait_for = Awaited.UNPAUSE
    yield from ((request_id, running_wait_for) for request_id in state.running)


def _sessions_stop_the_running(state: SchedulerState) -> bool:
    """Tell whether those who run lack blocks that sessions keep, and who waits with blocks does so, too."""
    if Quirk.PREEMPTS_IN_VAIN in state.config.quirks or not state.running:
        return False
    holders = holders_with_input(state)
    if len(holders) == len(state.kv_holding_waiting):
        return False
    if holders and not all_fall_short(state, holders[0]):
        return False
    return lacks_blocks(state, who_goes_last(state))


def _sessions_keep_out(state: SchedulerState, request_id: RequestId) -> bool:
    """Tell whether sessions that wait for input keep the last rows, or blocks that a request lacks.

    The need is that of all known tokens without any hit, so that a request that surely fits has no excuse.
    """
    config = state.config
    idle = [
        other
        for other, progress in state.progress.items()
        if progress.status is RequestStatus.WAITING_FOR_INPUT and other != request_id
    ]
    if not idle:
        return False
    if len(state.running) + len(idle) >= config.max_num_active:
        return True
    request, progress = state.requests[request_id], state.progress[request_id]
    num_tokens = (
        len(request.prompt_token_ids) + len(progress.output_token_ids) + config.num_lookahead_tokens
    )
    num_slots = min(num_tokens, config.max_model_len)
    num_needed = -(-num_slots // config.block_size) * len(config.kv_cache_groups)
    num_held = sum(table.block_ids.length for table in state.kv.tables.get(request_id, ()))
    num_room = state.kv.pool.num_free_blocks - config.watermark_blocks
    return num_needed - num_held > num_room and any(other in state.kv.tables for other in idle)
