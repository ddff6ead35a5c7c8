"""Which blocks the model runner was told to use for whom: the hands that a block is in, seen from there."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import attrs

from kvsched_fp.events import Schedule
from kvsched_fp.ids import BlockId, RequestId
from kvsched_fp.invariants.entry import Cost, RunInvariant, Step, run_invariant
from kvsched_fp.outputs import BlockIds, SchedulerOutput
from kvsched_fp.state import SchedulerState


@attrs.define
class _Hands:
    """What a model runner knows that adds up what it is told."""

    tables: dict[RequestId, list[list[BlockId]]]
    """Per request that has blocks, the blocks of each group."""
    holders: Counter[BlockId]
    """How many of the tables a block stands in; blocks in none are left out."""

    def drop(self, request_id: RequestId) -> None:
        """Forget the blocks of a request."""
        for table in self.tables.pop(request_id, ()):
            for block_id in table:
                self.holders[block_id] -= 1
                if not self.holders[block_id]:
                    del self.holders[block_id]

    def add(self, request_id: RequestId, blocks: BlockIds, num_found: int) -> BlockId | None:
        """Put blocks behind those of a request; of each group, the first `num_found` may be in other hands.

        Gives a block that is in other hands and may not be.
        """
        tables = self.tables.setdefault(request_id, [[] for _ in blocks])
        wrong = None
        for table, block_ids in zip(tables, blocks, strict=True):
            table.extend(block_ids)
            for index, block_id in enumerate(block_ids):
                self.holders[block_id] += 1
                if index >= num_found and self.holders[block_id] > 1:
                    wrong = block_id
        return wrong


def _hands_of(state: SchedulerState) -> _Hands:
    tables = {
        request_id: [[BlockId(block_id) for block_id in table.block_ids] for table in groups]
        for request_id, groups in state.kv.tables.items()
    }
    holders = Counter(block_id for groups in tables.values() for table in groups for block_id in table)
    return _Hands(tables, holders)


@run_invariant(
    "INV-HANDS-01",
    Cost.CHEAP,
    "A block that the model runner is told to use for a request is in no other hands, unless it was found "
    "in the prefix cache: who had it before was told to be preempted or to have finished. What a request "
    "was told to have, it keeps: the tables that the runner adds up are those that there are.",
    "Two requests that write into one block read each other's keys and values.",
    Schedule,
    start=_hands_of,
    memory="for each live request, the blocks that it was told to have, and in how many hands each is",
)
def _blocks_change_hands(hands: _Hands, step: Step) -> str | None:
    output = step.output
    for request_id in (*output.preempted_request_ids, *output.finished_request_ids):
        hands.drop(request_id)
    handed_out = dict(_handed_out(output))
    if not handed_out:
        return None
    for request_id in output.num_scheduled_tokens:  # in this order: who is later may find what is new
        if request_id in handed_out:
            evidence = _hand_over(hands, step, request_id, handed_out[request_id])
            if evidence is not None:
                return evidence
    return None


class _HandedOut(NamedTuple):
    """What a request is told to have."""

    blocks: BlockIds
    num_found_tokens: int
    """Of those in the first blocks, how many need no computing."""
    is_whole: bool
    """Whether these are all its blocks, and not only those behind the others."""


def _handed_out(output: SchedulerOutput) -> Iterator[tuple[RequestId, _HandedOut]]:
    """Give who is told of which blocks."""
    for data in output.scheduled_new_requests:
        yield data.request_id, _HandedOut(data.block_ids, data.num_computed_tokens, True)
    cached = output.scheduled_cached_requests
    resumed = cached.resumed_request_ids
    columns = (cached.request_ids, cached.new_block_ids, cached.num_computed_tokens)
    for request_id, blocks, num_computed_tokens in zip(*columns, strict=True):
        if blocks is not None:
            is_whole = request_id in resumed
            yield request_id, _HandedOut(blocks, num_computed_tokens if is_whole else 0, is_whole)


def _hand_over(hands: _Hands, step: Step, request_id: RequestId, told: _HandedOut) -> str | None:
    num_found = told.num_found_tokens // step.before.config.block_size
    if told.is_whole:
        kept = hands.tables.get(request_id, [])  # no tables at all if it had no blocks: hence not strict
        if any(old != list(new[: len(old)]) for old, new in zip(kept, told.blocks, strict=False)):
            return f"request {request_id} had the blocks {kept} and is told to have {told.blocks}"
        num_found = max([num_found, *map(len, kept)])
        hands.drop(request_id)
    block_id = hands.add(request_id, told.blocks, num_found)
    if block_id is not None:
        tables_with = [name for name, tables in hands.tables.items() if block_id in chain(*tables)]
        return f"block {block_id} is given to {request_id}, and is in the hands of {tables_with}"
    lengths = [len(table) for table in hands.tables[request_id]]
    if lengths == [len(table.block_ids) for table in step.after.kv.tables.get(request_id, ())]:
        return None
    return f"request {request_id} was told of {lengths} blocks, which are not all that it has"


INVARIANTS: tuple[RunInvariant, ...] = (_blocks_change_hands,)
"""In the order in which they are checked."""
