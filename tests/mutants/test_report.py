"""The command line of the table of mutants."""

import importlib

import attrs
import pytest

from tests.mutants import report
from tests.mutants.measures import Measure
from tests.mutants.planted import MUTANTS
from tests.mutants.planting import stale_lines
from tests.mutants.report import STALE, chosen, named, parse
from tests.mutants.shrinking import SmallKill


def test_a_part_of_names_chooses() -> None:
    """Those are planted whose names contain one of those given; all of them if none is."""
    some = named(parse(["--only", "a victim", "a hit"]).only)

    assert list(MUTANTS) == named(parse([]).only)
    assert some == [mutant for mutant in MUTANTS if "a victim" in mutant.name or "a hit" in mutant.name]
    assert len(named(["a victim"])) < len(some) < len(MUTANTS)


def test_those_are_chosen_that_were_not_measured_for_sure() -> None:
    """A run can go on where one was stopped, and look again at stories that may become smaller."""
    sure, unsure, unknown, *_ = (mutant for mutant in MUTANTS if len(mutant.killers) == 1)
    known = {
        (sure.name, *sure.killers): Measure({"1": 1}, SmallKill(1, is_minimal=True)),
        (unsure.name, *unsure.killers): Measure({"1": 1}, SmallKill(1, is_minimal=False)),
        (unknown.name, *unknown.killers): Measure({"1": 1}),
    }
    names = [sure.name, unsure.name, unknown.name]

    assert [sure, unsure, unknown] == chosen(names, "all", known)
    assert [unsure] == chosen([], "bounds", known)
    assert [unknown] == chosen(names, "missing", known)
    assert len(MUTANTS) - 2 == len(chosen([], "missing", known))


def test_a_name_that_chooses_none(capsys: pytest.CaptureFixture[str]) -> None:
    """What is part of no name is refused, and the names are told."""
    with pytest.raises(SystemExit) as ended:
        parse(["--only", "a victim", "zzzz"])
    told = capsys.readouterr().err

    assert 2 == ended.value.code
    assert "--only: got 'zzzz'; allowed: names or parts of names, of\n" in told
    assert all(mutant.name in told for mutant in MUTANTS)


def test_stale_mutants_are_told_before_anything_is_planted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All whose text is not there once are named with file and text, a line each; the exit code says so."""
    first, second, third, fourth = MUTANTS[:4]
    altered = (
        attrs.evolve(first, module="kvsched_fp.queues", old="no such text"),
        second,
        attrs.evolve(third, module="kvsched_fp.schedule", old="import"),
        attrs.evolve(fourth, module="kvsched_fp.no_such_module"),
    )
    monkeypatch.setattr(report, "MUTANTS", altered)
    monkeypatch.setattr(report, "hunts", lambda *_, **__: pytest.fail("a mutant was planted"))
    monkeypatch.setattr("sys.argv", ["report"])
    code = report.main()
    head, *lines = capsys.readouterr().err.splitlines()

    assert STALE == code
    assert "3 of 4 mutants are stale:" == head
    assert f"{first.name} | kvsched_fp/queues.py | its text stands 0 times | 'no such text'" == lines[0]
    assert lines[1].startswith(f"{third.name} | kvsched_fp/schedule/__init__.py | its text stands ")
    assert f"{fourth.name} | kvsched_fp/no_such_module.py | there is no source | {fourth.old!r}" == lines[2]


def test_no_mutant_is_stale() -> None:
    """Every mutant can be planted into the package as it is."""
    assert [] == stale_lines(MUTANTS)


@pytest.mark.parametrize("module", ["report", "general"])
def test_help_keeps_its_lines(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The examples of the head stand a line each, as they are written."""
    tool = importlib.import_module(f"tests.mutants.{module}")
    with pytest.raises(SystemExit):
        tool.parse(["--help"])
    told = capsys.readouterr().out

    assert tool.__doc__.strip() in told
    assert "%(default)s" not in told
