"""The trace of a live engine: what the real scheduler says, as it happens.

Each record goes to the file as soon as it is made, so that an engine that is killed leaves whole lines.
What a trace cannot tell ends it, and so does a disk that is full: the log says so, and the engine goes on.
"""

import functools
import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path

import attrs
import vllm

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import TraceError
from kvsched_fp.events import Event
from kvsched_fp.trace.block_names import OpaqueBlockHasher
from kvsched_fp.trace.codec import Told
from kvsched_fp.trace.header import pinned_sources
from kvsched_fp.trace.writer import TraceWriter, open_trace

logger = logging.getLogger("kvsched_fp.trace")

ASSIGNED = "attributes of the scheduler or of a request were assigned in the middle of the run"
"""Why a trace ends."""
ASKED_FOR_FIGURES = "somebody asked for the scheduler's figures between two steps, which begins them anew"
"""Why a trace ends."""
REJECTED = "a grammar rejected tokens that were sampled under it"
"""Why a trace ends."""


class TraceFile:
    """A trace that is being written, as long as it can tell what happens."""

    def __init__(self, path: Path, config: SchedulerConfig) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.num_events = 0
        self._writer: TraceWriter | None = _start(path, config)

    @property
    def is_open(self) -> bool:
        """Whether the trace goes on."""
        return self._writer is not None

    def restart(self, config: SchedulerConfig) -> None:
        """Begin again with another configuration; end the trace if something has happened already."""
        if self.num_events > 0:
            self.stop(ASSIGNED)
        elif self._writer is not None:
            self._writer.close()
            self._writer = _start(self.path, config)

    def write(self, event: Event, told: Told) -> None:
        """Append an event, and what came of it."""
        if self._writer is None:
            return
        try:
            self._writer.write_told(event, told)
            self._writer.flush()
        except TraceError as error:
            self.stop(str(error))
        else:
            self.num_events += 1

    def stop(self, reason: str) -> None:
        """End the trace, and say why."""
        if self._writer is not None:
            logger.error("%s ends after %d events: %s", self.path, self.num_events, reason)
            self.close()

    def close(self) -> None:
        """End the trace."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.close()
        except TraceError as error:
            logger.error("%s", error)


def _start(path: Path, config: SchedulerConfig) -> TraceWriter:
    writer = open_trace(path, traceable(config), installed_sources())
    writer.flush()
    return writer


def traceable(config: SchedulerConfig) -> SchedulerConfig:
    """Give `config` as a trace can hold it: the names of blocks then mean nothing but themselves."""
    return attrs.evolve(config, block_hasher=OpaqueBlockHasher())


@functools.cache
def installed_sources() -> Mapping[str, str]:
    """Give the SHA-256 of the pinned files, as this process has them; missing ones are left out."""
    folder = Path(vllm.__file__).parent
    return {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in pinned_sources()
        if (folder / name).is_file()
    }
