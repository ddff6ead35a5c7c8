"""Every move of small worlds, made by the real scheduler and by ours."""

from typing import Any

import attrs
import pytest

from kvsched_fp import Event, Update
from kvsched_fp.explore import explore
from kvsched_fp.explore.presets import PRESETS

from .walks import Walks

COMPARED = ("tiny", "async-drafts", "session", "lora")
"""The others are compared by `python -m tests.conformance.exhaustive`."""


@pytest.mark.parametrize("name", ["tiny", "async-grammar"])
def test_walks_make_every_move(name: str) -> None:
    """As many forms and moves as the model checker finds, and all of them are made."""
    walks = Walks(PRESETS[name])
    found = explore(PRESETS[name], checks=False)
    num_events = sum(map(len, walks.histories()))

    assert (found.num_states, found.num_moves) == (walks.num_forms, walks.num_moves)
    assert 0 == walks.num_left
    assert walks.num_moves <= num_events


@pytest.mark.usefixtures("_reference")
@pytest.mark.parametrize("name", COMPARED)
def test_every_move_of_a_world_is_identical(name: str) -> None:
    """Outcome and state, after every move of every form."""
    from .exhaustive import compare_world

    comparison = compare_world(PRESETS[name])

    assert comparison.difference is None
    assert comparison.num_moves <= comparison.num_events


@pytest.mark.usefixtures("_reference")
def test_a_difference_ends_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says where the two differ, and by which events."""
    from . import exhaustive

    class Wrong(exhaustive.OracleScheduler):
        """Has the wrong step after the third update."""

        num_updates = 0

        def apply(self, event: Event) -> Any:
            told = super().apply(event)
            self.num_updates += isinstance(event, Update)
            return told

        def view(self) -> Any:
            view = super().view()
            if self.num_updates == 3:
                view["current_step"] = -1
            return view

    monkeypatch.setattr(exhaustive, "OracleScheduler", Wrong)
    comparison = exhaustive.compare_world(attrs.evolve(PRESETS["tiny"], aborts=False, stops=False))

    assert comparison.difference is not None
    assert "oracle:    -1" in comparison.difference
    assert 3 == comparison.difference.count("Update(")
