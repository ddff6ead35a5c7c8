"""What a shadow keeps on disk comes back as it was."""

import pytest

from kvsched_fp import Event, initial_state, step

pytestmark = pytest.mark.usefixtures("_reference")


def test_events_come_back() -> None:
    """Events of every kind, with and without what comes with features, are read as they were appended."""
    from types import SimpleNamespace

    from kvsched_fp.adapters.vllm.history import History
    from kvsched_fp.errors import InvalidEvent
    from tests.adapters.pairs import draw_events, draw_world

    kept: list[Event] = []
    history = History(draw_world(0)[0])
    for seed in range(8):
        config, features, own_rng = draw_world(seed, with_all_features=seed > 1)
        machine = SimpleNamespace(state=initial_state(config), requests={})
        for before, event in draw_events(seed, machine, features, own_rng):
            try:
                machine.state, _ = step(before, event)
            except InvalidEvent:
                break
            kept.append(event)
            history.append(event)

    assert kept == list(history.events())
    assert 10 == len({type(event) for event in kept})
