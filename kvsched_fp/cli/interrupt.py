"""Ctrl-C as a flag, so that an event is never cut in half."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class InterruptFlag:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.is_set = False


@contextmanager
def catch_interrupt() -> Iterator[InterruptFlag]:
    """Let the first Ctrl-C set the flag; the second one interrupts as usual."""
    flag = InterruptFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag  # only the main thread may handle signals
        return
    previous = signal.getsignal(signal.SIGINT)

    def handle(_number: int, _frame: FrameType | None) -> None:
        flag.is_set = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, handle)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, previous)
