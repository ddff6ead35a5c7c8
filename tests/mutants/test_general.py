"""The sample of the general mutation tester, and its table."""

import json
from pathlib import Path

import pytest

from tests.mutants import general


@pytest.fixture
def verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tester have made two modules; some of the second were run."""
    monkeypatch.setattr(general, "MUTANTS_DIR", tmp_path)
    modules = {
        "queues": {f"kvsched_fp.queues.x_pop__mutmut_{number}": None for number in range(20)},
        "update/stop": dict(zip("abcdefg", (1, 3, 0, 33, -24, -11, None), strict=True)),
        "ids": {},
    }
    for module, codes in modules.items():
        path = tmp_path / "kvsched_fp" / f"{module}.py.meta"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"exit_code_by_key": codes}))


@pytest.mark.usefixtures("verdicts")
def test_larger_sample_has_all_of_a_smaller_one() -> None:
    """So a run can go on with more, and what was run already is not drawn again."""
    samples = [set(general.draw(general.read_verdicts(), most, 1)) for most in (5, 10, 1000)]

    assert [5, 10, 20] == [sum("queues" in name for name in sample) for sample in samples]
    assert samples[0] < samples[1] < samples[2]
    assert {"g"} == {name for name in samples[2] if "queues" not in name}


@pytest.mark.usefixtures("verdicts")
def test_only_the_modules_that_are_named_are_chosen() -> None:
    """What is drawn of a module does not depend on the others; without names all are chosen."""
    found = general.read_verdicts()
    only = general.choose(found, ["queues.py"])

    assert ["queues.py", "update/stop.py"] == sorted(general.choose(found, ()))
    assert {"queues.py"} == only.keys()
    assert {*general.draw(only, 5, 1), "g"} == set(general.draw(found, 5, 1))


@pytest.mark.usefixtures("verdicts")
def test_module_without_mutants_is_refused() -> None:
    """A path that is mistyped does not give an empty table, and the error says which there are."""
    with pytest.raises(
        ValueError, match=r"^--only stop\.py ids\.py: no mutants; .* are queues\.py, update/stop\.py$"
    ):
        general.choose(general.read_verdicts(), ["queues.py", "stop.py", "ids.py"])


@pytest.mark.usefixtures("verdicts")
def test_table_has_a_line_for_each_module_with_mutants(capsys: pytest.CaptureFixture[str]) -> None:
    """Every verdict has its column; a loop that is cut off is no survivor, and neither is a crash."""
    general.print_table(general.read_verdicts())

    assert [
        general.TABLE_HEAD,
        general.TABLE_LINE,
        "| `queues.py` | 20 | 0 | 0 | 0 | 0 | 0 | 0 |",
        "| `update/stop.py` | 7 | 6 | 2 | 1 | 1 | 1 | 1 |",
        "| **all** | 27 | 6 | 2 | 1 | 1 | 1 | 1 |",
    ] == capsys.readouterr().out.splitlines()


def test_page_has_the_columns_and_adds_up() -> None:
    """The table of the page is one that was printed; its last row is the sum of the others."""
    page = Path("specs/mutation.md").read_text().splitlines()
    start = page.index(general.TABLE_HEAD)
    end = next(number for number in range(start, len(page)) if page[number].startswith("| **all** |"))
    rows = [[int(cell) for cell in line.split("|")[2:-1]] for line in page[start + 2 : end + 1]]

    assert general.TABLE_LINE == page[start + 1]
    assert [sum(column) for column in zip(*rows[:-1], strict=True)] == rows[-1]
    assert [row[1] for row in rows] == [sum(row[2:]) for row in rows]
