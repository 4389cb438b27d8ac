"""Life under fire: what becomes of requests while backends die and clients misbehave.

    python -m benchmarks.chaos [--quick | --tiny] [--only NAME …] [--workers N] [--output DIRECTORY]

A router process in front of four backend processes (`benchmarks/support/backend_program.py`), steady load of
streams and whole answers, and one misfortune after the other: first to a backend, then from clients. Exit
status 1 when anything that was promised did not hold. Intervals are short so that a run takes minutes; they
are written into the report.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.support.backend_process import BackendProcess
from benchmarks.support.faults import FAULTS, inject
from benchmarks.support.machine import description, raise_file_limit
from benchmarks.support.report import file_name, kinds, processes, see_also, table, with_workers, write
from benchmarks.support.router_process import RouterProcess
from benchmarks.support.scenario import FULL, QUICK, TINY, Arena, Report, Scale
from benchmarks.support.storms import HEAD_SECONDS, STORMS, raise_storm

RESULTS = Path(__file__).parent / "results"
BACKENDS = ("a", "b", "c", "d")
QUIET: dict[str, Any] = {"engine_metrics": {"interval_seconds": 0}, "logging": {"level": "error"}}
KEEPALIVE_SECONDS = 1
_NAMED_AT_MOST = 8
SETTINGS: dict[str, Any] = {
    **QUIET,
    "timeouts": {
        "connect_seconds": 1,
        "first_byte_seconds": 2,
        "idle_seconds": 3,
        "upstream_keepalive_seconds": KEEPALIVE_SECONDS,
    },
    "health": {"interval_seconds": 0.2, "timeout_seconds": 1, "cooldown_seconds": 1},
}
"""While backends fail: short, so that a run takes minutes."""
STORM_SETTINGS: dict[str, Any] = {
    **QUIET,
    "timeouts": {
        "idle_seconds": HEAD_SECONDS,
        "client_keepalive_seconds": HEAD_SECONDS,
        "upstream_keepalive_seconds": KEEPALIVE_SECONDS,
    },
}
"""While clients misbehave: the defaults, but for what a slow client would have to wait for."""


async def run(scale: Scale, only: list[str], workers: int) -> list[Report]:
    """Play all scenarios (or those named) and return their reports, in order."""
    faults = [fault for fault in FAULTS if not only or fault.name in only]
    storms = [(name, storm) for name, storm in STORMS if not only or name in only]
    reports = []
    if faults:
        async with arena(scale, SETTINGS, workers) as place:
            for fault in faults:
                reports.append(await inject(fault, place))
                _say(reports[-1])
    if storms:
        async with arena(scale, STORM_SETTINGS, workers) as place:
            for name, storm in storms:
                reports.append(await raise_storm(name, storm, place))
                _say(reports[-1])
    return reports


@asynccontextmanager
async def arena(scale: Scale, settings: dict[str, Any], workers: int) -> AsyncIterator[Arena]:
    """Start backends and a router, and warm it up."""
    backends = [BackendProcess(name) for name in BACKENDS]
    router = None
    try:
        for backend in backends:
            await backend.start()
        urls = [{"name": backend.name, "url": backend.url} for backend in backends]
        router = RouterProcess({"backends": urls, **settings}, workers)
        await router.start()
        place = Arena(router, backends, scale)
        warm = place.load()
        await asyncio.sleep(1)
        await warm.stop()
        # Idle connections to backends close; what is open then is what an idle router holds.
        await asyncio.sleep(2 * KEEPALIVE_SECONDS)
        place.idle_files = (await router.footprint()).files
        yield place
    finally:
        if router is not None:
            await router.stop()
        for backend in backends:
            await backend.kill()


def _say(report: Report) -> None:
    broken = [name for name, true in report.checks.items() if not true]
    verdict = "held" if report.held else f"FAILED: {', '.join(broken)}"
    print(f"{report.name:22} {report.account.sent:6} sent, {report.account.lost} lost: {verdict}", flush=True)
    if not report.held:
        print(f"{'':22} {report}", flush=True)


def markdown(reports: list[Report], workers: int, command: str) -> str:
    """Return the report as text."""
    faults = [report for report in reports if report.recovery_seconds is not None or not report.facts]
    sent = sum(report.account.sent for report in reports)
    lost = sum(report.account.lost for report in reports)
    fault_rows = [
        (
            report.name,
            report.injected,
            f"{report.account.sent:,}",
            kinds(report.account.by_kind),
            f"{kinds(report.account.allowed)} ({report.allowed_because})" if report.account.allowed else "–",
            f"**{report.account.lost}**",
            report.noticed_seconds,
            report.recovery_seconds,
        )
        for report in faults
    ]
    left_rows = [
        (
            report.name,
            report.unfinished,
            f"{report.before.resident_mb:g} → {report.after.resident_mb:g}",
            f"{report.before.files} → {report.after.files}",
            f"{report.before.tasks} → {report.after.tasks}" if workers == 1 else None,
            "held" if report.held else "**failed**",
        )
        for report in reports
    ]
    storms = [report for report in reports if report not in faults]
    storm_rows = [
        (
            report.name,
            report.injected,
            f"{report.account.sent:,}",
            f"**{report.account.lost}**",
            _facts(report),
        )
        for report in storms
    ]
    timeouts, health = SETTINGS["timeouts"], SETTINGS["health"]
    faults_table = table(
        ("fault", "injected", "requests", "ended", "allowed", "lost", "noticed (s)", "recovered (s)"),
        fault_rows,
    )
    storms_table = table(("storm", "what", "requests", "lost", "what was seen"), storm_rows)
    left_table = table(
        ("scenario", "in-flight left", "resident MB", "open files", "asyncio tasks", "all promises"),
        left_rows,
    )
    return f"""# Chaos{with_workers(workers)}

