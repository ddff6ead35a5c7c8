"""The canonical form of a situation: what it is, but for names and for what makes no difference.

`specs/explorer.md` argues field by field why two situations of one form behave alike. In short:

- *Renamed*: requests are numbered in the order in which they came, those that have left not counted; blocks
  in the order in which they are found in the tables and then in the free list.
- *Taken relative*: step ids and steps that are waited for, to the current step.
- *Left out*: what is only told (outputs, events, statistics), rows of requests that have left, and counters
  of which the scheduler never reads more than is kept here.

Everything else is kept, also where one part follows from another as long as the scheduler is right. A
block's hash needs no new name: it is made of the tokens alone, and the tokens of a world do not depend on
ids.
"""

import hashlib
import marshal
from collections.abc import Container, Mapping
from operator import itemgetter
from typing import Any, TypeAlias

from kvsched_fp.events import PauseState
from kvsched_fp.explore.situation import Situation
from kvsched_fp.explore.world import World
from kvsched_fp.grammar import AutomatonGrammar
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.pool_reading import integers, objects
from kvsched_fp.kvcache.pool import NOT_FREE, NULL_BLOCK, BlockPool
from kvsched_fp.progress import Progress
from kvsched_fp.queues import WaitingQueue
from kvsched_fp.request import RequestStatus
from kvsched_fp.state import SchedulerState

Form: TypeAlias = tuple[Any, ...]
"""Nested tuples of integers, bytes and None: the same in every process, whatever the hash seed."""

DIGEST_BYTES = 16
"""The size of a key. Two of a billion forms have one key with a probability below 10**-20."""

_STATUS_NUMBERS = {status.value: number for number, status in enumerate(RequestStatus)}
_PAUSE_NUMBERS = {state.value: number for number, state in enumerate(PauseState)}
_NO_GRAMMAR = -2
_GRAMMAR_ERROR = -1
_GONE = -1


class Canonicalizer:
    """Makes the forms of the situations of one world."""

    def __init__(self, world: World, kind_of: Mapping[RequestId, int]) -> None:
        self._kind_of = kind_of
        self._interval = world.config.local_prefill_interval
        self._may_hold = world.throttles or self._interval > 1

    def key(self, situation: Situation) -> bytes:
        """Give the key of the form of a situation."""
        packed = marshal.dumps(self.form(situation), 2)
        return hashlib.blake2b(packed, digest_size=DIGEST_BYTES).digest()

    def form(self, situation: Situation) -> Form:
        """Give the form of a situation."""
        state = situation.state
        live = sorted(state.requests, key=state.add_numbers.__getitem__)
        number = {request_id: index for index, request_id in enumerate(live)}
        deferred = set(state.deferred) if len(state.deferred) else ()
        return (
            situation.num_to_come,
            tuple([self._request(state, request_id, deferred) for request_id in live]),
            tuple([number[request_id] for request_id in state.running]),
            _places(state.waiting, number),
            _places(state.kv_holding_waiting, number),
            self._in_flight(situation, number),
            self._scheduler(state, number),
            self._memory(state, live),
            tuple([(number[request_id], left) for request_id, left in situation.inputs_left]),
        )

    def _scheduler(self, state: SchedulerState, number: Mapping[RequestId, int]) -> Form:
        """Give the fields of the scheduler that belong to no request."""
        num_since_prefill = 0
        if self._interval > 1:
            num_since_prefill = min(state.num_executed_steps - state.last_prefill_step, self._interval)
        told_finished = state.finished_by_client
        return (
            _PAUSE_NUMBERS[state.pause_state._value_],
            state.num_waiting_for_input,
            num_since_prefill,
            state.prefill_capacity_bound and self._may_hold,
            len(state.finished_request_ids),
            tuple([number.get(request_id, _GONE) for request_id in state.preempted_request_ids]),
            tuple([number[request_id] for request_id in state.grammar_errors if request_id in number]),
            tuple([(client, len(ids)) for client, ids in told_finished.items()]) if told_finished else (),
        )

    def _request(
        self, state: SchedulerState, request_id: RequestId, deferred: Container[RequestId]
    ) -> Form:
        """Give all about one live request but its place and its blocks."""
        request, progress = state.requests[request_id], state.progress[request_id]
        num_stale = progress.num_stale_output_tokens
        return (
            self._kind_of[request_id],
            _STATUS_NUMBERS[progress.status._value_],
            progress.num_computed_tokens,
            progress.num_in_flight_tokens,
            progress.is_prefill_chunk,
            tuple(progress.output_token_ids),
            b"".join(progress.block_hashes),
            progress.num_preemptions > 0,
            num_stale,
            num_stale > 0 and progress.drop_stale_output,
            progress.prefill_stats is None,
            progress.num_output_placeholders,
            progress.spec_token_ids,
            # The next step decodes it if it is not before this one.
            max(0, progress.next_decode_eligible_step - state.current_step - 1),
            _grammar_number(progress),
            request_id in deferred,
            request_id in state.prev_step_request_ids,
            _session(request.prompt_token_ids, progress) if request.resumable else (),
        )

    def _in_flight(self, situation: Situation, number: Mapping[RequestId, int]) -> Form:
        """Give the steps in flight: the rows of live requests, and what they may bring."""
        state = situation.state
        if not state.in_flight:
            return ()
        steps = []
        for output, answers in zip(state.in_flight, situation.answers, strict=True):
            drafts, invalid = output.scheduled_spec_token_ids, output.num_invalid_spec_tokens
            rows = tuple(
                [
                    (number[request_id], num_tokens, drafts.get(request_id, ()) if drafts else ())
                    for request_id, num_tokens in output.num_scheduled_tokens.items()
                    if request_id in number
                ]
            )
            may_bring = tuple([(number[row], most) for row, most in answers if row in number])
            steps.append((state.current_step - output.step_id, rows, may_bring, invalid is None))
        return tuple(steps)

    def _memory(self, state: SchedulerState, live: list[RequestId]) -> Form:
        """Give the block tables, the pool and the prefix index, with the blocks renamed."""
        pool, tables_of = state.kv.pool, state.kv.tables
        # Indexed by block id; the last entry stands for `NOT_FREE`, which is -1.
        names = [_GONE] * (pool.num_blocks + 2)
        order = [int(NULL_BLOCK)]
        names[NULL_BLOCK] = 0
        tables = [
            tuple(
                [
                    (_name_held(integers(table.block_ids), names, order), table.num_cached_blocks)
                    for table in tables_of.get(request_id, ())
                ]
            )
            for request_id in live
        ]
        following = integers(pool.next_free)
        _name_free(pool, following, names, order)
        return tuple(tables), len(tables_of), _columns(pool, following, names, order)


