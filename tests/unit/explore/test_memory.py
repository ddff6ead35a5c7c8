"""The memory of this process."""

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from kvsched_fp.explore import memory
from kvsched_fp.explore.memory import lacks_memory, resident_bytes

MIB = 2**20


def test_what_is_taken_shows() -> None:
    """A list of 64 MiB does."""
    before = resident_bytes()
    taken = bytearray(64 * MIB)
    after = resident_bytes()

    assert len(taken) == 64 * MIB
    assert before is not None
    assert after is not None
    assert after - before > 60 * MIB


def test_where_there_is_no_proc_the_peak_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes, on every system."""
    monkeypatch.setattr(memory, "_STATM", Path("/nowhere/statm"))
    peak = resident_bytes()
    monkeypatch.setattr(sys, "platform", "darwin")
    as_if_bytes = resident_bytes()

    assert peak is not None
    assert as_if_bytes is not None
    assert MIB < peak
    assert 1024 * as_if_bytes == peak


def test_where_nothing_is_told_there_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system without `resource`."""
    real = builtins.__import__

    def without_resource(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "resource":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_resource)

    assert resident_bytes() is None
    assert not lacks_memory(1)


def test_a_limit() -> None:
    """More than that is too much; None is no limit."""
    assert lacks_memory(MIB)
    assert not lacks_memory(2**50)
    assert not lacks_memory(None)
