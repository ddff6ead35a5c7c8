"""The command line of the table of mutants."""

import pytest

from tests.mutants.planted import MUTANTS
from tests.mutants.report import named, parse


def test_a_part_of_names_chooses() -> None:
    """Those are planted whose names contain it; all of them without it."""
    some = named(parse(["--only", "a victim"]).only)

    assert list(MUTANTS) == named(parse([]).only)
    assert some == [mutant for mutant in MUTANTS if "a victim" in mutant.name]
    assert some


def test_a_name_that_chooses_none(capsys: pytest.CaptureFixture[str]) -> None:
    """What is part of no name is refused, and the names are told."""
    with pytest.raises(SystemExit) as ended:
        parse(["--only", "zzzz"])
    told = capsys.readouterr().err

    assert 2 == ended.value.code
    assert "--only: got 'zzzz'; allowed: a name or a part of one, of\n" in told
    assert all(mutant.name in told for mutant in MUTANTS)
