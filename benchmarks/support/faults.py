"""What can happen to a backend, injected into the first of the fleet while steady load runs.

A stream that was running on the victim is broken off, and its client must see that. A new request must never
fail while another backend lives. Two exceptions, by design, because the work might be done twice elsewhere:
what a frozen backend has accepted waits for the first byte and then gets 504, and what was answered with
bytes that are not HTTP gets 502, until the backend is out of service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.support.backend_process import BackendProcess
from benchmarks.support.backend_program import Mode
from benchmarks.support.load import Account
from benchmarks.support.scenario import Arena, Report

_BEFORE_SECONDS = 0.5
_LIMIT_SECONDS = 30.0
FLAP_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens to a backend, and how it ends.

    allowed: kinds of answers that may happen besides good ones; `because` says why. noticed: whether the
    router must take the backend out of service.
    """

    name: str
    injected: str
    strike: Callable[[BackendProcess, Arena], Awaitable[None]]
    heal: Callable[[BackendProcess], Awaitable[None]]
    allowed: frozenset[str] = frozenset({"broken"})
    because: str = "streams that ran on the victim"
    noticed: bool = True


async def _kill(victim: BackendProcess, _: Arena) -> None:
    await victim.kill()


async def _freeze(victim: BackendProcess, _: Arena) -> None:
    victim.freeze()


async def _thaw(victim: BackendProcess) -> None:
    victim.thaw()


async def _restart(victim: BackendProcess, _: Arena) -> None:
    await victim.restart()


async def _flap(victim: BackendProcess, arena: Arena) -> None:
    for _ in range(arena.scale.flaps):
        await victim.restart()
        await asyncio.sleep(FLAP_SECONDS)
        await victim.kill()
        await asyncio.sleep(FLAP_SECONDS)


async def _start(victim: BackendProcess) -> None:
    await victim.start()


async def _nothing(_: BackendProcess) -> None:
    return None


def _mode(mode: Mode) -> Callable[[BackendProcess, Arena], Awaitable[None]]:
    async def strike(victim: BackendProcess, _: Arena) -> None:
        await victim.set_mode(mode)

    return strike


async def _normal(victim: BackendProcess) -> None:
    await victim.set_mode(Mode.NORMAL)


FAULTS = (
    Fault("killed", "SIGKILL; started again on the same port", _kill, _start),
    Fault(
        "frozen",
        "SIGSTOP, then SIGCONT",
        _freeze,
        _thaw,
        frozenset({"broken", "504"}),
        "streams that ran on the victim; what it had accepted waits for the first byte (2 s here), then 504",
    ),
    Fault(
        "restarted", "SIGKILL and at once another process on the same port", _restart, _nothing, noticed=False
    ),
    Fault(
        "black hole",
        "listens, accepts nothing, backlog full",
        _mode(Mode.BLACK_HOLE),
        _normal,
        frozenset({"broken"}),
        "streams that ran on the victim (it cuts them)",
    ),
    Fault(
        "slow to accept",
        "accepts only every 0.5 s",
        _mode(Mode.SLOW_ACCEPT),
        _normal,
        frozenset(),
        "nothing",
        noticed=False,
    ),
    Fault(
        "garbage",
        "answers bytes that are not HTTP, to probes too",
        _mode(Mode.GARBAGE),
        _normal,
        frozenset({"502"}),
        "until it is out of service: a bad answer is an answer, and the work is not done twice",
    ),
    Fault(
        "breaks off",
        "begins every answer and closes in its middle; probes are green",
        _mode(Mode.BREAK_OFF),
        _normal,
        frozenset({"broken"}),
        "answers that the victim broke off",
    ),
    Fault("flapping", f"alive {FLAP_SECONDS:g} s, dead {FLAP_SECONDS:g} s, again and again", _flap, _start),
)


async def inject(fault: Fault, arena: Arena) -> Report:
    """Let one fault happen under load and report."""
    victim = arena.backends[0]
    before = await arena.router.footprint()

    async def out_of_service() -> bool:
        return await arena.state(victim) != "healthy"

    async def healthy() -> bool:
        return await arena.state(victim) == "healthy"

    load = arena.load()
    await asyncio.sleep(_BEFORE_SECONDS)
    striking = asyncio.ensure_future(fault.strike(victim, arena))
    limit = _LIMIT_SECONDS if fault.noticed else arena.scale.hold_seconds
    noticed = await arena.seconds_until(out_of_service, limit)
    await striking
    await asyncio.sleep(arena.scale.hold_seconds)
    await fault.heal(victim)
    recovery = await arena.seconds_until(healthy, _LIMIT_SECONDS)
    await asyncio.sleep(_BEFORE_SECONDS)
    answers = await load.stop()
    after, unfinished = await arena.calm()
    report = Report(
        fault.name,
        fault.injected,
        Account.of(answers, fault.allowed, victim.name),
        before,
        after,
        unfinished,
        fault.because,
        noticed,
        recovery,
    )
    report.checks["the backend came back"] = recovery is not None
    if fault.noticed:
        report.checks["the router noticed"] = noticed is not None
    return report
