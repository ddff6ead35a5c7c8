"""The format of a trace as JSON Schema, made from the codecs: `specs/trace.schema.json` is this."""

from collections.abc import Mapping
from typing import Any

from kvsched_fp.trace.codec import EMITTED, EVENT, OUTPUT
from kvsched_fp.trace.header import header_schema
from kvsched_fp.trace.values import BOOLEAN, INTEGERS, NUMBER, SORTED_TEXTS, Schema, object_schema

_OUTCOMES: Mapping[str, tuple[str, Schema]] = {
    "schedule": ("output", OUTPUT.schema),
    "update": ("emitted", EMITTED.schema),
    "reset_prefix_cache": ("done", BOOLEAN.schema),
}
"""Under which key the record of an event has what came of it; no other kind has anything."""

_NAMED: Mapping[str, Schema] = {
    "integers": {
        **INTEGERS.schema,
        "description": "Token or block ids. [first, count] stands for a run of consecutive integers.",
    },
    "number": {**NUMBER.schema, "description": "JSON has no infinities, so they are texts."},
    "sorted_ids": {
        **SORTED_TEXTS.schema,
        "description": "Ids whose order means nothing, in ascending order of their code points.",
    },
}
"""Parts that occur often, by the name that they get."""


def trace_schema() -> Schema:
    """Describe one line of a trace: the header, which is the first, or a record."""
    records = {
        f"record_{event['properties']['kind']['const']}": _share(_record(event))
        for event in EVENT.schema["anyOf"]
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "One line of a kvsched-fp trace",
        "description": "The first line is a header, every other one a record. See trace-format.md.",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in ("header", *records)],
        "$defs": {"header": _share(header_schema()), **records, **_NAMED},
    }


def _record(event: Schema) -> Schema:
    kind = event["properties"]["kind"]["const"]
    key, outcome = _OUTCOMES.get(kind, ("", {}))
    return object_schema({"event": event, **({key: outcome} if key else {})})


def _share(schema: Any) -> Any:
    """Put references in the place of the parts that have a name."""
    for name, named in _NAMED.items():
        if isinstance(schema, dict) and {**schema, "description": named["description"]} == named:
            return {"$ref": f"#/$defs/{name}"}
    if isinstance(schema, dict):
        return {key: _share(value) for key, value in schema.items()}
    return [_share(item) for item in schema] if isinstance(schema, list) else schema
