#!/bin/sh
# Install the routers that the conformance suite and the data-plane benchmark are also pointed at, each into an
# environment of its own.
#
#   scripts/setup_peers.sh [FOLDER [NAME ...]]
#
# FOLDER is .venv-peers by default; in it comes a folder for each NAME: vllm-router, smg, litellm (all by default).
#
# One environment for each: their dependencies need not agree. Versions are pinned, because the results that
# docs/conformance.md and benchmarks/results/dataplane.md show are results of these versions.

set -eu
folder=${1:-.venv-peers}
[ $# -eq 0 ] || shift
names=${*:-vllm-router smg litellm}
python=${PYTHON:-python3}
pip_python=.venv/bin/python # installs into environments that have no pip; there after `make setup`

install() {
    name=$1
    shift
    if [ ! -x "$folder/$name/bin/python" ]; then
        "$python" -m venv --without-pip "$folder/$name"
    fi
    "$pip_python" -m pip --python "$folder/$name/bin/python" install --quiet --disable-pip-version-check "$@"
}

for name in $names; do
    case $name in
        vllm-router) install vllm-router vllm-router==0.1.17 ;;
        smg) install smg smg==1.13.0 ;;
        litellm) install litellm 'litellm[proxy]==1.105.0' httptools==0.9.0 ;; # its server's faster parser
        *)
            echo "setup_peers: '$name' is none of vllm-router, smg, litellm" >&2
            exit 2
            ;;
    esac
done
