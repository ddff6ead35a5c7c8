"""What was measured of the mutants, and what the page says of it."""

from pathlib import Path

import pytest

from tests.mutants import measures, pins, report
from tests.mutants.measures import Measure, figures, read_measures, write_measures
from tests.mutants.planted import MUTANTS
from tests.mutants.shrinking import SmallKill

SEEDS = {"1", "2", "3"}


def test_every_mutant_was_measured() -> None:
    """Everybody who must notice a mutant did so under each seed, and a small story was looked for."""
    known = read_measures()

    assert {(mutant.name, killer) for mutant in MUTANTS for killer in mutant.killers} == known.keys()
    assert [] == [pair for pair, measure in known.items() if measure.events.keys() != SEEDS]
    assert [] == [pair for pair, measure in known.items() if measure.small is None]


def test_page_has_the_figures() -> None:
    """The figures of the page are those that were measured (`python -m tests.mutants.report --figures`)."""
    page = Path("specs/mutation.md").read_text()

    assert "\n".join(figures(read_measures())) in page


def test_what_is_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures are the same behind a file; without one there are none."""
    monkeypatch.setattr(measures, "_FILE", tmp_path / "measures.json")
    empty = read_measures()
    written = {
        ("m", "INV-A-01"): Measure({"1": 5}, SmallKill(3, is_minimal=True)),
        ("m", "INV-B-01"): Measure({"1": 7, "2": 9}),
        ("n", "comparison"): Measure({}, SmallKill(8, is_minimal=False)),
    }
    write_measures(written)

    assert {} == empty
    assert written == read_measures()


@pytest.mark.parametrize(
    ("known", "newer", "merged"),
    [
        (None, SmallKill(4, is_minimal=False), SmallKill(4, is_minimal=False)),
        (SmallKill(4, is_minimal=False), None, SmallKill(4, is_minimal=False)),
        (SmallKill(4, is_minimal=False), SmallKill(3, is_minimal=False), SmallKill(3, is_minimal=False)),
        (SmallKill(3, is_minimal=True), SmallKill(4, is_minimal=True), SmallKill(3, is_minimal=True)),
        (SmallKill(4, is_minimal=False), SmallKill(4, is_minimal=True), SmallKill(4, is_minimal=True)),
        (SmallKill(4, is_minimal=True), SmallKill(4, is_minimal=False), SmallKill(4, is_minimal=True)),
        (None, None, None),
    ],
)
def test_smaller_story_is_kept(
    known: SmallKill | None, newer: SmallKill | None, merged: SmallKill | None
) -> None:
    """Of two as small, the one is kept of which it is sure; of the events of a seed, the newer."""
    assert Measure({"1": 1, "2": 5, "3": 3}, merged) == Measure({"1": 1, "2": 2}, known).merge(
        Measure({"2": 5, "3": 3}, newer)
    )


def test_figures_are_of_the_worst_seed_and_of_all_stories() -> None:
    """Half, nine in ten and the longest, and the longest stories by name."""
    known = {
        (f"m{number:02}", "comparison"): Measure(
            {"1": number, "2": 1000 + number}, SmallKill(number, is_minimal=number < 15)
        )
        for number in range(1, 21)
    }

    assert [
        "- 20 mutants and who must notice each: 20 pairs.",
        "- Of the worst of the seeds 1, 2, half take up to 1,010 events, nine in ten up to 1,018, "
        "the longest 1,020.",
        "- Of the smallest stories of 20 pairs, half take up to 10 events, nine in ten up to 18, "
        "the longest 20.",
        "- 14 of them are as small as they get. 6 are upper bounds: the tries ran",
        "  out, or none could be judged.",
        "",
        "The longest:",
        "",
        "| events | mutant | noticed by |",
        "|---|---|---|",
        *(f"| <= {number} | m{number} | comparison |" for number in range(20, 14, -1)),
    ] == list(figures(known))


def test_figures_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is planted for it."""
    monkeypatch.setattr("sys.argv", ["report", "--figures"])
    code = report.main()

    assert 0 == code
    assert list(figures(read_measures())) == capsys.readouterr().out.splitlines()


def test_pin_writes_seeds_and_measures_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured of one mutant, and the seeds that show it; of the others, what was known stays."""
    monkeypatch.setattr(measures, "_FILE", tmp_path / "measures.json")
    monkeypatch.setattr(pins, "_FILE", tmp_path / "pins.json")
    pair = ("events that have no outcome give one", "INV-STEP-01")
    other = {("another", "comparison"): Measure({"1": 4}, SmallKill(2, is_minimal=True))}
    write_measures(other)
    monkeypatch.setattr("sys.argv", ["report", "--pin", "--seeds", "1", "2", "--only", pair[0]])
    code = report.main()
    found = read_measures()

    assert 0 == code
    assert {**other, pair: Measure({"1": 1, "2": 2}, SmallKill(1, is_minimal=True))} == found
    assert [1_000_000] == pins.read_pins()[pair[0]]
