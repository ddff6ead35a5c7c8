"""The way into the command `kvsched-fp`: Ctrl-C ends it quietly from its first moment on.

It is installed beside the package, as `kvsched_fp_command` (`pyproject.toml`), and imports nothing at its
head that Python has not imported already: whoever imports anything from the package imports all of the
machine first, and for as long as that takes, Ctrl-C would show where in the imports Python was.

`python -m kvsched_fp_command` is the command, too.
"""

import os
import sys

EXIT_INTERRUPTED = 130
"""As in `kvsched_fp/cli/failures.py`, which cannot be imported yet."""


def main() -> None:
    """Run the command."""
    try:
        import signal

        is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell can turn it off
        if is_heard:
            # Not by an exception: some code that runs while modules are imported swallows it.
            signal.signal(signal.SIGINT, _end_at_once)
        from kvsched_fp.cli import main as command

        if is_heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command(prog_name="kvsched-fp")
    except KeyboardInterrupt:  # before `kvsched_fp.cli` catches it, or when it does not any more
        _say_so()
        sys.exit(EXIT_INTERRUPTED)


def _end_at_once(*_: object) -> None:
    """End the process: nothing is open yet that would have to be closed."""
    try:
        _say_so()
    finally:
        os._exit(EXIT_INTERRUPTED)


def _say_so() -> None:
    os.write(2, b"interrupted\n")


if __name__ == "__main__":
    main()
