"""Options: refusing their values in the words of the package, and the ones that several commands have."""

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from kvsched_fp.cli.checks import DEFAULT_INTERVAL, CheckMode
from kvsched_fp.errors import InvalidInputError


class _Option(click.Option):
    """An option whose values are refused by name, value and what is allowed."""

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().type_cast_value(ctx, value)
        except click.BadParameter:
            raise InvalidInputError(self.opts[0], value, allowed_values(self)) from None


option = partial(click.option, cls=_Option)
"""`click.option` for all options of this command."""


def allowed_values(parameter: click.Parameter) -> str:
    """Say what an option or an argument takes."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return "no value"
    match parameter.type:
        case click.IntRange() | click.FloatRange() as numbers:
            return _allowed_numbers(numbers)
        case click.Choice(choices=choices):
            return f"one of {', '.join(map(repr, choices))}"
        case click.types.FloatParamType():
            return "a number"
        case click.Path():
            return "the path of a file"
        case kind:
            return parameter.metavar or f"a {kind.name}"


def _allowed_numbers(numbers: click.IntRange | click.FloatRange) -> str:
    what = "an integer" if isinstance(numbers, click.IntRange) else "a number"
    limits = f">= {numbers.min}" if numbers.max is None else f"from {numbers.min} to {numbers.max}"
    return f"{what} {limits}"


def check_options(bundled: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command `--check` and `--check-every`; `bundled` is what is checked most thoroughly."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        check = option(
            "--check",
            "check_name",
            type=click.Choice([member.value for member in CheckMode]),
            help="Check the invariants: all after every event; those of the run and the cheap ones after "
            "every event and the whole state now and then; or none.  "
            f"[default: every for {bundled}, else sampled]",
        )
        check_every = option(
            "--check-every",
            type=click.IntRange(min=1),
            metavar="N",
            default=DEFAULT_INTERVAL,
            show_default=True,
            help="With --check sampled: check the whole state at every N-th event.",
        )
        return check(check_every(command))

    return decorate


def check_mode(check_name: str | None, *, is_bundled: bool) -> CheckMode:
    """Give the mode that `--check` asks for, or the default."""
    if check_name is not None:
        return CheckMode(check_name)
    return CheckMode.EVERY if is_bundled else CheckMode.SAMPLED
