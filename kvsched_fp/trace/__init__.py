"""Portable traces: what happened to a scheduler and what came of it, as JSON Lines.

`values.py` has the codecs of plain values, `codec.py` those of the configuration, the events and the
outputs, and `writer.py` writes a file.
"""

from kvsched_fp.trace.codec import (
    decode_config,
    decode_emitted,
    decode_event,
    decode_output,
    encode_config,
    encode_emitted,
    encode_event,
    encode_header,
    encode_output,
    encode_record,
)
from kvsched_fp.trace.values import CodecError
from kvsched_fp.trace.writer import TraceWriter, open_trace

__all__ = [
    "CodecError",
    "TraceWriter",
    "decode_config",
    "decode_emitted",
    "decode_event",
    "decode_output",
    "encode_config",
    "encode_emitted",
    "encode_event",
    "encode_header",
    "encode_output",
    "encode_record",
    "open_trace",
]
