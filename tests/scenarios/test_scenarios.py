"""Runs every scenario file; `--rewrite` writes down what it printed."""

from pathlib import Path

import pytest

from tests.scenarios.language import Block, ScenarioError, format_scenario, parse_scenario
from tests.scenarios.reading import CommandError
from tests.scenarios.session import Session

HERE = Path(__file__).parent
MAX_LINES = 150
PATHS = sorted(HERE.glob("*.txt"))


def run_scenario(path: Path, blocks: list[Block]) -> list[str]:
    """Run the commands of a file; gives what each block printed."""
    session = Session()
    printed = []
    for block in blocks:
        try:
            texts = [session.run(command) for command in block.commands]
        except (CommandError, KeyError, ValueError) as error:
            raise ScenarioError(path, block.line, str(error)) from error
        printed.append("\n".join(filter(None, texts)) or "ok")
    return printed


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_scenario_prints_what_its_file_says(path: Path, request: pytest.FixtureRequest) -> None:
    """Every block of a scenario prints the lines behind its separator."""
    blocks = parse_scenario(path)
    actual = format_scenario(blocks, run_scenario(path, blocks))
    if request.config.getoption("--rewrite"):
        path.write_text(actual, encoding="utf-8")

    assert path.read_text(encoding="utf-8") == actual


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_scenario_is_short_and_says_what_it_shows(path: Path) -> None:
    """A scenario opens with a comment and is short enough to be read whole."""
    lines = path.read_text(encoding="utf-8").splitlines()

    assert lines[0].startswith("# ")
    assert len(lines) <= MAX_LINES
