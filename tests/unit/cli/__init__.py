"""Unit tests of `kvsched_fp/cli/`."""
