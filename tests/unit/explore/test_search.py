"""The search: it finds the same with any number of processes, and by the shortest history."""

import itertools
import multiprocessing
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kvsched_fp import MINIMAL, FinishRequests, Schedule, SchedulerState
from kvsched_fp.errors import InvalidInputError
from kvsched_fp.explore import (
    Ending,
    Fault,
    Limits,
    RequestKind,
    SearchProgress,
    World,
    crew,
    explore,
    memory,
    search,
)
from kvsched_fp.explore.presets import PRESETS
from kvsched_fp.explore.story import play_again
from tests.meta.rules import SPECS
from tests.unit.explore import faults
from tests.unit.explore.pairs import Searched

PINNED: dict[str, tuple[int, int, int, dict[str, int]]] = {
    "tiny": (620, 1803, 12, {"done": 25}),
    "priority": (709, 1741, 15, {"done": 35}),
    "async": (899, 2968, 14, {"done": 25}),
    "async-reset": (575, 2690, 15, {"done": 9}),
    "drafts": (739, 2104, 15, {"done": 25}),
    "async-drafts": (474, 1572, 14, {"done": 15}),
    "eagle": (525, 1889, 18, {"done": 22}),
    "pause": (1158, 6204, 17, {"done": 27, "waiting for the end of a pause": 92}),
    "grammar": (1239, 4932, 12, {"done": 23, "waiting for a grammar": 16}),
    "async-grammar": (342, 1309, 10, {"done": 8, "waiting for a grammar": 5}),
    "lora": (1214, 3024, 15, {"done": 56}),
    "cadence": (1571, 5486, 19, {"done": 23}),
    "session": (1180, 4635, 15, {"done": 17, "waiting for the next input of a session": 19}),
    "v1": (1303, 4629, 15, {"done": 14}),
    "limits": (794, 1772, 15, {"done": 52}),
    "hash-ahead": (843, 3246, 19, {"done": 10}),
    "pipeline": (677, 2293, 14, {"done": 14}),
}
"""Per world: states, moves, depth, and what the standstills wait for."""

SMALL_BEGINNING = (1699, 677, 5782, 6)
"""States, those explored, moves, depth."""


@pytest.mark.parametrize("name", PINNED)
def test_a_world_is_explored_in_full(name: str) -> None:
    """Nothing is wrong, nobody is stuck, every goal is reached, and the world is as large as ever."""
    found = explore(PRESETS[name])

    assert (Ending.COMPLETE, None, ()) == (found.ending, found.counterexample, found.missed_goals)
    assert PINNED[name] == (found.num_states, found.num_moves, found.depth, found.standstills)
    assert found.num_expanded == found.num_states


def test_every_world_is_pinned() -> None:
    """Only `small` is too large to be explored in a test."""
    assert [*PINNED, "small"] == sorted(PRESETS, key=[*PINNED, "small"].index)


def test_the_page_has_the_same_sizes() -> None:
    """The table in the specification is what is pinned here."""
    page = (SPECS / "explorer.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d,]+) \| ([\d,]+) \| (\d+) \|$", page, re.MULTILINE)
    sizes = {name: tuple(int(cell.replace(",", "")) for cell in cells) for name, *cells in rows}
    del sizes["small"]

    assert {name: sizes_and_more[:3] for name, sizes_and_more in PINNED.items()} == sizes


def test_the_beginning_of_small_is_pinned() -> None:
    """It is explored to a depth that takes seconds."""
    found = explore(PRESETS["small"], limits=Limits(max_depth=6))

    assert (Ending.DEPTH_LIMIT, None) == (found.ending, found.counterexample)
    assert SMALL_BEGINNING == (found.num_states, found.num_expanded, found.num_moves, found.depth)


def test_a_plain_search_finds_as_much() -> None:
    """A dict and a loop find the same number of forms by the same number of moves."""
    plain = Searched(PRESETS["async-reset"])
    found = explore(PRESETS["async-reset"], checks=False)

    assert (len(plain.first), plain.num_moves) == (found.num_states, found.num_moves)


@pytest.mark.parametrize(
    ("name", "arguments", "ending"),
    [
        ("async-drafts", {}, Ending.COMPLETE),
        ("async-drafts", {"limits": Limits(max_states=300)}, Ending.STATE_LIMIT),
        ("async-drafts", {"limits": Limits(max_depth=8)}, Ending.DEPTH_LIMIT),
        ("async-reset", {"step": faults.swaps_victims, "checks": True}, Ending.VIOLATION),
        ("tiny", {"step": faults.leaks_blocks, "checks": True}, Ending.VIOLATION),
    ],
)
def test_any_number_of_processes_finds_the_same(
    monkeypatch: pytest.MonkeyPatch, name: str, arguments: dict[str, Any], ending: Ending
) -> None:
    """One, two and three processes give one result, down to the counterexample."""
    monkeypatch.setattr(search, "SITUATIONS_PER_JOB", 1)
    arguments = {"checks": False} | arguments
    found = [explore(PRESETS[name], num_jobs=num_jobs, **arguments) for num_jobs in (1, 2, 3)]

    assert ending is found[0].ending
    assert found[0].num_moves > 0
    assert found[0] == found[1] == found[2]


