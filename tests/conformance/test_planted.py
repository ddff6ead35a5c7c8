"""The suite finds faults: every planted one, in every area, and makes what shows them small."""

from pathlib import Path

import pytest

from kvsched_fp.trace import check_trace, open_trace_reader

from .planted import MAX_EVENTS, find_fault, try_fault

pytestmark = pytest.mark.usefixtures("_reference")


def test_every_area_has_faults() -> None:
    """Two at least, and no two have the same name."""
    from .faults import AREAS, FAULTS

    assert all(len(faults) >= 2 for faults in AREAS.values())
    assert sum(map(len, AREAS.values())) == len(FAULTS)


def test_every_fault_is_found() -> None:
    """Each planted fault shows up within a minute; `planted.py` shrinks them all, which takes longer."""
    from .faults import FAULTS

    missed = [name for name in FAULTS if next(find_fault(name), None) is None]

    assert [] == missed


@pytest.mark.parametrize(
    "fault",
    ["no slots are taken for lookahead", "the last group is freed first", "an eviction is not told"],
)
def test_a_fault_shrinks_to_a_trace(fault: str, tmp_path: Path) -> None:
    """What is left is short, agrees without the fault, and `check` finds it different."""
    report = try_fault("some area", fault, tmp_path)
    (path,) = tmp_path.iterdir()
    with open_trace_reader(path) as reader:
        divergence = check_trace(reader).divergence

    assert report.is_good
    assert report.num_events <= MAX_EVENTS
    assert divergence is not None
    assert report.num_events == divergence.event_number


def test_nothing_is_left_behind() -> None:
    """After a fault was planted, the reference is the real one again."""
    from .duel import Tally, play_history
    from .faults import FAULTS

    for fault in FAULTS.values():
        with fault.planted():
            pass

    assert play_history(0, Tally()) is None
