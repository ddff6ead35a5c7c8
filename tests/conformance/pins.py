"""Which reference this suite is about: the SHA-256 of every upstream file that is modelled.

    python -m tests.conformance.pins           check the installed vLLM
    python -m tests.conformance.pins --write   take the installed one as the new reference

A changed file may still behave the same; but whether it does is for a person to find out, so the suite
refuses to run against it. Nothing here imports vLLM.
"""

import functools
import hashlib
import importlib.util
import json
import sys
from pathlib import Path

PINS = Path(__file__).with_name("pins.json")

MODELLED = (
    "v1/core/**/*.py",
    "v1/request.py",
    "v1/outputs.py",
    "v1/engine/__init__.py",
    "v1/metrics/stats.py",
    "v1/kv_cache_interface.py",
    "v1/spec_decode/metrics.py",
    "v1/structured_output/__init__.py",
    "v1/structured_output/backend_types.py",
    "v1/structured_output/request.py",
    "config/scheduler.py",
    "config/cache.py",
    "distributed/kv_events.py",
    "sampling_params.py",
)
"""The upstream files, relative to the package `vllm`."""


class PinError(Exception):
    """There is no reference, or another one than the pinned."""


@functools.cache
def find_reference() -> Path | None:
    """Give the folder of the installed package `vllm`, or None; without importing it."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def check_pins() -> None:
    """Raise `PinError` unless the pinned reference is installed."""
    folder = find_reference()
    if folder is None:
        raise PinError("the reference is not installed: see tests/conformance/reference-env.sh")
    pinned: dict[str, str] = json.loads(PINS.read_text())["sha256"]
    found = hash_files(folder)
    lines = [f"  {_verdict(pinned, found, name)}: {name}" for name in sorted(pinned.keys() | found.keys())]
    wrong = [line for line in lines if "as pinned" not in line]
    if wrong:
        raise PinError("the installed vLLM is not the pinned one:\n" + "\n".join(wrong))


def hash_files(folder: Path) -> dict[str, str]:
    """Give the SHA-256 of every modelled file below `folder`, by its relative name."""
    paths = sorted(path for pattern in MODELLED for path in folder.glob(pattern))
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths
    }


def _verdict(pinned: dict[str, str], found: dict[str, str], name: str) -> str:
    if name not in found:
        return "missing"
    if name not in pinned:
        return "not pinned"
    return "as pinned" if pinned[name] == found[name] else "changed"


def main() -> int:
    """Run the command."""
    folder = find_reference()
    if folder is not None and "--write" in sys.argv[1:]:
        version = next(folder.parent.glob("vllm-*.dist-info")).name.split("-")[1].removesuffix(".dist")
        PINS.write_text(json.dumps({"vllm": version, "sha256": hash_files(folder)}, indent=2) + "\n")
    try:
        check_pins()
    except PinError as error:
        print(error, file=sys.stderr)
        return 1
    print("the installed vLLM is the pinned one")
    return 0


if __name__ == "__main__":
    sys.exit(main())
