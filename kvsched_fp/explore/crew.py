"""Who expands a level: one shard here, or one in each of several processes.

The processes keep what they find; only keys and numbers are sent, but for situations that are moved to even
the shares out. Numbers go by the order of the moves, so the result is the same for any number of processes.
"""

import multiprocessing
import pickle
import signal
import sys
from array import array
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from ctypes import c_longlong
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from kvsched_fp.errors import InvalidInputError
from kvsched_fp.explore.shard import LevelPart, Numbered, Shard, Task

POLL_SECONDS = 0.1
"""Wall time between two looks at the processes."""
UNEVEN = 1.25
"""A share of this many times the mean is cut."""
FEW = 64
"""Shares that are smaller are left as they are."""

Tell: TypeAlias = Callable[[int, int], bool]
"""Hears how many situations of a level are expanded and how many moves are made; says whether to go on."""


class Crew(Protocol):
    """Expands the levels of one search."""

    @property
    def num_to_expand(self) -> int:
        """Situations of the next level."""

    def expand(self, goals_left: Collection[str], tell: Tell) -> list[LevelPart]:
        """Expand the frontier."""

    def accept(self, numbers: Sequence["array[int]"]) -> None:
        """Say which keys of each part are new."""


class OneShard:
    """A crew in this process."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard

    @property
    def num_to_expand(self) -> int:
        """Situations of the next level."""
        return len(self.shard.frontier)

    def expand(self, goals_left: Collection[str], tell: Tell) -> list[LevelPart]:
        """Expand the frontier."""
        return [self.shard.expand(goals_left, lambda part: tell(part.num_expanded, part.num_moves))]

    def accept(self, numbers: Sequence["array[int]"]) -> None:
        """Say which keys of the part are new."""
        self.shard.accept(numbers[0])


class Processes:
    """A crew of several processes. A `with` block ends them."""

    def __init__(
        self,
        task: Task,
        num_jobs: int,
        starting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        context: SpawnContext = multiprocessing.get_context("spawn")
        self._counts: Any = context.Array(c_longlong, 2 * num_jobs)
        self._must_end: Any = context.Value("b", 0)
        self._connections: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self._sizes = [0] * num_jobs
        with starting():
            for index in range(num_jobs):
                ours, theirs = context.Pipe()
                arguments = (theirs, task, self._counts, self._must_end, index)
                process = context.Process(target=_serve, args=arguments, daemon=True)
                process.start()
                theirs.close()
                self._connections.append(ours)
                self._processes.append(process)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self._must_end.value = 1
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join()

    @property
    def num_to_expand(self) -> int:
        """Situations of the next level."""
        return sum(self._sizes)

    def start(self, situations: Sequence[Numbered]) -> None:
        """Deal the first frontier out."""
        for index, connection in enumerate(self._connections):
            share = list(situations[index :: len(self._connections)])
            self._sizes[index] = _ask(connection, "take", share)

    def expand(self, goals_left: Collection[str], tell: Tell) -> list[LevelPart]:
        """Expand the frontier."""
        self._counts[:] = [0] * len(self._counts)
        parts: dict[Connection, LevelPart] = {}
        for connection in self._connections:
            connection.send(("expand", set(goals_left)))
        while len(parts) < len(self._connections):
            waiting = [connection for connection in self._connections if connection not in parts]
            ready = wait(waiting, POLL_SECONDS)
            for connection in waiting:
                if connection in ready:
                    parts[connection] = _hear(connection)
            counts = self._counts[:]
            if not tell(sum(counts[::2]), sum(counts[1::2])):
                self._must_end.value = 1
        return [parts[connection] for connection in self._connections]

    def accept(self, numbers: Sequence["array[int]"]) -> None:
        """Say which keys of each part are new, and even the shares out."""
        for connection, accepted in zip(self._connections, numbers, strict=True):
            connection.send(("accept", accepted))
        self._sizes = [_hear(connection) for connection in self._connections]
        self._even_out()

    def _even_out(self) -> None:
        """Move situations from the largest share to the smallest, if that is worth it."""
        mean = sum(self._sizes) / len(self._sizes)
        for _ in self._sizes:
            largest, smallest = max(self._sizes), min(self._sizes)
            if largest <= max(FEW, UNEVEN * mean):
                return
            giver, taker = self._sizes.index(largest), self._sizes.index(smallest)
            count = min(largest - int(mean), int(mean) - smallest + 1)
            moved = _ask(self._connections[giver], "give", count)
            self._sizes[taker] = _ask(self._connections[taker], "take", moved)
            self._sizes[giver] -= count


def require_jobs(num_jobs: int, **imported: object) -> None:
    """Refuse a number of processes that is none, and what several would import and cannot.

    Raises `InvalidInputError` with the name under which it is given.
    """
    if type(num_jobs) is not int or num_jobs < 1:
        raise InvalidInputError("num_jobs", num_jobs, "an integer >= 1")
    for name, value in imported.items() if num_jobs > 1 else ():
        if not _can_be_imported(value):
            allowed = "what another process can import: of a module, neither local nor a lambda"
            allowed += f" (num_jobs={num_jobs})"
            raise InvalidInputError(name, value, allowed)


def _can_be_imported(value: object) -> bool:
    """Tell whether a process that starts anew can find a function, a class or a value by its name."""
    try:
        pickled = pickle.dumps(value)
    except Exception:  # a value of one's own may refuse in any way
        return False
    if b"__main__" not in pickled:
        return True
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:  # `python -m`
        return True
    return Path(getattr(main, "__file__", "")).is_file()  # no file: a notebook, or `python -c`


def _ask(connection: Connection, command: str, argument: object) -> Any:
    """Ask a process for something and wait for the answer."""
    connection.send((command, argument))
    return _hear(connection)


def _hear(connection: Connection) -> Any:
    """Wait for the answer of a process. Raises `MemoryError` if it is no more: mostly, it had too much."""
    try:
        return connection.recv()
    except (EOFError, ConnectionError):
        raise MemoryError("a process of the search was ended from outside") from None


def _serve(connection: Connection, task: Task, counts: Any, must_end: Any, index: int) -> None:
    """Do in a process of its own what the crew asks for, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it goes to all processes; the crew's is the one to act
    shard = Shard(task)

    def go_on(part: LevelPart) -> bool:
        counts[2 * index] = part.num_expanded
        counts[2 * index + 1] = part.num_moves
        return not must_end.value

    with suppress(EOFError, ConnectionError):  # nobody asks any more
        while True:
            command, argument = connection.recv()
            answer: object = None
            match command:
                case "expand":
                    answer = shard.expand(argument, go_on)
                case "give":
                    answer = shard.give(argument)
                case "accept":
                    shard.accept(argument)
                case "take":
                    shard.take(argument)
            connection.send(len(shard.frontier) if answer is None else answer)
