"""The JSON Schema in the specification, and what it allows."""

import json
from pathlib import Path

import pytest

from kvsched_fp.trace.schema import trace_schema
from tests.traces.write_schema import SCHEMA, render_schema
from tests.unit.trace.helpers import read_values, write_trace


def test_the_file_is_what_the_codecs_say() -> None:
    """Else: python -m tests.traces.write_schema."""
    assert render_schema() == SCHEMA.read_text()


def test_every_reference_leads_somewhere() -> None:
    """A part that is named is there."""
    text = json.dumps(trace_schema())
    names = {part.split('"')[0] for part in text.split("#/$defs/")[1:]}

    assert names <= trace_schema()["$defs"].keys()
    assert {"header", "record_schedule", "record_update", "integers"} <= names


def test_a_trace_is_valid(tmp_path: Path) -> None:
    """Every line of a trace keeps to the schema, and a changed one does not."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with the [dev] extra")
    validator = jsonschema.Draft202012Validator(trace_schema())
    values = read_values(write_trace(tmp_path / "t.jsonl"))

    assert [] == [value for value in values if not validator.is_valid(value)]
    assert not validator.is_valid({**values[1], "more": 1})
    assert not validator.is_valid({"event": {"kind": "explode"}})
