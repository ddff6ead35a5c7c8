"""The package of the bridges can be imported where vLLM is missing."""

import subprocess
import sys


def test_nothing_imports_vllm() -> None:
    """Importing `kvsched_fp.adapters` imports nothing of vLLM."""
    program = "import sys, kvsched_fp.adapters; print('vllm' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "False" == done.stdout.strip()
