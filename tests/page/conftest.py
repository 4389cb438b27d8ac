"""A browser, and a listener whose numbers a test makes up.

The browser is the system's Chromium: PREFIX_ROUTER_CHROMIUM, what `scripts/install_tools.sh page` linked, or
PATH. A page under test may ask nobody but its own listener, and may log no error: every test checks both.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, Page, async_playwright

from prefix_router.admin.control import Controls, Reply
from prefix_router.admin.guard import Access, Guard
from prefix_router.admin.listener import AdminSources, admin_application
from prefix_router.admin.page import PageSources
from prefix_router.admin.status import backend_document, status_document
from prefix_router.observe.events import BackendChanged, EngineSample, Outcome, RequestRecord
from prefix_router.observe.history import History
from prefix_router.observe.hot_keys import HotKeys
from prefix_router.observe.totals import Totals
from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import Backend, BackendName, BackendState, Fleet, InFlight, Member
from prefix_router.routing.ring import Ring

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "build" / "page"

Open = Callable[..., Any]


def chromium() -> str:
    """Where the browser is. Skips the test when there is none."""
    linked = ROOT / ".tools" / "bin" / "chromium"
    found = os.environ.get("PREFIX_ROUTER_CHROMIUM") or (
        str(linked) if linked.exists() else shutil.which("chromium")
    )
    if found is None:
        pytest.skip("needs Chromium: scripts/install_tools.sh page")
    return found


class Desk:
    """A listener with the router's own parts behind it, fed by hand."""

    def __init__(self, count: int, *, token_sha256: str | None = None) -> None:
        self.reply: Reply = Reply(web.HTTPOk.status_code, {"applied": [], "needs_restart": []})  # type: ignore[arg-type]
        self.explained: list[tuple[bytes, str | None]] = []
        self.explanation: dict[str, Any] = {}
        self.now = time.monotonic()
        self.totals, self.history = Totals(), History(lambda: self.now)
        self.keys = HotKeys(lambda: self.now)
        self.set_fleet(
            [Backend(BackendName(f"gpu-{at:02d}"), f"http://10.0.0.{at}:8000") for at in range(count)]
        )
        self.server = TestServer(
            admin_application(
                self._sources(), Guard(Access.of(token_sha256, []), time.monotonic, lambda _: None)
            )
        )

    def set_fleet(self, backends: list[Backend]) -> None:
        ring = Ring({backend.name: backend.weight for backend in backends}, 20)
        members = [
            Member(backend, BackendState.HEALTHY, InFlight(), frozenset({"llama-3.1-70b"}))
            for backend in backends
        ]
        self.fleet = Fleet(tuple(members), ring)
        for part in (self.totals, self.history, self.keys):
            part.set_backends([backend.name for backend in backends])

    def change(self, name: str, *, state: BackendState | None = None, draining: bool | None = None) -> None:
        members = []
        for member in self.fleet.members:
            if member.name == name:
                after = member.state if state is None else state
                if state is not None:
                    self.history.backend_changed(
                        BackendChanged(member.name, member.state, after, "connection refused")
                    )
                drained = member.draining if draining is None else draining
                member = Member(member.backend, after, member.in_flight, member.models, drained)
            members.append(member)
        self.fleet = Fleet(tuple(members), self.fleet.ring)

    def live_through(self, hours: float, requests_per_slot: int = 60) -> None:
        """Let traffic of so many hours happen, ending now."""
        random, end = Random(3), self.now
        names = [member.name for member in self.fleet.members if member.state is BackendState.HEALTHY]
        slots = int(hours * 360)
        for at in range(slots):
            self.now = end - 10.0 * (slots - 1 - at)
            busy = 1 + 0.5 * (at % 90) / 90
            for _ in range(int(requests_per_slot * busy)):
                self._finish(random, names)
        for member in self.fleet.members:
            member.in_flight.count = random.randrange(70)
            self.totals.engine_sampled(
                EngineSample(member.name, random.randrange(40), random.randrange(3), random.random(), 100, 71)
            )
        self.now = end

    def _finish(self, random: Random, names: list[BackendName]) -> None:
        key = min(int(random.paretovariate(0.5)), 500)
        home, roll = names[key % len(names)], random.random()
        reason = Reason.AFFINITY if roll < 0.86 else Reason.OVERFLOW if roll < 0.95 else Reason.KEYLESS
        backend = home if reason is Reason.AFFINITY else random.choice(names)
        lost = random.random() < 0.004
        record = RequestRecord(
            "r", "POST", "/v1/chat/completions", status=502 if lost else 200,
            outcome=Outcome.UPSTREAM_FAILED if lost else Outcome.COMPLETED, backend=backend, reason=reason,
            home=home, key=(key * 0x9E3779B97F4A7C15) % 2**64,
            first_token_seconds=random.lognormvariate(-2.4 if backend is home else -0.8, 0.5),
            prompt_tokens=2000, cached_tokens=random.randrange(1500, 2000) if backend is home else 200,
        )  # fmt: skip
        for part in (self.totals, self.history, self.keys):
            part.request_finished(record)

    def _sources(self) -> AdminSources:
        async def collect() -> None:
            await asyncio.sleep(0)

        async def reload() -> Reply:
            return self.reply

        def set_draining(name: str, draining: bool) -> bool:
            self.change(name, draining=draining)
            return name in self.fleet.by_name

        def explain(body: bytes, path: str | None, _: list[tuple[str, str]]) -> dict[str, Any]:
            self.explained.append((body, path))
            return self.explanation

        return AdminSources(
            not_ready=lambda: None,
            collect=collect,
            render_metrics=bytes,
            status=self._status,
            explain=explain,
            controls=Controls(
                reload,
                dict,
                set_draining,
                lambda name: backend_document(self.fleet.by_name[BackendName(name)], self.totals),
            ),
            page=PageSources(collect, self.history.document, self.keys.document),
        )

    def _status(self) -> dict[str, Any]:
        document = status_document(
            self.fleet, self.totals, version="0.9.0", strategy="prefix_aware", uptime_seconds=93_784,
            active_requests=sum(member.in_flight.count for member in self.fleet.members), waiting_requests=0,
        )  # fmt: skip
        configuration = {"last_reload_succeeded": True, "seconds_in_force": 7300}
        return {**document, "concurrency_threshold": 64, "configuration": configuration}


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield started
        await started.close()


@pytest.fixture
async def open_page(browser: Browser) -> AsyncIterator[Open]:
    """Opens the page of a desk. `gone`: the listener is to stop, so failed requests are no mistake."""
    watched: list[tuple[str, list[str], list[str], bool]] = []
    desks: list[Desk] = []

    async def open_(desk: Desk, *, gone: bool = False, **options: Any) -> Page:
        await desk.server.start_server()
        desks.append(desk)
        origin = str(desk.server.make_url("/"))
        page = await (await browser.new_context(**options)).new_page()
        asked: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        watched.append((origin, asked, errors, gone))
        await page.goto(origin)
        await page.get_by_text("live", exact=True).wait_for()
        return page

    yield open_
    for desk in desks:
        await desk.server.close()
    for origin, asked, errors, gone in watched:
        assert asked
        assert [url for url in asked if not url.startswith(origin)] == []
        # A browser logs an answer of 401 or 422 by itself.
        own = [text for text in errors if not text.startswith("Failed to load resource")]
        assert gone or own == []


async def picture(page: Page, name: str) -> None:
    """Keep what it looks like, for people."""
    await asyncio.to_thread(PICTURES.mkdir, parents=True, exist_ok=True)
    await page.screenshot(path=PICTURES / f"{name}.png", full_page=True)
