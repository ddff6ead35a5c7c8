"""Ctrl-C as a flag, so that an event is never cut in half; and for one process only."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
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


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Hold Ctrl-C back until the end of a `with` block; processes that are started in it never hear it.

    It goes to all processes of a terminal: the parent ends its workers, and they have nothing to say.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not a Unix
        yield
        return
    resource_tracker.ensure_running()  # starting it would let signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
