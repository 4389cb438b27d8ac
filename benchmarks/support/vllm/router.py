"""The router as its users run it: a process of its own in front of the replicas."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from openai import AsyncOpenAI

from benchmarks.support.vllm.managed_process import ManagedProcess, free_port
from benchmarks.support.vllm.replica import MODEL_NAME, Replica, scrape

STARTUP_BOUND_SECONDS = 60.0
REQUEST_TIMEOUT_SECONDS = 120.0

BACKEND_HEADER = "x-prefix-router-backend"
REASON_HEADER = "x-prefix-router-reason"


@dataclass(frozen=True, slots=True)
class Router:
    """Where a running router listens."""

    url: str
    admin_url: str

    def client(self) -> AsyncOpenAI:
        """Return an OpenAI client that hides no failure behind a retry of its own."""
        return AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key="unused", max_retries=0, timeout=REQUEST_TIMEOUT_SECONDS
        )

    async def token_counts(self, session: aiohttp.ClientSession) -> dict[str, tuple[int, int]]:
        """Return reason -> (prompt tokens, cached tokens), as the router's own `/metrics` export them."""
        counts: dict[str, tuple[int, int]] = {}
        for sample in await scrape(session, f"{self.admin_url}/metrics"):
            prompt, cached = counts.get(sample.labels.get("reason", ""), (0, 0))
            if sample.name == "prefix_router_prompt_tokens_total":
                counts[sample.labels["reason"]] = (prompt + int(sample.value), cached)
            elif sample.name == "prefix_router_cached_tokens_total":
                counts[sample.labels["reason"]] = (prompt, cached + int(sample.value))
        return {reason: pair for reason, pair in counts.items() if pair != (0, 0)}


StartRouter = Callable[[str], AbstractContextManager[Router]]
"""Starts a router with the named strategy."""


@contextmanager
def running_router(
    replicas: Sequence[Replica], strategy: str, log: Path, flags: Sequence[str] = ()
) -> Iterator[Router]:
    """Run a router with `strategy` in front of `replicas` until the block is left.

    flags: more of its command line. A configuration file that it names must list the replicas itself.
    """
    port, admin_port = free_port(), free_port()
    backends = [argument for replica in replicas for argument in ("--backend", replica.url)]
    command = [
        *(sys.executable, "-m", "prefix_router", "serve", "--strategy", strategy),
        *(() if "--config" in flags else backends),
        *("--host", "127.0.0.1", "--port", str(port), "--admin-port", str(admin_port), *flags),
    ]
    router = Router(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin_port}")
    process = ManagedProcess(f"router with {strategy} on port {port}", command, {}, log)
    try:
        process.wait_until(lambda: _knows_the_fleet(router, len(replicas)), STARTUP_BOUND_SECONDS)
        yield router
    finally:
        process.stop()


def _knows_the_fleet(router: Router, backend_count: int) -> bool:
    """Whether every backend has been probed and has said which models it serves."""
    try:
        with urllib.request.urlopen(f"{router.admin_url}/status", timeout=5) as response:
            backends: list[dict[str, Any]] = json.load(response)["backends"]
    except (urllib.error.URLError, OSError):
        return False
    return len(backends) == backend_count and all(
        backend["state"] == "healthy" and MODEL_NAME in (backend["models"] or ()) for backend in backends
    )
