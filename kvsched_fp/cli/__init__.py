"""The command line: `kvsched-fp COMMAND`, one file per command.

Exit codes: 0 done; 1 a trace differs, an invariant was violated or the machine has a bug; 2 the input was
wrong; 130 interrupted. `command.py` is the way in.
"""

from typing import Any

import click

from kvsched_fp.cli.check import check
from kvsched_fp.cli.explain import explain
from kvsched_fp.cli.explore import explore_command
from kvsched_fp.cli.failures import EXIT_INVALID_INPUT, failures_told
from kvsched_fp.cli.run import run
from kvsched_fp.cli.shrink import shrink_command
from kvsched_fp.cli.usage import usage_refused
from kvsched_fp.errors import InvalidInputError


class _Commands(click.Group):
    """A group of commands that turns what goes wrong into one line and an exit code."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with failures_told():
            return super().make_context(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with usage_refused(ctx, args):
            return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            raise InvalidInputError("command", args[0], f"one of {', '.join(self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with failures_told():
            return super().invoke(ctx)


@click.group(
    cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="kvsched-fp", prog_name="kvsched-fp")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Run the executable specification of vLLM's V1 scheduler."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(EXIT_INVALID_INPUT)


main.add_command(run)
main.add_command(check)
main.add_command(explain)
main.add_command(explore_command)
main.add_command(shrink_command)
