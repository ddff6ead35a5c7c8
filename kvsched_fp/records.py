"""Frozen records that a step makes by the hundred.

The constructor of a frozen attrs class sets each field through `object.__setattr__`, which for ten fields
takes twice as long as all else that there is to do (`tests/bench/persistent.py`). So a hot record
has an open twin with the same slots; its constructor fills the twin by plain assignment, and then names it
the frozen class. What comes out is an ordinary frozen record.

The constructor is made from text, as attrs makes its own: with one parameter per field, which costs a
fifth less than passing them on as a tuple.
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
    names = [field.name for field in fields]
    twin = attrs.make_class(
        f"Open{record.__name__}", names, slots=True, weakref_slot=False, eq=False, init=False
    )
    lines = [
        f"def construct({', '.join(names)}):",
        "    made = new(twin)",
        *[f"    made.{name} = {name}" for name in names],
        "    made.__class__ = record",
        "    return made",
    ]
    scope: dict[str, Any] = {"new": object.__new__, "twin": twin, "record": record}
    exec("\n".join(lines), scope)  # the names of the fields are all that is put in
    return scope["construct"]  # type: ignore[no-any-return]
