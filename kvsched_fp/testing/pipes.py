"""A process that answers lines with lines, with limits: it may die, hang, or never end a line.

For POSIX: the pipes are waited for with `selectors`.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from kvsched_fp.errors import shorten
from kvsched_fp.testing.adapter import AdapterError

_CHUNK_BYTES = 2**16
_SHOWN_BYTES = 2000
"""How much of the end of standard error is shown in an error."""
_PATIENCE = 2.0
"""Seconds that a process has to end by itself, once its standard input is closed."""


class LineProcess:
    """A running process. Every error ends it, with the processes of its group, which it has started."""

    def __init__(
        self, command: Sequence[str], *, directory: Path | None, max_line_bytes: int, timeout: float
    ) -> None:
        """Start it. `timeout` is in seconds. Raises `AdapterError` if it cannot be started."""
        self._max_line_bytes, self._timeout = max_line_bytes, timeout
        self._unread = b""
        self._is_group_ended = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=directory,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise AdapterError(f"{command[0]!r} cannot be started: {error.strerror}") from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        for descriptor in (self._input, self._output):
            os.set_blocking(descriptor, False)

    def ask(self, line: str) -> str:
        """Send a line, and give the line that answers it.

        Raises `AdapterError` if there is none in time, or too long a one, or more than one; and if the
        process has died.
        """
        self._take_unasked()
        if self._unread:
            raise self.fail(f"wrote {shorten(self._unread)} that nobody had asked for")
        deadline = time.monotonic() + self._timeout
        self._send(f"{line}\n".encode(), deadline)
        while b"\n" not in self._unread:
            self._refuse_long_line(self._unread)
            self._wait(self._output, selectors.EVENT_READ, deadline)
            chunk = os.read(self._output, _CHUNK_BYTES)
            if not chunk:
                raise self.fail(self._how_it_died())
            self._unread += chunk
        answer, _, self._unread = self._unread.partition(b"\n")
        self._refuse_long_line(answer)
        try:
            return answer.decode("utf-8")
        except UnicodeDecodeError:
            raise self.fail(f"answered {shorten(answer)}, which is not UTF-8") from None

    def _take_unasked(self) -> None:
        """Read what is there before anything was asked; where nothing can come, the asking says why."""
        with contextlib.suppress(BlockingIOError):
            self._unread += os.read(self._output, _CHUNK_BYTES)

    def _refuse_long_line(self, line: bytes) -> None:
        if len(line) > self._max_line_bytes:
            raise self.fail(f"answered a line of more than {self._max_line_bytes} bytes")

    def _send(self, data: bytes, deadline: float) -> None:
        while data:
            self._wait(self._input, selectors.EVENT_WRITE, deadline)
            try:
                data = data[os.write(self._input, data[:_CHUNK_BYTES]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self.fail(self._how_it_died()) from None

    def _wait(self, descriptor: int, what: int, deadline: float) -> None:
        left = deadline - time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, what)
            if left <= 0 or not selector.select(left):
                verb = "answer" if what == selectors.EVENT_READ else "read its input"
                raise self.fail(f"did not {verb} within {self._timeout:g} s")

    def _how_it_died(self) -> str:
        try:
            code = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            return "closed its standard output"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def fail(self, what: str) -> AdapterError:
        """End the process, and make the error that says what it did."""
        self.kill()
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(self._errors.tell() - _SHOWN_BYTES, 0))
        said = self._errors.read().decode("utf-8", "replace").strip()
        return AdapterError(f"the process {what}{f'; it said: {said}' if said else ''}")

    @property
    def is_running(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it, with the processes that it has started, also if it has ended by itself."""
        if self._is_group_ended:
            return  # its number may be that of another group by now
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the latter where all are zombies
            os.killpg(self._process.pid, signal.SIGKILL)
        self._is_group_ended = True
        self._process.wait()

    def close(self) -> None:
        """Close its standard input, and end what does not end by itself."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        self.kill()
        self._errors.close()
