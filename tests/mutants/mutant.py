"""What a mutant is: one slip in one place of the package, and who must notice it."""

from collections.abc import Callable
from typing import Any

import attrs

COMPARISON = "comparison"
"""The killer of a mutant that breaks no invariant: other outcomes than those of the package as it is."""


def _any_config(_: Any) -> bool:
    return True


def _as_drawn(config: Any) -> Any:
    return config


@attrs.frozen(kw_only=True)
class Mutant:
    """A planted fault."""

    name: str
    """What was done, in a few words; no two are alike."""
    module: str
    """Where, as it is imported."""
    old: str
    """The text that is replaced. It must stand in the module exactly once."""
    new: str
    """What stands there instead."""
    stands_for: str
    """The slip that it is an example of."""
    report: str = ""
    """The public report of such a slip, where there is one."""
    killers: tuple[str, ...]
    """The ids of the invariants that must notice it, each of them; or `COMPARISON`."""
    features: tuple[str, ...] = ()
    """What a history must have for the fault to show (`tests/conformance/random_features.py`); with none,
    plain histories are played."""
    where: Callable[[Any], bool] = _any_config
    """Which configurations the fault can show in; the others are not played."""
    world: Callable[[Any], Any] = _as_drawn
    """Makes the configuration that is played of the one that was drawn, for what those rarely have."""
    without_quirks: bool = False
    """Whether the histories are played without the reference's quirks (`kvsched_fp.config.Quirk`)."""