def test_shares_are_evened_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Situations go from the largest share to the smallest, and the result is the same."""
    monkeypatch.setattr(search, "SITUATIONS_PER_JOB", 1)
    monkeypatch.setattr(crew, "FEW", 1)
    monkeypatch.setattr(crew, "UNEVEN", 1.0)
    asked: list[str] = []
    ask = crew._ask

    def listen(connection: Any, command: str, argument: object) -> Any:
        asked.append(command)
        return ask(connection, command, argument)

    monkeypatch.setattr(crew, "_ask", listen)
    found = explore(PRESETS["tiny"], checks=False, num_jobs=3)

    assert asked.count("give") > 3
    assert explore(PRESETS["tiny"], checks=False) == found


@pytest.mark.parametrize(
    ("step", "checks", "expected", "num_events"),
    [
        (faults.leaks_blocks, True, "INV-", 4),
        (faults.fails_when_two_run, True, "KeyError", 4),
        (faults.refuses_results, True, "InvalidEvent", 4),
        (faults.never_serves, False, "STUCK", 1),
        (faults.forgets_a_number, True, "INV-", 2),
        (faults.forgets_a_number, False, "KeyError", 2),
    ],
)
def test_a_fault_is_found_by_a_shortest_history(
    step: Callable[..., Any], checks: bool, expected: str, num_events: int
) -> None:
    """The history ends with what is wrong, and no shorter one shows it."""
    found = explore(PRESETS["tiny"], step=step, checks=checks)
    shorter = explore(PRESETS["tiny"], step=step, checks=checks, limits=Limits(max_depth=num_events - 1))

    assert found.ending is Ending.VIOLATION
    assert found.counterexample is not None
    assert found.counterexample.fault.name.startswith(expected)
    assert num_events == len(found.counterexample.events)
    assert shorter.counterexample is None


def test_a_counterexample_can_be_played_again() -> None:
    """Its events lead from the initial state to the fault."""
    found = explore(PRESETS["tiny"], step=faults.leaks_blocks)
    assert found.counterexample is not None
    told = list(play_again(found.world, found.counterexample, faults.leaks_blocks))

    assert isinstance(told[-1].event, FinishRequests)
    assert isinstance(told[-1].after, SchedulerState)


def test_the_initial_state_is_checked() -> None:
    """A fault there has a history of no event."""
    world = PRESETS["tiny"]
    found = explore(world, limits=Limits(max_depth=0))

    assert (Ending.DEPTH_LIMIT, 1, 0, 0) == (found.ending, found.num_states, found.num_moves, found.depth)


def test_the_state_limit_keeps_the_first_states() -> None:
    """As many as asked for, the nearest ones; the others are not explored."""
    found = explore(PRESETS["tiny"], limits=Limits(max_states=50))

    assert (Ending.STATE_LIMIT, 50) == (found.ending, found.num_states)
    assert found.num_expanded < 50


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_the_memory_limit_stops_at_once(monkeypatch: pytest.MonkeyPatch, num_jobs: int) -> None:
    """What was explored stays counted; no level that was begun counts as done."""
    monkeypatch.setattr(search, "SITUATIONS_PER_JOB", 1)
    # This process grows with every look; the others are what they are, which is more than their share.
    monkeypatch.setattr(memory, "resident_bytes", itertools.count(1000, 600).__next__)
    found = explore(PRESETS["tiny"], limits=Limits(max_bytes=10_000), num_jobs=num_jobs)

    assert Ending.MEMORY_LIMIT is found.ending
    assert found.num_expanded < found.num_states


@pytest.mark.parametrize(("num_jobs", "least"), [(1, 1000), (2, 3000)])
def test_a_memory_limit_below_the_start_is_refused(
    monkeypatch: pytest.MonkeyPatch, num_jobs: int, least: int
) -> None:
    """Nothing could be explored: it names the limit and what this process has."""
    monkeypatch.setattr(memory, "resident_bytes", lambda: 1000)
    allowed = f"max_bytes: got {least - 1}; allowed: at least {least} bytes: this process has 1000 before"
    with pytest.raises(InvalidInputError, match=allowed):
        explore(PRESETS["tiny"], limits=Limits(max_bytes=least - 1), num_jobs=num_jobs)

    assert Ending.COMPLETE is explore(PRESETS["eagle"], limits=Limits(max_bytes=least)).ending


class _Unwilling:
    """A machine that cannot be sent to another process, and says so in its own way."""

    def __reduce__(self) -> str:
        raise ZeroDivisionError

    def __call__(self, *_: object) -> Any:
        raise AssertionError("nothing is to be searched")


def _at_a_prompt(*_: object) -> Any:
    """Stand for a function that was typed into an interpreter."""
    raise AssertionError("nothing is to be searched")


def test_a_machine_that_no_other_process_can_import_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is searched, with the value and what is allowed; one process takes it."""

    def local(*_: object) -> Any:
        raise AssertionError("nothing is to be searched")

    main = types.ModuleType("__main__")
    main._at_a_prompt = _at_a_prompt  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(_at_a_prompt, "__module__", "__main__")
    for step in (lambda *_: None, local, _Unwilling(), _at_a_prompt):
        with pytest.raises(
            InvalidInputError, match=r"step: got <.*; allowed: what another process can imp"
        ):
            explore(PRESETS["tiny"], step=step, num_jobs=2)

    found = explore(PRESETS["tiny"], step=local, limits=Limits(max_depth=0))

    assert Ending.DEPTH_LIMIT is found.ending


