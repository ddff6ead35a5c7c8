"""`python -m kvsched_fp.cli` is the command `kvsched-fp`."""

from kvsched_fp.cli import main

main(prog_name="kvsched-fp")
