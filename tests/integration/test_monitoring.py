"""Every expression that we publish, asked of a real Prometheus that reads a router in a rough hour.

Two engines work, a third one joins them, one breaks off its answers and fails, one is not there; requests
wait in line; the configuration is reloaded, once with a mistake. So nearly every query has something to
show: one that has nothing is misspelt, unless it is on the list here, with the reason.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from prefix_router.app import Router
from prefix_router.routing.fleet import BackendName, BackendState
from prefix_router.settings.load import load
from prefix_router.simulate.server import SimulatedVllm
from prefix_router.simulate.settings import StandInSettings
from tests.support import alerts, dashboard
from tests.support.prometheus_api import PrometheusApi
from tests.support.prometheus_process import prometheus_process
from tests.support.router import QUIET, admin, ask, chat, until
from tests.support.scripted_backend import Conversation, ScriptedBackend
from tests.support.tools import ROOT, tool

DOCUMENTS = ("metrics.md", "runbook.md")

PAGES = ("fleet", "routing", "scale-out")

NOTHING_TO_SHOW = {
    **{f"{page}: Router restarts": "the router does not restart" for page in PAGES},
    **{f"{page}: Backends back": "none comes back that Prometheus saw go" for page in PAGES},
    "routing: Unevenness": "nothing is in flight when it is asked",
    "routing: Hot homes": "strategy adaptive sends nobody away from a home at its threshold",
    'prefix_router_certificate_expiry_timestamp_seconds{use="listen.tls"}': "no TLS here",
    "prefix_router_certificate_expiry_timestamp_seconds": "no TLS here",
}
"""Panels and selectors that are rightly empty, and why."""


async def misbehaves(conversation: Conversation) -> None:
    """A backend that is healthy to probes, and breaks off or fails whatever it is asked to do."""
    while (request := await conversation.request()) is not None:
        if request.method == "GET":
            await conversation.respond()
        elif conversation.number % 2:
            await conversation.respond(500, b'{"error": {"message": "out of memory"}}')
        else:
            await conversation.start_stream()
            await conversation.chunk(b'data: {"choices": []}\n\n')
            conversation.reset()
            return


@asynccontextmanager
async def rough_fleet(folder: Path) -> AsyncIterator[tuple[Router, Path]]:
    """A router over five backends from a file, its own file beside it; one of them has just joined."""
    fast = StandInSettings(time_scale=20.0)
    async with (
        SimulatedVllm(fast) as one,
        SimulatedVllm(fast) as two,
        SimulatedVllm(fast) as late,
        ScriptedBackend(misbehaves) as bad,
    ):
        urls = {"one": one.url, "two": two.url, "bad": bad.url, "gone": "http://127.0.0.1:1"}
        found, file = folder / "backends.json", folder / "router.yaml"
        backends = [{"name": name, "url": url} for name, url in urls.items()]
        found.write_text(json.dumps(backends))
        write(file, found)
        router = Router(await asyncio.to_thread(load, file), lambda: load(file))
        await router.start()
        try:
            await until(lambda: router.store.fleet.members and router.not_ready() is None)
            found.write_text(json.dumps([*backends, {"name": "late", "url": late.url}]))
            await until(lambda: len(router.store.fleet.members) == 5)
            await until(lambda: router.store.fleet.members[-1].state is BackendState.HEALTHY)
            yield router, file
        finally:
            await router.stop(grace_seconds=0)


def write(file: Path, found: Path, threshold: int = 64) -> None:
    sections: dict[str, Any] = {name: dict(section) for name, section in QUIET.items()}
    sections |= {
        "engine_metrics": {"interval_seconds": 1},
        "health": {"interval_seconds": 1, "cooldown_seconds": 0.1, "recovery_successes": 1},
        "discovery": {"file": {"path": str(found)}, "settle_seconds": 0.01},
        "routing": {"strategy": "adaptive", "concurrency_threshold": threshold},
        "joining": {"warm_up": "generate"},
        "limits": {"max_in_flight_per_backend": 2},
        "queue": {"max_waiting": 8},
    }
    file.write_text(json.dumps(sections))


async def traffic(router: Router) -> None:
    """What makes every metric move: streams, repeats, a crowd, a model that nobody has, nonsense."""
    usage = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 4}
    for number in range(12):
        text = f"Document {number % 6}. " + "All that follows is shared by who asks about it. " * 60
        await ask(router, chat(f"{text} Question {number}?", model="simulated-model", **usage))
    crowd = [ask(router, chat(f"hello {n}", model="simulated-model", max_tokens=50)) for n in range(24)]
    await asyncio.gather(*crowd)
    assert (await ask(router, chat(model="nobody-has-it"))).status == 404


def has_failed(router: Router) -> bool:
    """Whether a client has got an error status of the bad backend."""
    tally = router.metrics.backends[BackendName("bad")]
    return any(status_class == "5xx" for _, status_class in tally.requests)


async def settled(prometheus: PrometheusApi, router: Router) -> None:
    """Wait until Prometheus has read all that is counted by now."""
    text = (await admin(router, "/metrics"))[1].decode()
    counted = sum(
        float(value) for value in re.findall(r"^prefix_router_requests_total\{.*\} (\S+)", text, re.MULTILINE)
    )
    await in_thread(prometheus.wait_until)(f"sum(prefix_router_requests_total) >= {counted}")


def in_thread(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    async def call(*arguments: Any) -> Any:
        return await asyncio.to_thread(function, *arguments)

    return call


def in_documents() -> set[str]:
    """The expressions and names of metrics between backticks."""
    texts = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in DOCUMENTS]
    spans = [span.replace("\\|", "|") for text in texts for span in re.findall(r"`([^`\n]+)`", text)]
    return {span for span in spans if re.search(r"\bprefix_router_\w+[a-z]", span)}


def selectors_of(expression: str) -> set[str]:
    """The parts of an alert that select series."""
    return set(re.findall(r"\b(?:prefix_router_\w+|up(?=\{))(?:\{[^}]*\})?", expression))


async def unanswered(prometheus: PrometheusApi) -> set[str]:
    """What gives no data at all, of panels (all queries of one together), alerts and documents."""
    query = in_thread(prometheus.query)
    panels: dict[str, list[float]] = {}
    for published in dashboard.queries():
        values = panels.setdefault(f"{published.dashboard}: {published.panel}", [])
        values += await query(published.executable)
    empty = {panel for panel, values in panels.items() if not values}
    parts = set().union(*(selectors_of(rule["expr"]) for rule in alerts.load()))
    assert parts
    assert in_documents()
    for expression in parts | in_documents():
        if not await query(expression):
            empty.add(expression)
    return empty


async def test_every_published_expression_has_an_answer(tmp_path: Path) -> None:
    async with (
        rough_fleet(tmp_path) as (router, file),
        prometheus_process(tmp_path, f"127.0.0.1:{router.admin_port}", alerts.PATH) as prometheus,
    ):
        for port in range(2):
            await traffic(router)
            for _ in range(10):
                # Who gets what depends on who answers first: on with it until the bad one was asked enough.
                if has_failed(router):
                    break
                await traffic(router)
            await settled(prometheus, router)
            write(file, tmp_path / "backends.json", threshold=63 - port)
            assert (await admin(router, "/reload", b""))[0] == 200
        file.write_text("routing: {strategy: guesswork}")
        assert (await admin(router, "/reload", b""))[0] == 422
        bad = router.metrics.backends
        await until(lambda: any(tally.transitions[BackendState.EJECTED] for tally in bad.values()))
        await in_thread(prometheus.wait_until)(
            "min(prefix_router_config_last_reload_success) == 0 and sum(up) == 1"
        )
        await traffic(router)
        await settled(prometheus, router)

        assert await unanswered(prometheus) <= set(NOTHING_TO_SHOW)
        assert set((await in_thread(prometheus.rules)()).values()) == {""}
        scrape = (await admin(router, "/metrics"))[1]
    linted = await asyncio.to_thread(
        subprocess.run, [tool("promtool"), "check", "metrics"], input=scrape, capture_output=True, check=False
    )
    assert linted.returncode == 0, linted.stderr.decode() + linted.stdout.decode()