def test_a_hasher_that_no_other_process_can_import_is_refused() -> None:
    """As it is a part of the world that is sent."""

    class Local(type(MINIMAL.block_hasher)):  # type: ignore[misc]
        """A hasher of a function."""

    config = attrs.evolve(PRESETS["tiny"].config, block_hasher=Local())
    with pytest.raises(InvalidInputError, match=r"block_hasher: got .*; allowed: what another process"):
        explore(attrs.evolve(PRESETS["tiny"], config=config), num_jobs=2)


@pytest.mark.parametrize("num_jobs", [0, -1, "2", True])
def test_a_number_of_processes_that_is_none(num_jobs: Any) -> None:
    """It is refused by its name."""
    with pytest.raises(InvalidInputError, match=r"num_jobs: got .*; allowed: an integer >= 1"):
        explore(PRESETS["tiny"], num_jobs=num_jobs)


def test_the_result_says_how_it_was_searched() -> None:
    """The limits, and whether invariants were checked."""
    limits = Limits(max_depth=2)
    found = explore(PRESETS["tiny"], limits=limits, checks=False)

    assert (PRESETS["tiny"], limits, False) == (found.world, found.limits, found.checks)


def test_lack_of_memory_is_no_fault() -> None:
    """Where the system has no more, the search ends as with a limit."""
    found = explore(PRESETS["tiny"], step=faults.runs_out_of_memory)

    assert (Ending.MEMORY_LIMIT, None) == (found.ending, found.counterexample)


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_whoever_listens_can_end_it(monkeypatch: pytest.MonkeyPatch, num_jobs: int) -> None:
    """The progress is told, and an answer of False ends the search."""
    monkeypatch.setattr(search, "SITUATIONS_PER_JOB", 1)
    heard: list[SearchProgress] = []

    def tell(progress: SearchProgress) -> bool:
        heard.append(progress)
        return progress.depth < 4

    found = explore(PRESETS["tiny"], num_jobs=num_jobs, tell=tell)

    assert Ending.INTERRUPTED is found.ending
    assert found.depth in {4, 5}  # a level may be done before all processes hear of it
    assert [progress.num_states for progress in heard] == sorted(progress.num_states for progress in heard)


def test_a_goal_that_cannot_be_reached_is_missed() -> None:
    """A world with one request has no batch of two."""
    world = World(
        name="alone",
        config=MINIMAL,
        kinds=[RequestKind(name="a", num_prompt_tokens=3)],
        goals=("full-pool", "batch"),
    )
    found = explore(world)

    assert {"full-pool": None, "batch": None} == found.goals
    assert ("full-pool", "batch") == found.missed_goals


def test_a_goal_that_is_none_is_refused() -> None:
    """The name is told, and which there are."""
    with pytest.raises(InvalidInputError, match="goals: got 'fame'; allowed: one of batch, chunk"):
        explore(attrs.evolve(PRESETS["tiny"], goals=("fame",)))


def test_a_request_that_never_fits_is_stuck() -> None:
    """The pool is smaller than what one request may need: once preempted, nothing serves it again."""
    config = attrs.evolve(PRESETS["tiny"].config, num_blocks=3, allow_undersized_pool=True)
    found = explore(attrs.evolve(PRESETS["tiny"], config=config))

    assert found.counterexample is not None
    assert Fault("STUCK", "no step will ever serve 1b") == found.counterexample.fault
    assert 5 == len(found.counterexample.events)
    assert Schedule() in found.counterexample.events


def test_a_process_that_is_ended_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error that says so, and no process is left behind."""
    monkeypatch.setattr(search, "SITUATIONS_PER_JOB", 1)
    with pytest.raises(MemoryError, match="a process of the search was ended from outside"):
        explore(PRESETS["tiny"], step=faults.ends_its_process, num_jobs=2)

    assert [] == multiprocessing.active_children()


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"world": "tiny"}, "world: got 'tiny'; allowed: a World"),
        ({"world": PRESETS["tiny"], "limits": 5}, "limits: got 5; allowed: Limits"),
        ({"world": PRESETS["tiny"], "step": 3}, "step: got 3; allowed: a function"),
    ],
)
def test_what_cannot_be_searched_is_refused(arguments: dict[str, Any], field: str) -> None:
    """A mistake of the caller is no fault of the machine."""
    with pytest.raises(InvalidInputError, match=field):
        explore(**arguments)
