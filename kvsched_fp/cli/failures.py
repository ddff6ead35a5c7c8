"""Which exit code an error gives."""

from kvsched_fp.errors import InvariantViolation, OracleBug

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
