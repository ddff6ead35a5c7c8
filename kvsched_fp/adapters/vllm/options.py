"""How a shadow behaves: by the constructor, by `additional_config`, or by the environment, in this order.

| constructor     | environment                | meaning                                        |
|-----------------|----------------------------|------------------------------------------------|
| `on_difference` | `KVSCHED_FP_SHADOW`        | `raise` (the default), `log` or `record`       |
| `trace`         | `KVSCHED_FP_SHADOW_TRACE`  | a file to record everything in, as it happens  |
| `folder`        | `KVSCHED_FP_SHADOW_FOLDER` | where reports of differences go                |

In `additional_config` they stand under the key `kvsched_fp`, by the names of the constructor:
`{"kvsched_fp": {"on_difference": "log"}}`.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from kvsched_fp.errors import InvalidConfig

CHOICES = ("raise", "log", "record")
"""What may be done about a difference."""
KEY = "kvsched_fp"
"""Under which key of `additional_config` the options stand."""
VARIABLES = {
    "on_difference": "KVSCHED_FP_SHADOW",
    "trace": "KVSCHED_FP_SHADOW_TRACE",
    "folder": "KVSCHED_FP_SHADOW_FOLDER",
}
"""The environment variable of each option."""


@attrs.frozen
class ShadowOptions:
    """What a shadow does."""

    on_difference: str
    """`raise` an error, `log` the report, or only `record` it; in every case it is written to `folder`."""
    trace: Path | None
    """Where everything that the real scheduler says is recorded as it happens, or None."""
    folder: Path
    """Where a report and its trace are written."""


def choose_options(given: Mapping[str, Any], additional_config: object) -> ShadowOptions:
    """Choose each option from the first source that has it. Raises `InvalidConfig` for a bad one."""
    written = additional_config.get(KEY, {}) if isinstance(additional_config, Mapping) else {}
    if not isinstance(written, Mapping) or not written.keys() <= VARIABLES.keys():
        raise InvalidConfig(f"additional_config[{KEY!r}]", written, f"the keys {', '.join(VARIABLES)}")
    chosen = {name: _choose(name, given, written) for name in VARIABLES}
    on_difference = chosen["on_difference"] or "raise"
    if on_difference not in CHOICES:
        raise InvalidConfig("on_difference", on_difference, " or ".join(map(repr, CHOICES)))
    folder = chosen["folder"] or Path(tempfile.gettempdir()) / "kvsched-fp-shadow"
    trace = chosen["trace"]
    return ShadowOptions(on_difference, None if trace is None else Path(trace), Path(folder))


def _choose(name: str, given: Mapping[str, Any], written: Mapping[str, Any]) -> Any:
    for value in (given.get(name), written.get(name), os.environ.get(VARIABLES[name])):
        if value:
            return value
    return None
