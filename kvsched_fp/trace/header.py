"""The first line of a trace: the format, the reference and the configuration.

{"format": "kvsched-fp-trace", "version": 1, "reference": "vllm 0.33.0",
 "source_sha256": {"v1/core/sched/scheduler.py": "...", ...}, "config": {...}}
"""

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import MISSING
from kvsched_fp.trace.codec import CONFIG, encode_config
from kvsched_fp.trace.values import TEXT, Codec, CodecError, object_schema, require_keys

FORMAT = "kvsched-fp-trace"
"""What the header calls the format."""
VERSION = 1
"""The version of the format."""
REFERENCE = "vllm 0.33.0"
"""Whose behaviour a trace records."""

_KEYS = ("format", "version", "reference", "source_sha256", "config")


@attrs.frozen
class Header:
    """What a trace says about itself."""

    config: SchedulerConfig
    """The configuration of the scheduler."""
    source_sha256: Mapping[str, str]
    """The SHA-256 of the reference's source files, by file; empty where they are not known."""


def encode_header(
    config: SchedulerConfig, source_sha256: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Write the first line of a trace.

    `source_sha256` are the hashes of the sources that made the trace; the pinned ones if not given.
    Raises `InvalidConfig` for a block hasher or group that has no name in a trace.
    """
    hashes = pinned_sources() if source_sha256 is None else source_sha256
    return {
        "format": FORMAT,
        "version": VERSION,
        "reference": REFERENCE,
        "source_sha256": dict(sorted(hashes.items())),
        "config": encode_config(config),
    }


def decode_header(values: dict[str, Any]) -> Header:
    """Read the first line of a trace. Raises `CodecError`."""
    for key, expected in (("format", FORMAT), ("version", VERSION), ("reference", REFERENCE)):
        value = values.get(key, MISSING)
        if type(value) is not type(expected) or value != expected:
            raise CodecError(key, value, repr(expected))
    require_keys(values, "header", _KEYS)
    return Header(CONFIG.decode(values["config"], "config"), _decode_hashes(values["source_sha256"]))


def _decode_hashes(value: Any) -> dict[str, str]:
    if type(value) is not dict:
        raise CodecError("source_sha256", value, "an object: file name to SHA-256")
    return {name: TEXT.decode(digest, f"source_sha256.{name}") for name, digest in value.items()}


def count_other_sources(header: Header) -> int:
    """Count the source files that are not the pinned ones; a trace that names none has none."""
    if not header.source_sha256:
        return 0
    pinned = pinned_sources()
    names = pinned.keys() | header.source_sha256.keys()
    return sum(pinned.get(name) != header.source_sha256.get(name) for name in names)


@functools.cache
def pinned_sources() -> Mapping[str, str]:
    """Give the SHA-256 of the source files that this package re-implements, by file."""
    text = (resources.files("kvsched_fp.trace") / "data" / "reference.json").read_text("utf-8")
    hashes: dict[str, str] = json.loads(text)["sha256"]
    return hashes


def header_schema() -> dict[str, Any]:
    """Describe the header as JSON Schema."""
    config: Codec[SchedulerConfig] = CONFIG
    return object_schema(
        {
            "format": {"const": FORMAT},
            "version": {"const": VERSION},
            "reference": {"const": REFERENCE},
            "source_sha256": {"type": "object", "additionalProperties": {"type": "string"}},
            "config": config.schema,
        }
    )
