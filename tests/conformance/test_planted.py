"""The suite finds faults: every planted one."""

import pytest

pytestmark = pytest.mark.usefixtures("_reference")


def test_every_fault_is_found() -> None:
    """Each planted fault shows up within a bounded number of histories."""
    from .planted import FAULTS, find_fault

    missed = [fault.name for fault in FAULTS if find_fault(fault) is None]

    assert missed == []


def test_nothing_is_left_behind() -> None:
    """After a fault was planted, the reference is the real one again."""
    from .duel import Tally, play_history
    from .planted import FAULTS

    for fault in FAULTS:
        with fault.planted():
            pass

    assert play_history(0, Tally()) is None
