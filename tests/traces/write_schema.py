"""Write the JSON Schema of the trace format again: `python -m tests.traces.write_schema`."""

import json
from pathlib import Path

from kvsched_fp.trace.schema import trace_schema

SCHEMA = Path(__file__).parents[2] / "specs" / "trace.schema.json"


def render_schema() -> str:
    """Give the text of the file."""
    return json.dumps(trace_schema(), indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(render_schema())
