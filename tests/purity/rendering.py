"""States and outputs as text that does not depend on the hash seed of the process.

python -m tests.purity.rendering    # every history, event by event
"""

from typing import Any

import attrs
from immutables import Map
from pyrsistent import PSet

from .histories import NUM_HISTORIES, history


def render(value: Any) -> str:
    """Write a value; maps and sets that iterate in hash order are sorted, all else keeps its order."""
    if isinstance(value, Map):
        return f"{{{', '.join(sorted(f'{key!r}: {render(item)}' for key, item in value.items()))}}}"
    if isinstance(value, (frozenset, PSet)):
        return f"{{{', '.join(sorted(map(render, value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(render, value))})"
    if attrs.has(type(value)):
        fields = (
            f"{field.name}={render(getattr(value, field.name))}" for field in attrs.fields(type(value))
        )
        return f"{type(value).__name__}({', '.join(fields)})"
    return repr(value)


def main() -> None:
    """Print every history: the outcome as it is, the state rendered."""
    for number in range(NUM_HISTORIES):
        for moment in history(number):
            print(repr(moment.event))
            print(repr(moment.outcome))
            print(repr(moment.after.emitted))
            print(render(moment.after))


if __name__ == "__main__":
    main()
