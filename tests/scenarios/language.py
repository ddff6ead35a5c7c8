"""The format of a scenario file: commands, `----`, what they print.

    # why this is here
    config num_blocks=6
    add a prompt=7 max_tokens=4
    ----
    5 usable blocks of 4 tokens, 64 tokens a step, 8 requests, fcfs

    schedule
    ----
    step 1: a new +7 blocks 1 2; used 2/5

A block is one or more command lines, a line `----`, and the lines that the commands print together. A
blank line ends it. Lines that start with `#` are comments; they stand before the `----`.
"""

from collections.abc import Sequence
from pathlib import Path

import attrs

SEPARATOR = "----"


class ScenarioError(Exception):
    """A scenario that cannot be read or run: a mistake in the file, not in the scheduler."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path.name}:{line}: {problem}")


@attrs.frozen
class Command:
    """One command line: `name word word key=value key=value`."""

    name: str
    """What to do."""
    words: tuple[str, ...]
    """The arguments without `=`, in order."""
    options: dict[str, str]
    """The arguments with `=`, in order."""


@attrs.frozen
class Block:
    """Commands and what they are expected to print."""

    line: int
    """Where it begins, from 1."""
    head: str
    """The lines before the separator, comments and blank lines included, as they stand."""
    commands: tuple[Command, ...]
    """The commands among them."""
    expected: str
    """The lines behind the separator."""


def parse_scenario(path: Path) -> list[Block]:
    """Read a scenario file, or raise `ScenarioError`."""
    blocks = []
    head: list[str] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        if line != SEPARATOR:
            head.append(line)
            continue
        expected = []
        while index < len(lines) and lines[index]:
            expected.append(lines[index])
            index += 1
        commands = tuple(_parse_command(text) for text in head if text and not text.startswith("#"))
        first_line = index - len(expected) - len(head)
        if not commands:
            raise ScenarioError(path, first_line, f"no command before {SEPARATOR}")
        blocks.append(Block(first_line, "\n".join(head), commands, "\n".join(expected)))
        head = []
    if any(head):
        raise ScenarioError(path, len(lines), f"lines without {SEPARATOR} behind them")
    return blocks


def format_scenario(blocks: Sequence[Block], printed: Sequence[str]) -> str:
    """Write the file that `blocks` came from, with what they `printed` as the expected parts."""
    pairs = zip(blocks, printed, strict=True)
    lines = (line for block, text in pairs for line in (block.head, SEPARATOR, *filter(None, [text])))
    return "".join(f"{line}\n" for line in lines)


def _parse_command(text: str) -> Command:
    name, *arguments = text.split()
    words = tuple(argument for argument in arguments if "=" not in argument)
    options = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    return Command(name, words, options)
