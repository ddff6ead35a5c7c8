"""How long it takes until each mutant is noticed, and how small a story shows it: `measures.json`.

`python -m tests.mutants.report --pin` writes down what it has measured. Of two stories the smaller is kept,
so that those whose tries ran out can be looked at again with more. `specs/mutation.md` has the figures.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median_low
from typing import TypeAlias

import attrs

from tests.mutants.shrinking import SmallKill

_FILE = Path(__file__).with_name("measures.json")
NUM_LONGEST = 6
"""Stories that are listed by name."""


@attrs.frozen
class Measure:
    """What is known of one mutant and one who must notice it."""

    events: Mapping[str, int] = attrs.field(factory=dict)
    """Events until it was noticed, by the seed."""
    small: SmallKill | None = None
    """The smallest story; None if none was looked for."""

    def merge(self, newer: "Measure") -> "Measure":
        """Add what was measured later."""
        smalls = [small for small in (self.small, newer.small) if small is not None]
        smallest = min(smalls, key=lambda small: (small.num_events, not small.is_minimal), default=None)
        return Measure({**self.events, **newer.events}, smallest)


Measures: TypeAlias = Mapping[tuple[str, str], Measure]
"""By the names of the mutant and of who must notice it."""


def read_measures() -> dict[tuple[str, str], Measure]:
    """Read what was written down."""
    written = json.loads(_FILE.read_text()) if _FILE.exists() else {}
    return {
        (name, killer): Measure(
            measure["events"], SmallKill(*measure["story"]) if measure["story"] else None
        )
        for name, killers in written.items()
        for killer, measure in killers.items()
    }


def write_measures(measures: Measures) -> None:
    """Write them down, one mutant a line."""
    by_name: dict[str, dict[str, object]] = {}
    for (name, killer), measure in sorted(measures.items()):
        story = None if measure.small is None else attrs.astuple(measure.small)
        by_name.setdefault(name, {})[killer] = {"events": measure.events, "story": story}
    lines = [f"{json.dumps(name)}: {json.dumps(killers)}" for name, killers in by_name.items()]
    _FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def figures(measures: Measures) -> Iterator[str]:
    """Write the lines of `specs/mutation.md` about what was measured."""
    names = {name for name, _ in measures}
    seeds = sorted({seed for measure in measures.values() for seed in measure.events})
    lacking = [pair for pair, measure in measures.items() if measure.events.keys() != set(seeds)]
    if lacking:
        yield f"- Not noticed under every seed, or not measured: {', '.join(map(' | '.join, lacking))}."
    worst = [max(measure.events.values()) for measure in measures.values() if measure.events]
    yield f"- {len(names)} mutants and who must notice each: {len(measures)} pairs."
    yield f"- Of the worst of the seeds {', '.join(seeds)}, {_spread(worst)}."
    stories = {pair: measure.small for pair, measure in measures.items() if measure.small is not None}
    num_minimal = sum(small.is_minimal for small in stories.values())
    lengths = [small.num_events for small in stories.values()]
    yield f"- Of the smallest stories of {len(stories)} pairs, {_spread(lengths)}."
    num_bounds = len(stories) - num_minimal
    yield f"- {num_minimal} of them are as small as they get. {num_bounds} are upper bounds: the tries ran"
    yield "  out, or none could be judged."
    yield from ("", "The longest:", "", "| events | mutant | noticed by |", "|---|---|---|")
    by_length = sorted(stories.items(), key=lambda item: (-item[1].num_events, item[0]))
    for (name, killer), small in by_length[:NUM_LONGEST]:
        yield f"| {small} | {name} | {killer} |"


def _spread(numbers: Sequence[int]) -> str:
    """Say what half of the numbers reach, nine in ten, and the largest."""
    ordered = sorted(numbers)
    nine_in_ten = ordered[-(len(ordered) // 10) - 1]
    return (
        f"half take up to {median_low(ordered):,} events, nine in ten up to {nine_in_ten:,}, "
        f"the longest {ordered[-1]:,}"
    )
