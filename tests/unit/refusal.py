"""What a refused input must look like."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kvsched_fp.errors import InvalidInputError


@contextmanager
def refused(
    error: type[InvalidInputError], field: str, value: object, allowed: str, *, state: object = None
) -> Iterator[None]:
    """Expect `error` naming `field`, `value` and (a part of) `allowed`, and `state` as it was."""
    before = copy.deepcopy(state)
    with pytest.raises(error) as caught:
        yield

    assert (field, value) == (caught.value.field, caught.value.value)
    assert allowed in caught.value.allowed
    assert before == state
