"""Forms that leave out too much: each forgets one thing that the scheduler reads."""

from collections.abc import Callable
from typing import Any

import attrs
from immutables import Map

from kvsched_fp.events import PauseState
from kvsched_fp.explore.canonical import Canonicalizer
from kvsched_fp.explore.situation import Situation
from kvsched_fp.kvcache.pool import OpenPool, clear_prefix_index, make_pool
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.state import SchedulerState


def _with_progress(state: SchedulerState, **changes: Any) -> SchedulerState:
    progress = {key: attrs.evolve(value, **changes) for key, value in state.progress.items()}
    return attrs.evolve(state, progress=Map(progress))


def _without_free_order(state: SchedulerState) -> SchedulerState:
    """Put the free blocks into the order of their ids; what is cached in them stays."""
    pool = state.kv.pool
    opened = OpenPool(make_pool(pool.num_blocks))
    opened.touch(set(range(1, pool.num_blocks)).difference(pool.free_blocks()))
    ordered = opened.close()
    kept = attrs.evolve(pool, next_free=ordered.next_free, prev_free=ordered.prev_free)
    return attrs.evolve(state, kv=attrs.evolve(state.kv, pool=kept))


def _without_prefix_index(state: SchedulerState) -> SchedulerState:
    return attrs.evolve(state, kv=attrs.evolve(state.kv, pool=clear_prefix_index(state.kv.pool)))


FORGETTING: dict[str, tuple[str, Callable[[SchedulerState], SchedulerState]]] = {
    "order of the free blocks": ("tiny", _without_free_order),
    "prefix index": ("tiny", _without_prefix_index),
    "pause": ("pause", lambda state: attrs.evolve(state, pause_state=PauseState.UNPAUSED)),
    "whether output is dropped": (
        "async-reset",
        lambda state: _with_progress(state, drop_stale_output=False),
    ),
    "drafts": ("drafts", lambda state: _with_progress(state, spec_token_ids=())),
    "steps since the last prompt": (
        "cadence",
        lambda state: attrs.evolve(state, num_executed_steps=state.last_prefill_step),
    ),
    "lack of capacity": ("cadence", lambda state: attrs.evolve(state, prefill_capacity_bound=False)),
    "grammar": ("grammar", lambda state: _with_progress(state, grammar=None)),
    "grammar errors": ("grammar", lambda state: attrs.evolve(state, grammar_errors=OrderedMap())),
}
"""What is forgotten, a world in which it makes a difference, and how."""


class ForgetfulCanonicalizer(Canonicalizer):
    """Forgets one thing before it makes the form."""

    forget: Callable[[SchedulerState], SchedulerState]

    def key(self, situation: Situation) -> bytes:
        """Give the key of the form of a situation."""
        return super().key(situation._replace(state=self.forget(situation.state)))
