"""Portable traces: what happened to a scheduler and what came of it, as JSON Lines.

    values < codec < header < writer       from values to text
    reader < replay < verdict              from text to values, and comparing with the machine
    difference, divergence                 the first difference, and why
    simpler, smaller < shrink              a small trace that still differs

`specs/trace-format.md` describes the format.
"""

from kvsched_fp.trace.bundled import bundled_traces
from kvsched_fp.trace.codec import (
    decode_config,
    decode_emitted,
    decode_event,
    decode_output,
    encode_config,
    encode_emitted,
    encode_event,
    encode_output,
    encode_record,
)
from kvsched_fp.trace.difference import Difference, first_difference
from kvsched_fp.trace.divergence import Divergence
from kvsched_fp.trace.header import Header, decode_header, encode_header
from kvsched_fp.trace.reader import TraceReader, TraceRecord, open_trace_reader
from kvsched_fp.trace.replay import Replayed, replay
from kvsched_fp.trace.values import CodecError
from kvsched_fp.trace.verdict import Verdict, check_trace
from kvsched_fp.trace.writer import TraceWriter, open_trace

__all__ = [
    "CodecError",
    "Difference",
    "Divergence",
    "Header",
    "Replayed",
    "TraceReader",
    "TraceRecord",
    "TraceWriter",
    "Verdict",
    "bundled_traces",
    "check_trace",
    "decode_config",
    "decode_emitted",
    "decode_event",
    "decode_header",
    "decode_output",
    "encode_config",
    "encode_emitted",
    "encode_event",
    "encode_header",
    "encode_output",
    "encode_record",
    "first_difference",
    "open_trace",
    "open_trace_reader",
    "replay",
]
