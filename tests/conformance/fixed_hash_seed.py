"""A fixed hash seed for a command: the order of a set is part of a history (`set_order.py`)."""

import importlib.util
import os
import sys


def fix_hash_seed(module: str) -> None:
    """Start the command `python -m module` again under a fixed hash seed, unless it runs under it."""
    if importlib.util.find_spec("vllm") is not None and os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])
