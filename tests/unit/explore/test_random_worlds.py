"""Random worlds without quirks."""

import itertools

import pytest

from tests.unit.explore import random_worlds as random_worlds_module
from tests.unit.explore.random_worlds import main, random_worlds, what_is_wrong


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_wrong_in_random_worlds(seed: int) -> None:
    """No invariant is broken, and nobody is stuck, in some worlds of every kind."""
    for world in itertools.islice(random_worlds(seed), 6):
        assert what_is_wrong(world, max_states=400) is None


def test_worlds_are_explored_for_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    """The command says how many there were, at least one."""
    assert 0 == main(["--seconds", "0"])
    assert "1 worlds, something is wrong in 0" in capsys.readouterr().out


def test_what_is_wrong_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As a story, and the command fails."""
    monkeypatch.setattr(random_worlds_module, "what_is_wrong", lambda _: "somebody is STUCK")

    assert 1 == main(["--seconds", "0"])
    assert "somebody is STUCK\n1 worlds, something is wrong in 1" in capsys.readouterr().out
