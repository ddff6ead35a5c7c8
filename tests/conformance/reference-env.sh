#!/usr/bin/env bash
# Build an environment in which the conformance suite can run: vLLM 0.33.0's scheduler on a CPU, no
# accelerator and no weights, plus what this package and its tests depend on.
#
#     tests/conformance/reference-env.sh DIR      (DIR: a few GB; .reference-env is ignored by git)
#     DIR/bin/python -m tests.conformance.run
#
# DIR/ready is written last and holds a checksum of everything that DIR was made from. So a second run
# does nothing, a run after a change of the lists installs what changed, and an interrupted one leaves
# no `ready` behind and can simply be started again. PYTHON chooses the interpreter (3.11 or later).
set -euo pipefail

dir=${1:?usage: reference-env.sh DIR}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
host_python=${PYTHON:-python3}
vllm=0.33.0
torch=2.13.0

# What pyproject.toml says, for the package and for its tests. The package itself is not installed: it is
# found because the suite is started from the top of the repository.
ours=$("$host_python" - "$here/../../pyproject.toml" <<'PYTHON'
import sys, tomllib

with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)["project"]
print(*project["dependencies"], *project["optional-dependencies"]["testing"], sep="\n")
PYTHON
)

made_from=$(cat "${BASH_SOURCE[0]}" "$here/reference-requirements.txt" - <<<"$ours" | sha256sum)
if [[ -f $dir/ready && $(<"$dir/ready") == "$made_from" ]]; then
    exit 0
fi
rm -f "$dir/ready"

"$host_python" -m venv "$dir"
install() { "$dir/bin/pip" install --quiet --disable-pip-version-check "$@"; }

# torch first and alone, so that nothing else chooses its version. Where a package index offers a build
# for CPUs, pip's own settings (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL) select it.
install "torch==$torch"
install -r "$here/reference-requirements.txt" -r <(echo "$ours")

# Without its dependencies: they are the list of a GPU server (kernels, CUDA libraries, compilers, several
# more GB), and some have no build for a machine without one. The scheduler is pure Python and needs
# none of them; what it does import stands in reference-requirements.txt.
install --no-deps "vllm==$vllm"

# Proof that it works, before it is called ready.
VLLM_LOGGING_LEVEL=ERROR "$dir/bin/python" -c 'import vllm.v1.core.sched.scheduler, immutables, pytest'
echo "$made_from" > "$dir/ready.new"
mv "$dir/ready.new" "$dir/ready"
