"""Unit tests of `kvsched_fp/workloads/`."""
