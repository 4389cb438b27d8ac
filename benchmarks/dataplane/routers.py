"""The routers under test, each started as its own documentation recommends for production.

All of them log warnings only, check their backends' health at their own default intervals, and may start as
many threads as they like; all of these share one core.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.dataplane.wire import MODEL

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".venv-peers"
OWN_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
TOOLS = ROOT / ".tools" / "bin"
OWN = "prefix_router"
DIRECT = "direct"
"""No router at all: the load goes straight to the backend."""


class MissingError(Exception):
    """A program is not installed. The text says how to install it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a router listens, what it stands in front of, and a folder of its own."""

    port: int
    admin_port: int
    backends: tuple[str, ...]
    folder: Path


@dataclass(frozen=True, slots=True)
class Router:
    """One router. texts: it writes events anew, so only what they say can be checked."""

    name: str
    title: str
    command: Callable[[Place], list[str]]
    version: Callable[[], str]
    texts: bool = False


def tool(name: str) -> str:
    """Return the path of a program that is not written in Python. Raises MissingError."""
    found = shutil.which(name, path=f"{TOOLS}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        raise MissingError(f"{name} is missing: run scripts/install_tools.sh bench")
    return found


def _peer(environment: str, program: str) -> str:
    path = PEERS / environment / "bin" / program
    if not path.exists():
        raise MissingError(f"{path} is missing: run scripts/setup_peers.sh")
    return str(path)


def _package_version(environment: str, package: str) -> Callable[[], str]:
    def version() -> str:
        code = f"from importlib.metadata import version; print(version({package!r}))"
        return _output([_peer(environment, "python"), "-c", code])

    return version


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip()


def _own_python() -> str:
    if not OWN_PYTHON.exists():
        raise MissingError(f"{OWN_PYTHON} is missing: run scripts/setup_bench_python.sh")
    return str(OWN_PYTHON)


def own_command(place: Place, workers: int = 1, python: str = "") -> list[str]:
    """Return the command of this checkout: all features as they are by default."""
    command = [python or _own_python(), "-m", "prefix_router", "serve", "--host", "127.0.0.1"]
    command += ["--port", str(place.port), "--admin-port", str(place.admin_port), "--log-level", "warning"]
    command += ["--workers", str(workers)]
    return [*command, *(part for url in place.backends for part in ("--backend", url))]


def with_workers(workers: int) -> Router:
    """Return this checkout's router with so many workers, as a router of its own."""

    def command(place: Place) -> list[str]:
        return own_command(place, workers)

    return Router(f"workers-{workers}", f"prefix_router --workers {workers}", command, _own_version)


def _own_version() -> str:
    return _output([_own_python(), "-m", "prefix_router", "--version"]).rpartition(" ")[2]


def _own_command_here(place: Place) -> list[str]:
    return own_command(place, python=sys.executable)


def interpreters() -> tuple[str, str, float]:
    """Return the versions of the interpreter that is measured and of the one here, and how much faster it is.

    The last is the ratio of the times of a loop that calls, allocates and looks up, the best of several.
    """
    loop = (
        "import sys,timeit\nclass A:\n  __slots__=('x',)\n  def __init__(s,x): s.x=x\n"
        "  def f(s): return s.x\n"
        "t=min(timeit.repeat(lambda: [A(i).f() for i in range(1000)],number=100,repeat=7))\n"
        "print(sys.version.split()[0],t)"
    )
    found = [_output([python, "-c", loop]).split() for python in (_own_python(), sys.executable)]
    return found[0][0], found[1][0], float(found[1][1]) / float(found[0][1])


def _vllm_router(policy: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        arguments = ["--host", "127.0.0.1", "--port", str(place.port), "--policy", policy]
        arguments += ["--prometheus-port", str(place.admin_port), "--log-level", "warning"]
        arguments += ["--worker-startup-check-interval", "1", "--max-concurrent-requests", "100000"]
        return [_peer("vllm-router", "vllm-router"), *arguments, "--worker-urls", *place.backends]

    return command


def _smg(policy: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        arguments = ["launch", "--backend", "vllm", "--host", "127.0.0.1", "--port", str(place.port)]
        arguments += ["--policy", policy, "--prometheus-port", str(place.admin_port), "--log-level", "warn"]
        arguments += ["--worker-startup-check-interval", "1", "--max-concurrent-requests", "100000"]
        arguments += ["--disable-tokenizer-autoload"]
        return [_peer("smg", "smg"), *arguments, "--worker-urls", *place.backends]

    return command


def _litellm(place: Place) -> list[str]:
    model: dict[str, object] = {"model": f"openai/{MODEL}", "api_key": "none"}
    model |= {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6}  # it looks long for missing prices
    models = [
        {"model_name": MODEL, "litellm_params": {**model, "api_base": f"{url}/v1"}} for url in place.backends
    ]
    path = place.folder / "litellm.yaml"
    open_to_all = {"dangerously_permit_weak_or_unset_master_key": True}
    path.write_text(yaml.safe_dump({"model_list": models, "general_settings": open_to_all}))
    arguments = [
        "--config",
        str(path),
        "--host",
        "127.0.0.1",
        "--port",
        str(place.port),
        "--num_workers",
        "1",
    ]
    settings = ["LITELLM_LOG=ERROR", "LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_TELEMETRY=False"]
    return ["env", *settings, _peer("litellm", "litellm"), *arguments]


def _nginx(place: Place) -> list[str]:
    servers = "\n".join(f"    server {url.removeprefix('http://')};" for url in place.backends)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "\n".join(f"  {kind}_temp_path {place.folder}/{kind};" for kind in kinds)
    path = place.folder / "nginx.conf"
    path.write_text(_NGINX.format(folder=place.folder, servers=servers, folders=folders, port=place.port))
    return [tool("nginx"), "-c", str(path), "-p", str(place.folder), "-e", "stderr"]


_NGINX = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 16384; }}
http {{
  access_log off;
{folders}
  keepalive_requests 100000000;
  client_max_body_size 0;
  client_body_buffer_size 1m;
  upstream backends {{
{servers}
    keepalive 1024;
    keepalive_requests 100000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://backends;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


def _nginx_version() -> str:
    return _output([tool("nginx"), "-v"]).rpartition("/")[2]


_VLLM_VERSION = _package_version("vllm-router", "vllm-router")
_SMG_VERSION = _package_version("smg", "smg")

ROUTERS = (
    Router(OWN, "prefix_router", own_command, _own_version),
    Router("own-plain", "prefix_router, plain Python build", _own_command_here, _own_version),
    Router(
        "vllm-consistent-hash", "vllm-router consistent_hash", _vllm_router("consistent_hash"), _VLLM_VERSION
    ),
    Router("vllm-cache-aware", "vllm-router cache_aware", _vllm_router("cache_aware"), _VLLM_VERSION),
    Router("smg-prefix-hash", "smg prefix_hash", _smg("prefix_hash"), _SMG_VERSION),
    Router("smg-cache-aware", "smg cache_aware", _smg("cache_aware"), _SMG_VERSION),
    Router("litellm", "LiteLLM proxy", _litellm, _package_version("litellm", "litellm"), texts=True),
    Router("nginx", "nginx, round robin", _nginx, _nginx_version),
)
