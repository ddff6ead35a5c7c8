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
    samples = [set(general.draw(most, 1)) for most in (5, 10, 1000)]

    assert [5, 10, 20] == [sum("queues" in name for name in sample) for sample in samples]
    assert samples[0] < samples[1] < samples[2]
    assert {"g"} == {name for name in samples[2] if "queues" not in name}


@pytest.mark.usefixtures("verdicts")
def test_table_has_a_line_for_each_module_with_mutants(capsys: pytest.CaptureFixture[str]) -> None:
    """Every verdict has its column; a loop that is cut off is no survivor, and neither is a crash."""
    general.print_table(general.read_verdicts())

    assert [
        "module | mutants | run | killed | timed out | crashed | survived | met by no test",
        "queues.py | 20 | 0 | 0 | 0 | 0 | 0 | 0",
        "update/stop.py | 7 | 6 | 2 | 1 | 1 | 1 | 1",
        "all | 27 | 6 | 2 | 1 | 1 | 1 | 1",
    ] == capsys.readouterr().out.splitlines()
