"""The command line: `kvsched-fp COMMAND`, one file per command.

Exit codes: 0 done; 1 a trace differs, an invariant was violated or the machine has a bug; 2 the input was
wrong; 130 interrupted.
"""

import io
import sys
from typing import Any

import click

from kvsched_fp.cli.check import check
from kvsched_fp.cli.explain import explain
from kvsched_fp.cli.failures import EXIT_INTERRUPTED, exit_code_of
from kvsched_fp.cli.run import run
from kvsched_fp.cli.shrink import shrink_command
from kvsched_fp.errors import KvschedError


class _Commands(click.Group):
    """A group of commands that turns the package's errors into one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KvschedError, MemoryError) as error:
            click.echo(f"error: {str(error) or 'out of memory'}", err=True)
            ctx.exit(exit_code_of(error))
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except OSError as error:
            # Files that a command names are reported by name; what is left is its own output.
            _forget_output()
            click.echo(
                f"error: output: got {error.strerror!r}; allowed: a standard output to write to", err=True
            )
            ctx.exit(exit_code_of(error))


def _forget_output() -> None:
    """Let the interpreter end without trying to write what could not be written."""
    sys.stdout = io.StringIO()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kvsched-fp", prog_name="kvsched-fp")
def main() -> None:
    """Run the executable specification of vLLM's V1 scheduler."""


main.add_command(run)
main.add_command(check)
main.add_command(explain)
main.add_command(shrink_command)
