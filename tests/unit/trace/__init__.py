"""Unit tests of `kvsched_fp/trace/`."""