`{command}` on {description()}:
{len(reports)} scenarios, {sent:,} requests, **{lost} lost**.

{processes(workers)}, {len(BACKENDS)} backend processes, half of the requests streams of ten events. A request
counts as good only when its framing is complete and its content is its own. *Lost* is every request that did
not end well and was not allowed to. {see_also("chaos", workers)}

## One backend of {len(BACKENDS)} fails

Noticed: until the router took it out of service. Recovered: from the end of the fault until the router
called it healthy again (a fresh process takes part of that to start). Intervals are shorter than the
defaults, so that a run takes minutes: first byte {timeouts["first_byte_seconds"]} s, silence
{timeouts["idle_seconds"]} s, connect {timeouts["connect_seconds"]} s, probes every
{health["interval_seconds"]} s.

{faults_table}

## Clients misbehave

Requests and lost: of the honest load beside the storm. Timeouts are the defaults, but for a client's head and
its pauses: {HEAD_SECONDS} s.

{storms_table}

## What was left afterwards

Before each scenario → after it, when everything has ended.

{left_table}
"""


def _facts(report: Report) -> str:
    parts = []
    for name, value in report.facts.items():
        text = _grouped(value) if isinstance(value, dict) else value
        parts.append(f"{name.replace('_', ' ')}: {text}")
    return "<br>".join(parts)


def _grouped(ends: dict[str, object]) -> str:
    """Return what ended alike together, many of a kind as their number."""
    groups: dict[str, list[str]] = {}
    for name, end in ends.items():
        groups.setdefault(str(end), []).append(name)
    return "; ".join(
        f"{end}: {len(names)} of them" if len(names) > _NAMED_AT_MOST else f"{end}: {', '.join(names)}"
        for end, names in groups.items()
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="under a minute")
    size.add_argument("--tiny", action="store_true", help="only to see that it works")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these scenarios")
    parser.add_argument("--workers", type=int, default=1, help="router processes behind the port")
    parser.add_argument(
        "--output",
        type=Path,
        help="where chaos.md and chaos.json go (a full run: benchmarks/results, others: nowhere); with "
        "several workers chaos_N_workers.*",
    )
    options = parser.parse_args()
    raise_file_limit(3 * FULL.connections)
    scale = TINY if options.tiny else QUICK if options.quick else FULL
    reports = asyncio.run(run(scale, options.only, options.workers))
    command = "python -m benchmarks.chaos " + " ".join(sys.argv[1:])
    document = {
        "command": command.strip(),
        "workers": options.workers,
        "machine": description(),
        "settings": {"faults": SETTINGS, "storms": STORM_SETTINGS},
        "scale": asdict(scale),
        "requests": sum(report.account.sent for report in reports),
        "lost": sum(report.account.lost for report in reports),
        "scenarios": [{**asdict(report), "held": report.held} for report in reports],
    }
    output = options.output or (RESULTS if scale is FULL and not options.only else None)
    if output is not None:
        name = file_name("chaos", options.workers)
        write(output, name, markdown(reports, options.workers, command.strip()), document)
    return 0 if reports and all(report.held for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
