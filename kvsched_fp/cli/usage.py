"""A command line that makes no sense, refused like any other input: by name, value and what is allowed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import click

from kvsched_fp.cli.options import allowed_values
from kvsched_fp.errors import MISSING, InvalidInputError


@contextmanager
def usage_refused(ctx: click.Context, args: Sequence[str]) -> Iterator[None]:
    """Turn click's errors about `args` into `InvalidInputError`."""
    args = tuple(args)  # click uses up what it parses
    try:
        yield
    except click.UsageError as error:
        raise _refusal(error, ctx, args) from None


class _Command(click.Command):
    """A command that refuses wrong usage in the words of the package."""

    allow_extra_args = True  # they are refused below

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with usage_refused(ctx, args):
            rest = super().parse_args(ctx, args)
        if ctx.args:
            expected = " ".join(self.collect_usage_pieces(ctx)[1:])
            raise InvalidInputError("arguments", " ".join(ctx.args), f"{expected} and nothing behind it")
        return rest


command = partial(click.command, cls=_Command)
"""`click.command` for all commands."""


def _refusal(error: click.UsageError, ctx: click.Context, args: Sequence[str]) -> InvalidInputError:
    """Say what was wrong in an error of click's."""
    parameters = ctx.command.get_params(ctx)
    match error:
        case click.NoSuchOption(option_name=name):
            known = [known for option in parameters for known in _option_names(option)]
            return InvalidInputError("option", name, ", ".join(known))
        case click.MissingParameter(param=click.Parameter() as parameter):
            names = _option_names(parameter) or [parameter.human_readable_name]
            return InvalidInputError(names[0], MISSING, allowed_values(parameter))
        case click.BadOptionUsage(option_name=name):
            option = next(option for option in parameters if name in _option_names(option))
            value = next((arg.partition("=")[2] for arg in args if arg.startswith(f"{name}=")), MISSING)
            return InvalidInputError(name, value, allowed_values(option))
        case _:
            return InvalidInputError("arguments", " ".join(args), error.format_message())


def _option_names(parameter: click.Parameter) -> list[str]:
    return parameter.opts if isinstance(parameter, click.Option) else []
