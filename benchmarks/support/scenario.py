"""One scenario under fire: what was injected, what became of the requests, what was left afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.support.backend_process import BackendProcess
from benchmarks.support.load import Account, Load
from benchmarks.support.router_process import Footprint, RouterProcess

SETTLE_SECONDS = 15.0
FILES_SLACK = 8
"""Connections to backends and of probes that may be open at one moment and not at another."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything.

    rate_per_second: of the steady load. hold_seconds: how long a fault lasts. The rest is of client storms.
    """

    rate_per_second: float
    hold_seconds: float
    flaps: int
    connections: int
    slow_readers: int
    bulk_bytes: int
    slow_writers: int
    huge_json_bytes: int
    header_bombs: int


FULL = Scale(60, 5.0, 20, 2000, 4, 200_000_000, 300, 20_000_000, 200)
QUICK = Scale(40, 1.2, 4, 300, 2, 30_000_000, 50, 4_000_000, 100)
TINY = Scale(20, 0.6, 2, 40, 1, 4_000_000, 10, 400_000, 40)


@dataclass
class Report:
    """What one scenario showed. `checks` must all be true."""

    name: str
    injected: str
    account: Account
    before: Footprint
    after: Footprint
    unfinished: int
    allowed_because: str = "nothing"
    noticed_seconds: float | None = None
    recovery_seconds: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    checks: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checks = {
            "no request lost": self.account.lost == 0,
            "in-flight counts back at zero": self.unfinished == 0,
            "open files back": self.after.files <= self.before.files + FILES_SLACK,
            **self.checks,
        }

    @property
    def held(self) -> bool:
        """Whether everything that was promised came true."""
        return all(self.checks.values())


@dataclass
class Arena:
    """A router, its backends, and how much of everything. idle_files: what the router has open when idle."""

    router: RouterProcess
    backends: list[BackendProcess]
    scale: Scale
    idle_files: int = 0

    def load(self) -> Load:
        """Start steady load."""
        load = Load(self.router.port, self.scale.rate_per_second)
        load.start()
        return load

    async def state(self, backend: BackendProcess) -> str:
        """Return what the router thinks of a backend."""
        status = await self.router.status()
        return next(str(entry["state"]) for entry in status["backends"] if entry["name"] == backend.name)

    async def seconds_until(
        self, condition: Callable[[], Awaitable[bool]], limit_seconds: float
    ) -> float | None:
        """Return how long it took until the condition was true; None when it did not come true."""
        began = time.monotonic()
        while time.monotonic() - began < limit_seconds:
            if await condition():
                return round(time.monotonic() - began, 2)
            await asyncio.sleep(0.05)
        return None

    async def calm(self) -> tuple[Footprint, int]:
        """Wait until all is given back (idle connections to backends included); return what is left."""
        unfinished = await self.router.settled(SETTLE_SECONDS)

        async def files_are_back() -> bool:
            return (await self.router.footprint()).files <= self.idle_files + FILES_SLACK

        await self.seconds_until(files_are_back, SETTLE_SECONDS)
        return await self.router.footprint(), unfinished