def _places(queue: WaitingQueue, number: Mapping[RequestId, int]) -> Form:
    """Give who waits, in order; going through an empty queue takes longer than asking whether it is."""
    return tuple([number[request_id] for request_id in queue]) if len(queue) else ()


def _name_held(block_ids: list[int], names: list[int], order: list[int]) -> Form:
    """Name the blocks of a table that have no name yet; give the names of all of them."""
    for block_id in block_ids:
        if names[block_id] == _GONE:
            names[block_id] = len(order)
            order.append(block_id)
    return tuple([names[block_id] for block_id in block_ids])


def _name_free(pool: BlockPool, following: list[int], names: list[int], order: list[int]) -> None:
    """Name the free blocks in the order of the free list, then whatever is left, which is nothing."""
    sentinel = pool.num_blocks
    names[sentinel] = sentinel
    block_id = following[sentinel]
    while names[block_id] == _GONE and block_id != NOT_FREE:
        names[block_id] = len(order)
        order.append(block_id)
        block_id = following[block_id]
    if len(order) < sentinel:
        for block_id in range(sentinel):
            if names[block_id] == _GONE:
                names[block_id] = len(order)
                order.append(block_id)


def _columns(pool: BlockPool, following: list[int], names: list[int], order: list[int]) -> Form:
    """Give the columns of the pool in the order of the new names, and the prefix index."""
    preceding, counts = integers(pool.prev_free), integers(pool.ref_counts)
    # One call in C takes all elements of a column, in the order of the names; the links have one more.
    of_blocks, of_links = itemgetter(*order), itemgetter(*order, pool.num_blocks)
    index = []
    for key, blocks in sorted(pool.cached.items()) if pool.cached else ():
        ids = blocks if isinstance(blocks, tuple) else (blocks,)
        index.append((key, tuple([names[block_id] for block_id in ids])))
    return (
        pool.num_free_blocks,
        itemgetter(*of_links(following))(names),
        itemgetter(*of_links(preceding))(names),
        of_blocks(counts),
        of_blocks(objects(pool.keys)),
        tuple(index),
    )


def _grammar_number(progress: Progress) -> int:
    """Give where the grammar of a request stands."""
    grammar = progress.grammar
    if grammar is None:
        return _NO_GRAMMAR
    return grammar.state if isinstance(grammar, AutomatonGrammar) else _GRAMMAR_ERROR


def _session(prompt_token_ids: tuple[int, ...], progress: Progress) -> Form:
    """Give what only sessions have: a prompt that grows, and input that waits."""
    chunks = [() if chunk is None else chunk.prompt_token_ids for chunk in progress.chunks]
    return prompt_token_ids, tuple(chunks), repr(progress.stop_reason).encode()
