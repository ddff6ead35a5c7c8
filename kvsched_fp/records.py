"""Frozen records that a step makes by the hundred.

The constructor of a frozen attrs class sets each field through `object.__setattr__`, which for ten fields
takes twice as long as all else that there is to do (`tests/bench/persistent.py`). So a hot record
has an open twin with the same slots; its constructor fills the twin by plain assignment, and then names it
the frozen class. What comes out is an ordinary frozen record.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import attrs

T = TypeVar("T")


def quick_constructor(record: type[T]) -> Callable[..., T]:
    """Make a constructor that takes all fields of `record`, by position.

    `record` is a frozen, slotted attrs class with `weakref_slot=False` (Python lets an object change
    its class only without one), and with nothing to run at construction.
    """
    fields = attrs.fields(record)  # type: ignore[arg-type]  # mypy cannot know that it is one
    converts = any(field.converter or field.validator for field in fields)
    if converts or hasattr(record, "__attrs_post_init__"):
        raise TypeError(f"{record.__name__} has something to run at construction")
    twin: Callable[..., Any] = attrs.make_class(
        f"Open{record.__name__}", [field.name for field in fields], slots=True, weakref_slot=False, eq=False
    )

    def construct(*values: object) -> T:
        made = twin(*values)
        made.__class__ = record
        return made  # type: ignore[no-any-return]  # Any until the line before

    return construct
