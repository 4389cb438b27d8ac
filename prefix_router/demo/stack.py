"""`prefix-router stack`: a router, stand-in replicas and a real Prometheus, to look at with a browser.

Everything that an operator sees of a fleet, on one machine without containers: the admin page, the metrics
where Prometheus has them, the alerts. A little traffic runs, so that there is something to see. Every exit
stops all processes: an error, Ctrl-C, SIGTERM, a closed terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import aiohttp

from prefix_router.demo.arguments import MODEL, OUTPUT_TOKENS, DemoPlan
from prefix_router.demo.command import EXIT_FAILED, keep_asking, say, until_stopped
from prefix_router.demo.processes import (
    HOST,
    ChildProcess,
    DemoError,
    RunningRouter,
    router,
    stand_ins,
    stop_all,
    usable_port,
)
from prefix_router.engine.cost import DEFAULT_PROFILE
from prefix_router.simulate.workloads import SharedPrefixWorkload

_REPLICAS = 3
_TIME_SCALE = 2.5
_SCRAPE_SECONDS = 1
_RATE = 4.0


@dataclass(frozen=True, slots=True)
class StackPlan:
    """What is started. prometheus: the program. rules: the alerts that it judges, if any."""

    demo: DemoPlan
    prometheus: str
    prometheus_port: int
    rules: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add = parser.add_argument
    add("--port", type=int, default=0, metavar="N", help="the router's port (default: any free one)")
    add("--admin-port", type=int, default=0, metavar="N", help="its admin port (default: any free one)")
    add(
        "--prometheus-port", type=int, default=0, metavar="N", help="Prometheus' port (default: any free one)"
    )
    add("--prometheus", default="prometheus", metavar="PROGRAM", help="Prometheus (default: the one on PATH)")
    add("--rules", type=Path, metavar="FILE", help="alerts that it judges, such as config/alerts.yml")


def run(arguments: argparse.Namespace) -> int:
    """Run the stack until it is stopped; return the exit status: 0, or 1 when something does not work."""
    try:
        asyncio.run(until_stopped(lambda: _stay(_plan(arguments))))
    except DemoError as error:
        say(str(error))
        return EXIT_FAILED
    except asyncio.CancelledError:
        return 0  # to interrupt it is the way to end it
    return 0


def _plan(arguments: argparse.Namespace) -> StackPlan:
    """Raises DemoError for what cannot be used."""
    program = shutil.which(arguments.prometheus)
    if program is None:
        raise DemoError(
            f"there is no program {arguments.prometheus}: install Prometheus, or use --prometheus"
        )
    if arguments.rules is not None and not arguments.rules.is_file():
        raise DemoError(f"there is no file {arguments.rules}")
    demo = DemoPlan(
        once=False,
        as_json=False,
        replicas=_REPLICAS,
        profile=DEFAULT_PROFILE,
        time_scale=_TIME_SCALE,
        port=usable_port(arguments.port, "--port"),
        admin_port=usable_port(arguments.admin_port, "--admin-port"),
        workload=SharedPrefixWorkload(
            prefixes=_REPLICAS, requests_per_second=_RATE, output_tokens=OUTPUT_TOKENS, model=MODEL
        ),
    )
    port = usable_port(arguments.prometheus_port, "--prometheus-port")
    return StackPlan(demo, program, port, arguments.rules)


async def _stay(plan: StackPlan) -> None:
    demo = plan.demo
    say(f"starting {demo.replicas} stand-in replicas, a router and Prometheus")
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        stand_ins(demo) as replicas,
        router(demo, "prefix_aware", replicas, session) as running,
        _prometheus(plan, running, replicas.values(), session) as url,
    ):
        print(_invitation(running, url), flush=True)
        await keep_asking(demo, session, running)


@asynccontextmanager
async def _prometheus(
    plan: StackPlan, running: RunningRouter, replicas: Iterable[str], session: aiohttp.ClientSession
) -> AsyncIterator[str]:
    """A Prometheus that reads router and replicas; gives its URL. Raises DemoError."""
    engines = [urlsplit(url).netloc for url in replicas]
    with TemporaryDirectory(prefix="prefix-router-prometheus-") as folder:
        config = f"{folder}/prometheus.yml"
        await asyncio.to_thread(
            Path(config).write_text, json.dumps(_configuration(plan, running, engines)), encoding="utf-8"
        )
        url = f"http://{HOST}:{plan.prometheus_port}"
        try:
            child = await ChildProcess.start(
                "Prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address={HOST}:{plan.prometheus_port}",
                program=(plan.prometheus,),
            )
        except OSError as error:
            raise DemoError(f"{plan.prometheus} cannot be started: {error.strerror}") from None
        try:
            await child.ready(session, f"{url}/-/ready")
            yield url
        finally:
            await stop_all(child)


def _configuration(plan: StackPlan, running: RunningRouter, engines: list[str]) -> dict[str, object]:
    jobs = {"prefix-router": [urlsplit(running.admin_url).netloc], "vllm": engines}
    interval = f"{_SCRAPE_SECONDS}s"
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [] if plan.rules is None else [str(plan.rules.resolve())],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": targets}]} for job, targets in jobs.items()
        ],
    }


def _invitation(running: RunningRouter, prometheus: str) -> str:
    return f"""
Everything is up, with a little traffic, until Ctrl-C.

  the page      {running.admin_url}/
  the fleet     {running.admin_url}/status
  the router    {running.url}/v1/chat/completions
  Prometheus    {prometheus}/graph
  its alerts    {prometheus}/alerts
"""
