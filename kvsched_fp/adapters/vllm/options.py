"""How a shadow and a recorder behave: by the constructor, by `additional_config`, or by the environment.

| constructor     | environment                | meaning                                        |
|-----------------|----------------------------|------------------------------------------------|
| `trace`         | `KVSCHED_FP_TRACE`         | a file to record everything in, as it happens  |
| `on_difference` | `KVSCHED_FP_SHADOW`        | `raise` (the default), `log` or `record`       |
| `folder`        | `KVSCHED_FP_SHADOW_FOLDER` | where reports of differences go                |

The first of the three that says something counts. In `additional_config` the options stand under the key
`kvsched_fp`, by the names of the constructor: `{"kvsched_fp": {"on_difference": "log"}}`. A recorder has
`trace` alone, and needs it.

The engines of a data-parallel group share their configuration, but no file: all but the first have their
number in the name of the trace, as in `trace-1.jsonl`.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from kvsched_fp.errors import InvalidConfig

CHOICES = ("raise", "log", "record")
"""What may be done about a difference."""
KEY = "kvsched_fp"
"""Under which key of `additional_config` the options stand."""
VARIABLES = {
    "trace": "KVSCHED_FP_TRACE",
    "on_difference": "KVSCHED_FP_SHADOW",
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


def choose_shadow_options(given: Mapping[str, Any], vllm_config: Any) -> ShadowOptions:
    """Choose what a shadow does. Raises `InvalidConfig` for an option that is none."""
    chosen = _choose(VARIABLES, given, vllm_config.additional_config)
    on_difference = chosen["on_difference"] or "raise"
    if on_difference not in CHOICES:
        raise InvalidConfig("on_difference", on_difference, " or ".join(map(repr, CHOICES)))
    folder = chosen["folder"] or Path(tempfile.gettempdir()) / "kvsched-fp-shadow"
    return ShadowOptions(on_difference, _own_path(chosen["trace"], vllm_config), Path(folder))


def choose_trace(given: Mapping[str, Any], vllm_config: Any) -> Path:
    """Choose where a recorder writes. Raises `InvalidConfig` where nobody says it."""
    path = _own_path(_choose(["trace"], given, vllm_config.additional_config)["trace"], vllm_config)
    if path is None:
        raise InvalidConfig("trace", None, f"a file to write, as in {VARIABLES['trace']}=FILE")
    return path


def _choose(names: Iterable[str], given: Mapping[str, Any], additional_config: object) -> dict[str, Any]:
    """Choose each option from the first source that has it."""
    written = additional_config.get(KEY, {}) if isinstance(additional_config, Mapping) else {}
    if not isinstance(written, Mapping) or not written.keys() <= set(names):
        raise InvalidConfig(f"additional_config[{KEY!r}]", written, f"the keys {', '.join(names)}")
    return {
        name: given.get(name) or written.get(name) or os.environ.get(VARIABLES[name]) or None
        for name in names
    }


def _own_path(path: Path | str | None, vllm_config: Any) -> Path | None:
    """Give the file of this engine."""
    if path is None:
        return None
    index = vllm_config.parallel_config.data_parallel_index
    path = Path(path)
    return path if index == 0 else path.with_name(f"{path.stem}-{index}{path.suffix}")
