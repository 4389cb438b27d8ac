#!/usr/bin/env bash
# Makes a separate environment with the clients that people use, for `make test-clients`.
#
#   scripts/setup_clients.sh DIRECTORY        PYTHON=python3.12 scripts/setup_clients.sh DIRECTORY
#
# Two minutes and 500 MB. Run again it does nothing, until this file, the pinned versions beside it or the
# Python changes: a stamp, written last, says what is inside. The environment is not the project's own, because
# what clients need must not decide what the router is tested with.
set -euo pipefail

readonly CLIENTS="anthropic langchain-openai litellm openai"

say() { printf 'setup_clients: %s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

[[ $# -eq 1 ]] || die "usage: $0 DIRECTORY"
readonly target=$1
readonly python=${PYTHON:-python3}
constraints="$(dirname -- "$0")/clients-constraints.txt"
python_version=$("$python" -c 'import sys; print(*sys.version_info[:3], sep=".")') || die "'$python' does not run"
wanted_stamp="Python $python_version, recipe $(cat -- "$0" "$constraints" | cksum | cut -d' ' -f1)"
readonly constraints python_version wanted_stamp
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

say "making $target on Python $python_version (two minutes)"
"$python" -m venv "$target" || die "'$python -m venv' failed; on Debian install the package python3-venv"
# shellcheck disable=SC2086 # a list of names
"$target/bin/python" -m pip --disable-pip-version-check install -qq --constraint "$constraints" $CLIENTS ||
  die "cannot install $CLIENTS"

printf '%s\n' "$wanted_stamp" >"$stamp"
say "ready: $(du -sm -- "$target" | cut -f1) MiB in $target"
