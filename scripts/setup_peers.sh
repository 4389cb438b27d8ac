#!/bin/sh
# Install the routers that the conformance suite is also pointed at, each into an environment of its own.
#
#   scripts/setup_peers.sh [FOLDER]        default .venv-peers; makes FOLDER/vllm-router and FOLDER/smg
#
# One environment for each: their dependencies need not agree. Versions are pinned, because the results that
# docs/conformance.md shows are results of these versions.

set -eu
folder=${1:-.venv-peers}
python=${PYTHON:-python3}

install() {
    name=$1
    shift
    if [ ! -x "$folder/$name/bin/python" ]; then
        "$python" -m venv "$folder/$name"
    fi
    "$folder/$name/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

install vllm-router vllm-router==0.1.17
install smg smg==1.13.0
