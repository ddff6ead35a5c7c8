"""Every planted fault is noticed, by whom it names."""

from typing import Any

import pytest

from kvsched_fp import Event, SchedulerState, step
from kvsched_fp.invariants import CATALOGUE
from tests.mutants import play
from tests.mutants.exempt import EXEMPT
from tests.mutants.hunting import hunts, stream
from tests.mutants.mutant import COMPARISON, Mutant
from tests.mutants.planted import MUTANTS
from tests.mutants.planting import PlantingError, mutated_source, planted, read_source
from tests.mutants.shrinking import SmallKill, shrink_kill
from tests.mutants.worker import hunt_all

_BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    """Give what the worker found, by the name of the mutant."""
    return {line["name"]: line for line in hunt_all()}


@pytest.mark.parametrize("name", _BY_NAME)
def test_a_mutant_is_killed(name: str, found: dict[str, dict[str, Any]]) -> None:
    """Everybody who must notice a fault notices it, within few events."""
    assert [] == found[name]["missing"]
    assert set(_BY_NAME[name].killers) == found[name]["killed"].keys()


def test_names_are_different() -> None:
    """No two mutants have one name."""
    assert len(_BY_NAME) == len(MUTANTS)


def test_killers_exist() -> None:
    """A killer is an invariant of the catalogue, or the comparison, alone."""
    known = {entry.invariant_id for entry in CATALOGUE}

    assert all(mutant.killers == (COMPARISON,) or known.issuperset(mutant.killers) for mutant in MUTANTS)
    assert all(mutant.killers for mutant in MUTANTS)


def test_every_invariant_kills_something() -> None:
    """Every invariant is the named killer of a mutant, or it is said why none can be planted."""
    killers = {killer for mutant in MUTANTS for killer in mutant.killers}
    known = {entry.invariant_id for entry in CATALOGUE}

    assert EXEMPT.keys() == known - killers


def test_every_module_of_the_core_has_a_mutant() -> None:
    """No module that decides anything is left out."""
    planted_in = {mutant.module.removeprefix("kvsched_fp.") for mutant in MUTANTS}
    core = {
        *(f"schedule.{name}" for name in ("plan", "running", "preemption", "waiting", "blocked")),
        *(f"schedule.{name}" for name in ("advance", "drafts", "canvases", "output")),
        *(f"update.{name}" for name in ("tokens", "drafts", "stop", "outputs", "results", "checks")),
        *(f"kvcache.{name}" for name in ("pool", "coordinator", "allocation", "hashing", "groups.full")),
        *("kvcache.chunked", "kvcache.layered", "schedule", "update", "queues", "lifecycle", "release"),
        *("sessions", "grammar", "bitmask", "drafting", "state", "transient", "machine", "config"),
        *("progress", "request"),
    }

    assert set() == core - planted_in


def test_a_history_goes_on_where_a_client_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the quirks, input that has no room is refused, and what comes behind it is played."""
    was_taken: list[bool] = []

    def note(state: SchedulerState, event: Event) -> Any:
        was_taken.append(False)
        result = step(state, event)
        was_taken[-1] = True
        return result

    monkeypatch.setattr(play, "step", note)
    num_refused = 0
    for seed in range(30):
        was_taken.clear()
        drawn = play.draw(seed, _BY_NAME["input in store takes no room"])
        if drawn is None:
            continue
        played = play.play_drawn(drawn)
        num_refused += was_taken.count(False)

        assert not played.broken
        assert was_taken.count(True) == len(played.events)
        assert was_taken[-1]

    assert num_refused > 1


def test_a_story_is_made_small_where_the_machine_falls_over() -> None:
    """A fault that makes some of the smaller histories crash still gets a small one that shows it."""
    mutants = [_BY_NAME["an admitted request stays in its queue"]]
    found = [
        [shrink_kill(hunt, kill) for kill in hunt.search(stream(1))]
        for hunt in hunts(mutants, shrinks=True)
    ]

    assert [[SmallKill(num_events=2, is_minimal=True)] * 2] == found


@pytest.mark.parametrize("old", ["no such text", "    return"])
def test_a_text_must_stand_once(old: str) -> None:
    """A mutant whose text does not stand in its module exactly once cannot be planted."""
    mutant = Mutant(
        name="m", module="kvsched_fp.queues", old=old, new="", stands_for="", killers=(COMPARISON,)
    )

    with pytest.raises(PlantingError, match=r"stands \d+ times in kvsched_fp\.queues"):
        mutated_source(mutant, read_source(mutant.module))

    with pytest.raises(PlantingError), planted(mutant):
        pass


def test_planting_leaves_no_trace() -> None:
    """After a fault was planted, the package is what it was."""
    import kvsched_fp.queues as before

    with planted(MUTANTS[0]):
        pass

    import kvsched_fp.queues as after

    assert before is after
