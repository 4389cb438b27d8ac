"""`prefix-router demo`: start a fleet, drive it under one strategy after the other, say what came of it.

Replicas and router are processes, as in production, and talk HTTP; only the GPU is simulated. Every exit
stops all of them: the end, an error, Ctrl-C, SIGTERM, a closed terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import count

import aiohttp

from prefix_router.demo import report
from prefix_router.demo.arguments import STRATEGIES, DemoPlan, read_arguments
from prefix_router.demo.measure import Measurement, ask, encode, measure
from prefix_router.demo.processes import DemoError, RunningRouter, router, stand_ins, usable_port

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_BACKGROUND_PAUSE_SECONDS = 1.0
_BACKGROUND_DOCUMENTS = 10


def run(arguments: argparse.Namespace) -> int:
    """Run the demo and return its exit status.

    1 when something does not work, 130 when it is interrupted before the results are there, else 0: to
    interrupt a demo that stays up is the way to end it.
    """
    try:
        asyncio.run(until_stopped(lambda: _demonstrate(read_arguments(arguments))))
    except DemoError as error:
        say(str(error))
        return EXIT_FAILED
    except asyncio.CancelledError:
        return EXIT_INTERRUPTED
    return 0


async def until_stopped(what: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run it, and take the first stop signal as the wish to end in order. Raises CancelledError then."""
    loop = asyncio.get_running_loop()
    demo = asyncio.current_task()
    assert demo is not None

    def stop() -> None:
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, _ignore)
        say("stopping")
        demo.cancel()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    await what()


async def _demonstrate(plan: DemoPlan) -> None:
    plan = replace(
        plan,
        port=usable_port(plan.port, "--port"),
        admin_port=usable_port(plan.admin_port, "--admin-port"),
    )
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:
        await _compare(plan, session)


def _ignore() -> None:
    """A second signal does not make stopping faster, it would only leave processes behind."""


async def _compare(plan: DemoPlan, session: aiohttp.ClientSession) -> None:
    results: dict[str, Measurement] = {}
    say(f"starting {plan.replicas} stand-in replicas")
    async with stand_ins(plan) as replicas:
        arrivals = encode(plan.workload.arrivals(), plan.time_scale)
        for strategy in STRATEGIES:
            async with router(plan, strategy, replicas, session) as running:
                say(f"{strategy}: {len(arrivals)} requests in about {arrivals[-1].seconds:.0f} s")
                urls = list(replicas.values())
                results[strategy] = await measure(session, running.url, urls, arrivals, plan.time_scale)
                if strategy == STRATEGIES[-1]:
                    _print_results(plan, results)
                    if not plan.once:
                        await _stay_up(plan, session, running)


def _print_results(plan: DemoPlan, results: dict[str, Measurement]) -> None:
    if plan.as_json:
        print(json.dumps(report.as_json(plan, results), indent=2), flush=True)
    else:
        print(f"\n{report.as_table(plan, results)}", flush=True)


async def _stay_up(plan: DemoPlan, session: aiohttp.ClientSession, running: RunningRouter) -> None:
    print(report.invitation(running), file=sys.stderr if plan.as_json else sys.stdout, flush=True)
    await keep_asking(plan, session, running)


async def keep_asking(plan: DemoPlan, session: aiohttp.ClientSession, running: RunningRouter) -> None:
    """Send a request now and then until somebody stops it. Raises DemoError when the router ends."""
    try:
        for seed in count(plan.workload.seed + 1):
            workload = replace(plan.workload, prefixes=_BACKGROUND_DOCUMENTS, seed=seed)
            for arrival in encode(workload.arrivals(), plan.time_scale):
                if not running.process.running:
                    raise running.process.error("ended")
                await ask(session, running.url, arrival.body)
                await asyncio.sleep(_BACKGROUND_PAUSE_SECONDS)
    except asyncio.CancelledError:
        # This is how it is meant to end.
        return


def say(what: str) -> None:
    """Tell the person at the terminal, apart from results."""
    print(f"prefix-router demo: {what}", file=sys.stderr, flush=True)
