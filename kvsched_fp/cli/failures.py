"""How a command ends that cannot go on: with one line on the standard error, and an exit code."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from kvsched_fp.errors import InvariantViolation, KvschedError, OracleBug

EXIT_FAULT = 1
"""An invariant was violated, or the machine has a bug."""
EXIT_DIFFERENT = 1
"""A trace has something else than should have come of its events."""
EXIT_INVALID_INPUT = 2
"""The input was wrong."""
EXIT_INTERRUPTED = 130
"""Ended by Ctrl-C, as a shell counts it: 128 + SIGINT."""


def exit_code_of(error: BaseException) -> int:
    """Give the exit code for an error that ends a command."""
    if isinstance(error, InvariantViolation | OracleBug):
        return EXIT_FAULT
    return EXIT_INVALID_INPUT


@contextmanager
def failures_told() -> Iterator[None]:
    """Tell what goes wrong in a `with` block, and end the command. Raises `click.exceptions.Exit`."""
    try:
        yield
    except (KvschedError, MemoryError) as error:
        _end(f"error: {str(error) or 'out of memory'}", exit_code_of(error))
    except KeyboardInterrupt:
        _end("interrupted", EXIT_INTERRUPTED)
    except OSError as error:
        # Files that a command names are reported by name; what is left is its own output.
        sys.stdout = io.StringIO()  # so that the interpreter does not try to write it once more
        allowed = "a standard output to write to"
        _end(f"error: output: got {error.strerror!r}; allowed: {allowed}", EXIT_INVALID_INPUT)


def _end(text: str, exit_code: int) -> NoReturn:
    click.echo(text, err=True)
    raise click.exceptions.Exit(exit_code)
