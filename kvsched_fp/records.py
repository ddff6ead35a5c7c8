"""Frozen records that a step makes by the hundred, and the wide ones that every event makes.

The constructor of a frozen attrs class sets each field through `object.__setattr__`, which for a
`Progress` takes twice as long as all else that there is to do (`tests/bench/persistent.py`). So a hot
record has an open twin with the same slots; its constructor fills the twin by plain assignment, and then
names it the frozen class. What comes out is an ordinary frozen record.

All functions are made from text, as attrs makes its own: a constructor with one parameter per field costs
a fifth less than one that passes them on as a tuple, and copying field by field a fraction of
`attrs.evolve`. What this gives up: mypy knows the fields of `attrs.evolve`; here a wrong name is an error
when it is called, and a wrong type is none, unless whoever makes a function says its type.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

T = TypeVar("T")


def quick_constructor(record: type[T]) -> Callable[..., T]:
    """Make a constructor that takes all fields of `record`, by position.

    `record` is a frozen, slotted attrs class with `weakref_slot=False` (Python lets an object change
    its class only without one), and with nothing to run at construction.
    """
    names, scope = _open_twin(record)
    lines = [
        f"def construct({', '.join(names)}):",
        "    _made = _twin()",
        *[f"    _made.{name} = {name}" for name in names],
        "    _made.__class__ = _record",
        "    return _made",
    ]
    exec("\n".join(lines), scope)  # the names of the fields are all that is put in
    return scope["construct"]  # type: ignore[no-any-return]


def quick_copier(record: type[T], /, *changed: str, **fixed: object) -> Callable[..., T]:
    """Make a function that copies a `record`: the fields `changed` as they are given, the `fixed` ones so.

    It takes the new values by position, in the order of `changed`; and a fifth less time than a constructor
    that is handed all fields. What `record` must be says `quick_constructor`. Raises `TypeError` for a name
    that is no field, or is given twice.
    """
    names, scope = _open_twin(record)
    given = [*changed, *fixed]
    for name in given:
        if name not in names or given.count(name) > 1:
            raise TypeError(f"{record.__name__} has no field {name!r}, or it was given twice")
    values = {name: f"_before.{name}" for name in names}
    values |= {name: name for name in changed} | {name: f"_fixed_{name}" for name in fixed}
    scope |= {f"_fixed_{name}": value for name, value in fixed.items()}
    lines = [
        f"def copy({', '.join(['_before', *changed])}):",
        "    _made = _twin()",
        *[f"    _made.{name} = {value}" for name, value in values.items()],
        "    _made.__class__ = _record",
        "    return _made",
    ]
    exec("\n".join(lines), scope)  # the names of the fields are all that is put in
    return scope["copy"]  # type: ignore[no-any-return]


def quick_evolver(record: type[T]) -> Callable[..., T]:
    """Make a function that copies a `record` with the fields changed that are given by name.

    What `record` must be says `quick_constructor`. Raises `TypeError` for a name that is no field.
    """
    copier = functools.cache(functools.partial(quick_copier, record))  # few sets of names ever change

    def evolve(before: T, /, **changes: object) -> T:
        return copier(*changes)(before, *changes.values())

    return evolve


def _open_twin(record: type[Any]) -> tuple[list[str], dict[str, Any]]:
    """Give the names of the fields, and what the text of a function about the record refers to."""
    fields = attrs.fields(record)
    converts = any(field.converter or field.validator for field in fields)
    if converts or hasattr(record, "__attrs_post_init__"):
        raise TypeError(f"{record.__name__} has something to run at construction")
    names = [field.name for field in fields]
    twin = attrs.make_class(
        f"Open{record.__name__}", names, slots=True, weakref_slot=False, eq=False, init=False
    )
    return names, {"_twin": twin, "_record": record}  # no field is private, so none has such a name
