"""Errors say whose fault it was and where.

| class                | whose fault                         | what the caller still holds    |
|----------------------|-------------------------------------|--------------------------------|
| `InvalidConfig`      | whoever wrote the configuration     | no state was made              |
| `UnsupportedFeature` | nobody's: it is not supported here  | as for the two around it       |
| `InvalidEvent`       | whoever sent the event              | the state from before, as it was |
| `WorkloadError`      | whoever wrote the workload          | nothing was read past the line |
| `TraceError`         | whoever wrote the trace             | nothing was read past the line |
| `InvariantViolation` | the machine, or a hand-made state   | the state that shows it        |
| `OracleBug`          | ours                                | the state from before, as it was |
"""

import enum
from pathlib import Path


class Missing(enum.Enum):
    """The value, in an error, of a field that is needed and not there."""

    MISSING = "missing"


MISSING = Missing.MISSING
"""Its only member."""


class KvschedError(Exception):
    """The base of every error that this package raises on purpose."""


class InvalidInputError(KvschedError):
    """One field of an input has a value that is not allowed.

    The three parts are kept apart so that a program can act on them.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.field = field
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        got = "missing" if self.value is MISSING else f"got {shorten(self.value)}"
        return f"{self.field}: {got}; allowed: {self.allowed}"


class InvalidConfig(InvalidInputError):  # noqa: N818  the names in errors.py are the project's vocabulary
    """A configuration that no scheduler can run with."""


class InvalidEvent(InvalidInputError):  # noqa: N818  as above
    """An event that makes no sense in the state that it was sent to."""


class InputFileError(InvalidInputError):
    """A file that cannot be read or written, or one line of it that is not what it should be."""

    subject = "file"
    """What such a file is called."""

    def __init__(
        self, field: str, value: object, allowed: str, *, path: Path, line: int | None = None
    ) -> None:
        super().__init__(field, value, allowed)
        self.path = path
        self.line = line

    def __str__(self) -> str:
        where = str(self.path) if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {super().__str__()}"


class WorkloadError(InputFileError):
    """A line or a file that cannot be read as a workload."""

    subject = "workload"


class TraceError(InputFileError):
    """A line or a file that cannot be read as a trace, or a trace that cannot be written."""

    subject = "trace"


class UnsupportedFeature(KvschedError):  # noqa: N818  as above
    """A feature that is asked for, and that this package, the scheduler at hand or the system has not."""

    def __init__(self, feature: str, asked_by: str) -> None:
        super().__init__(feature, asked_by)
        self.feature = feature
        self.asked_by = asked_by

    def __str__(self) -> str:
        return f"not supported: {self.feature} (asked for by {self.asked_by})"


class InvariantViolation(KvschedError):  # noqa: N818  as above
    """A state or a step that breaks an invariant of the catalogue."""

    def __init__(self, invariant_id: str, evidence: str) -> None:
        super().__init__(invariant_id, evidence)
        self.invariant_id = invariant_id
        self.evidence = evidence

    def __str__(self) -> str:
        return f"{self.invariant_id}: {self.evidence}"


class OracleBug(KvschedError):  # noqa: N818  as above
    """A condition inside the machine that was thought impossible. Please report it."""


def shorten(value: object, limit: int = 60) -> str:
    """Give `repr(value)`, cut in the middle to at most `limit` characters."""
    text = repr(value)
    if len(text) <= limit:
        return text
    half = (limit - 3) // 2
    return f"{text[:half]}...{text[-half:]}"
