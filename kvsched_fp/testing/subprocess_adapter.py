"""`SubprocessAdapter`: a scheduler in any language, behind standard input and output.

`specs/subprocess-protocol.md` describes what goes over the two.
"""

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InputFileError, InvalidConfig, InvalidInputError, UnsupportedFeature, shorten
from kvsched_fp.events import Event
from kvsched_fp.testing.adapter import Adapter, AdapterError, read_answer
from kvsched_fp.testing.features import features_named
from kvsched_fp.testing.pipes import LineProcess
from kvsched_fp.trace.codec import Told, encode_event, told_key
from kvsched_fp.trace.header import encode_header
from kvsched_fp.trace.reader import parse_line
from kvsched_fp.trace.values import one_record
from kvsched_fp.workloads.lines import Line

GREETING = {"format": "kvsched-fp-kit", "version": 1}
"""The first message of all."""
MAX_LINE_BYTES = 2**24
"""The longest line that is taken, in bytes."""
TIMEOUT = 10.0
"""Seconds to answer one line."""


class SubprocessAdapter(Adapter):
    """A process that answers every line with a line. One process serves all runs, until something fails."""

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        directory: Path | str | None = None,
        timeout: float = TIMEOUT,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        """`command` is split as a shell would, unless it is a list; no shell is involved.

        The process is started at once, and asked what it supports. Raises `AdapterError` if it does not
        say, and `InvalidConfig` for a command that is none.
        """
        if os.name != "posix":
            raise UnsupportedFeature("processes on this system", "SubprocessAdapter")
        try:
            self._command = shlex.split(command) if isinstance(command, str) else list(command)
        except ValueError as error:
            allowed = f"a program and its arguments, quoted as in a shell ({error})"
            raise InvalidConfig("command", command, allowed) from None
        if not self._command:
            raise InvalidConfig("command", command, "a program, and its arguments")
        self._directory = None if directory is None else Path(directory)
        self._timeout, self._max_line_bytes = timeout, max_line_bytes
        self._process: LineProcess | None = None
        self.name = Path(self._command[0]).name
        try:
            self.features = features_named(self._greet())
        except BaseException:
            self.close()  # nobody else can: there is no adapter
            raise

    def _greet(self) -> list[str]:
        """Start the process, and ask what it supports."""
        self.close()
        self._process = LineProcess(
            self._command,
            directory=self._directory,
            max_line_bytes=self._max_line_bytes,
            timeout=self._timeout,
        )
        answer = self._ask(GREETING)
        names = answer.get("features")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self._nonsense(GREETING, answer, '{"features": [...]}, with a list of names')
        return names

    def start(self, config: SchedulerConfig) -> None:
        """Send the header of a trace; a process that has failed before is started again."""
        if self._process is None or not self._process.is_running:
            self._greet()
        header = encode_header(config, {})
        answer = self._ask(header)
        if answer != {"ready": True}:
            raise self._nonsense(header, answer, '{"ready": true}')

    def happen(self, event: Event) -> Told:
        """Send the event, and read what came of it."""
        message = {"event": encode_event(event)}
        answer = self._ask(message)
        key = told_key(event)
        if answer.keys() != ({key} if key else set()):
            raise self._nonsense(message, answer, f'{{"{key}": ...}}' if key else "{}")
        try:
            with one_record():
                return read_answer(event, answer.get(key or ""))
        except AdapterError as error:
            raise self._fail(str(error)) from None

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message, and give the object that answers it."""
        assert self._process is not None
        text = self._process.ask(json.dumps(message, separators=(",", ":"), allow_nan=False))
        try:
            answer = parse_line(Line(Path(self.name), 1, text, _NonsenseError))
        except InvalidInputError as error:
            raise self._nonsense(message, text, error.allowed) from None
        if "error" in answer:
            raise self._fail(f"refuses {_kind(message)}: {answer['error']}")
        return answer

    def _nonsense(self, message: dict[str, Any], answer: object, allowed: str) -> AdapterError:
        return self._fail(
            f'answered {shorten(answer)} to {_kind(message)}; allowed: {allowed}, or {{"error": "why not"}}'
        )

    def _fail(self, what: str) -> AdapterError:
        """End the process: nobody knows where it stands."""
        assert self._process is not None
        return self._process.fail(what)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.close()


class _NonsenseError(InputFileError):
    """A line of the process that is no JSON object."""


def _kind(message: dict[str, Any]) -> str:
    """Name a message."""
    if "event" in message:
        return str(message["event"]["kind"])
    return "the greeting" if message == GREETING else "the header"
