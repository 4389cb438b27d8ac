#!/bin/sh
# Make .venv-bench: this checkout, without development tools, under the interpreter that the data-plane benchmark
# measures.
#
#   BENCH_PYTHON=/path/to/python3 scripts/setup_bench_python.sh
#
# Builds of the same CPython differ: Debian's and those in the official images are compiled with profile-guided and
# link-time optimisation, those that version managers compile on a machine often are not, and run Python code a
# third slower. So the system's python3 is taken if it is new enough, else the one in PATH. Needs `make setup`.

set -eu
folder=.venv-bench
new_enough='import sys; sys.exit(sys.version_info < (3, 11))'
python=${BENCH_PYTHON:-/usr/bin/python3}
if ! "$python" -c "$new_enough" 2>/dev/null; then
    if [ -n "${BENCH_PYTHON:-}" ]; then
        echo "setup_bench_python: $python is no Python 3.11 or newer" >&2
        exit 2
    fi
    python=$(command -v python3)
fi
if [ ! -x "$folder/bin/python" ]; then
    "$python" -m venv --without-pip "$folder" # Debian's has no pip of its own to put there
fi
.venv/bin/python -m pip --python "$folder/bin/python" install --quiet --disable-pip-version-check \
    --constraint constraints.txt --editable .
