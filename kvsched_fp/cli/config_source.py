"""The configuration that a command runs with: a base, a file over it, single fields over that."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InvalidConfig
from kvsched_fp.trace.codec import GROUPS, HASHER
from kvsched_fp.trace.values import Codec, CodecError

_ALLOWED_FILE = "a TOML file (.toml) or a JSON file (.json) of SchedulerConfig fields"

_STRUCTURED: Mapping[str, Codec[Any]] = {"kv_cache_groups": GROUPS, "block_hasher": HASHER}
"""Fields that are not plain values; a file holds them as a trace does."""


def read_config(path: Path | None, assignments: Iterable[str], base: SchedulerConfig) -> SchedulerConfig:
    """Make the configuration: `base`, or the file at `path` instead, with `KEY=VALUE` assignments on top.

    Raises `InvalidConfig` for a file that cannot be read, an unknown key, or a value or a combination of
    values that is not allowed.
    """
    assigned = dict(parse_assignment(text) for text in assignments)
    if path is None:
        values = _decode_structured(assigned)
        return SchedulerConfig.from_mapping({**_fields_of(base, values), **values})
    in_file = read_config_file(path)
    try:
        return SchedulerConfig.from_mapping(_decode_structured({**in_file, **assigned}))
    except InvalidConfig as error:
        if any(name in error.field for name in assigned):
            raise
        raise InvalidConfig(f"{path}: {error.field}", error.value, error.allowed) from None


def _decode_structured(values: dict[str, Any]) -> dict[str, Any]:
    """Decode the fields that are not plain values."""
    return {
        name: _decode(name, _STRUCTURED[name], value) if name in _STRUCTURED else value
        for name, value in values.items()
    }


def parse_assignment(text: str) -> tuple[str, Any]:
    """Read `KEY=VALUE`. The value is JSON (a number, true, false, null, a list) or else a text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidConfig("--set", text, "KEY=VALUE")
    try:
        return key.strip(), json.loads(value)
    except (ValueError, RecursionError):
        return key.strip(), value.strip()


def read_config_file(path: Path) -> dict[str, Any]:
    """Read the plain values in a TOML or JSON file."""
    field = f"config file {str(path)!r}"
    if path.suffix.lower() not in {".toml", ".json"} and not path.is_dir():
        raise InvalidConfig(field, path.suffix, _ALLOWED_FILE)
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidConfig(field, reason, _ALLOWED_FILE) from None
    try:
        text = content.decode("utf-8")
        values = (
            json.loads(text, object_pairs_hook=_once)
            if path.suffix.lower() == ".json"
            else tomllib.loads(text)
        )
    except (ValueError, RecursionError) as error:  # syntax errors, and bytes that are not UTF-8
        raise InvalidConfig(field, content, f"well-formed TOML or JSON ({error})") from None
    if not isinstance(values, dict):
        raise InvalidConfig(field, values, "an object of SchedulerConfig fields")
    return values


def _decode(name: str, codec: Codec[Any], value: Any) -> Any:
    try:
        return codec.decode(value, name)
    except CodecError as error:
        raise InvalidConfig(error.field, error.value, error.allowed) from None


def _fields_of(base: SchedulerConfig, values: Mapping[str, Any]) -> dict[str, Any]:
    """Give the fields of `base`, without what follows from a field that is changed."""
    fields = {field.name: getattr(base, field.name) for field in attrs.fields(SchedulerConfig)}
    if "block_size" in values:
        del fields["kv_cache_groups"]  # they have the block size in them
    return fields


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object, and refuse a key that stands twice."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands twice")
        found[key] = value
    return found
