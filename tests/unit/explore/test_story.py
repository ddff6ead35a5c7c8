"""A counterexample as a story."""

import random
from collections.abc import Iterator

from kvsched_fp import step
from kvsched_fp.explore import Counterexample, Fault, explore
from kvsched_fp.explore.moves import Moves
from kvsched_fp.explore.presets import PRESETS
from kvsched_fp.explore.situation import initial_situation
from kvsched_fp.explore.story import tell_story
from tests.unit.explore import faults


def test_a_story_tells_events_and_where_everybody_stands() -> None:
    """Two lines per event, and the fault at the end."""
    found = explore(PRESETS["tiny"], step=faults.leaks_blocks)
    assert found.counterexample is not None
    story = list(tell_story(found.world, found.counterexample, faults.leaks_blocks))

    assert [
        "   1  add 1a: 3 tokens of prompt, at most 3 of output",
        "      waiting 1a | free 1 2 3",
        "   2  add 2a: 3 tokens of prompt, at most 3 of output",
        "      waiting 1a, 2a | free 1 2 3",
        "   3  schedule: step 1: 1a +3 in blocks 1 2; 2a +1 in blocks 1 3",
        "      running 1a (3 of 3 computed, 3 in flight), 2a (3 of 3 computed, 1 in flight) | free none"
        " | in flight 1",
        "   4  end 1a from outside",
        "      running 2a (3 of 3 computed, 1 in flight) | free none | in flight 1",
    ] == story[:-1]
    assert story[-1].startswith("INV-")


def test_a_failure_is_the_last_line() -> None:
    """Where the machine fails there is no state to tell."""
    found = explore(PRESETS["tiny"], step=faults.fails_when_two_run)
    assert found.counterexample is not None
    story = list(tell_story(found.world, found.counterexample, faults.fails_when_two_run))

    assert ["      the machine failed", "KeyError: '2a'"] == story[-2:]


def test_every_event_is_told_in_words() -> None:
    """In histories of several worlds, each kind of event has its own words."""
    names = ("async-drafts", "drafts", "grammar", "pause", "session", "cadence")
    lines = {line for name in names for line in _lines_of_histories(name)}

    for words in (
        "add 1a: 2 tokens of prompt, at most 5 of output",
        "input for 1s: 1 tokens of prompt, at most 2 of output",
        "schedule: step 1: nobody",
        "schedule, prompts held back: step 1: nobody",
        "update of step 1: 1a=7",
        "update of step 1: no tokens",
        "drafts: 1a: 7 7",
        "drafts for step ",
        "end 1a from outside",
        "the grammar of 1g is there",
        "there is no grammar for 1g",
        "pause everything",
        "pause new requests",
        "go on",
        "reset the prefix cache and all that runs: done",
    ):
        assert any(line.startswith(words) for line in lines), words


def _lines_of_histories(name: str) -> Iterator[str]:
    """Tell the events of random histories."""
    world = PRESETS[name]
    moves = Moves(world)
    chance = random.Random(name)
    for _ in range(100):
        situation, events = initial_situation(world), []
        for _ in range(14):
            events.append(chance.choice(moves.enabled(situation)))
            situation, _ = moves.follow(situation, events[-1], step)
        story = tell_story(world, Counterexample(Fault("none", "nothing"), tuple(events)))
        yield from (line[6:] for line in list(story)[:-1:2])
