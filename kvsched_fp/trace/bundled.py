"""The traces that come with the package, recorded from the real scheduler: see `data/NOTICE`."""

import contextlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path


@contextlib.contextmanager
def bundled_traces() -> Iterator[list[Path]]:
    """Give the bundled traces as files, by name, for the length of a `with` block."""
    with resources.as_file(resources.files("kvsched_fp.trace") / "data") as folder:
        yield sorted(folder.glob("*.jsonl"))
