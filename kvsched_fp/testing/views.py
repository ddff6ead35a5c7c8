"""What of a state may be compared besides the outcomes, by name."""

from collections.abc import Callable, Mapping

from kvsched_fp.errors import InvalidInputError
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.state import SchedulerState, live_request_ids
from kvsched_fp.trace.difference import Difference, first_difference

ORACLE_VIEWS: Mapping[str, Callable[[SchedulerState], object]] = {
    "running": lambda state: tuple(state.running),
    "waiting": lambda state: tuple(state.waiting),
    "kv_holding_waiting": lambda state: tuple(state.kv_holding_waiting),
    "num_computed_tokens": lambda state: OrderedMap.adopt(
        {name: state.progress[name].num_computed_tokens for name in live_request_ids(state)}
    ),
    "num_output_placeholders": lambda state: OrderedMap.adopt(
        {name: state.progress[name].num_output_placeholders for name in live_request_ids(state)}
    ),
    "block_ids": lambda state: OrderedMap.adopt(
        {
            name: tuple(tuple(table.block_ids) for table in state.kv.tables.get(name, ()))
            for name in live_request_ids(state)
        }
    ),
    "free_block_ids": lambda state: tuple(state.kv.pool.free_blocks()),
}
"""Ids of the running and the waiting requests in order; counters and blocks of the live ones, in the order
in which they were added; and the ids of the free blocks, the next one first."""


def view_of(state: SchedulerState) -> dict[str, object]:
    """Give everything that may be compared."""
    return {name: read(state) for name, read in ORACLE_VIEWS.items()}


def first_in_view(theirs: Mapping[str, object], state: SchedulerState) -> Difference | None:
    """Find the first thing that a scheduler shows otherwise than `state` has it.

    Raises `InvalidInputError` for a name that is none of `ORACLE_VIEWS`.
    """
    for name, value in theirs.items():
        if name not in ORACLE_VIEWS:
            raise InvalidInputError("view", name, f"any of {', '.join(ORACLE_VIEWS)}")
        difference = first_difference(_freeze(value), ORACLE_VIEWS[name](state), f"view.{name}")
        if difference is not None:
            return difference
    return None


def _freeze(value: object) -> object:
    if isinstance(value, Mapping):
        return OrderedMap.adopt({key: _freeze(item) for key, item in value.items()})
    return tuple(map(_freeze, value)) if isinstance(value, list | tuple) else value
