"""A counterexample as a story."""

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
    """In every world, each kind of event that happens has its own words."""
    words = set()
    for name in ("async-drafts", "drafts", "grammar", "pause", "session", "cadence"):
        world = PRESETS[name]
        moves = Moves(world)
        situations = [initial_situation(world)]
        for situation in situations[:400]:
            for event in moves.enabled(situation):
                after, _ = moves.follow(situation, event, step)
                if len(situations) < 400:
                    situations.append(after)
        words |= _words_of_histories(name)

    assert {
        "add",
        "input",
        "schedule:",
        "schedule,",
        "update",
        "drafts:",
        "drafts",
        "end",
        "the",
        "there",
        "go",
        "pause",
        "reset",
    } <= words


def _words_of_histories(name: str) -> set[str]:
    """Give the first words of the stories of histories that always take the last move, or the first."""
    world = PRESETS[name]
    moves = Moves(world)
    words = set()
    for choice in range(12):
        situation, events = initial_situation(world), []
        for length in range(14):
            enabled = moves.enabled(situation)
            event = enabled[(choice * (length + 1)) % len(enabled)]
            events.append(event)
            situation, _ = moves.follow(situation, event, step)
        story = tell_story(world, Counterexample(Fault("none", "nothing"), tuple(events)))
        words |= {line.split()[1] for line in list(story)[:-1:2]}
    return words
