"""A stand-in vLLM: the engine model behind vLLM's HTTP routes, at the pace of a GPU or any faster.

It answers as a vLLM replica would in everything that a router, a load test or a demo can see: latency from
prefill and decode, prefix reuse, queueing, counters, errors, what a hang-up does, idle connections closed
after 5 s. What it generates is dull words. As `prefix-router simulated-vllm` it is a process; `SimulatedVllm`
is the same inside a test.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from typing import TYPE_CHECKING

import uvloop
from aiohttp import web

from prefix_router.engine.cost import PROFILES
from prefix_router.engine.engine import Engine
from prefix_router.engine.limits import EngineLimits
from prefix_router.simulate.api import GenerationApi
from prefix_router.simulate.api_info import InfoApi
from prefix_router.simulate.api_pooling import PoolingApi
from prefix_router.simulate.driver import EngineDriver
from prefix_router.simulate.metrics import EngineMetrics
from prefix_router.simulate.settings import StandInSettings, add_arguments, read_arguments
from prefix_router.simulate.wire import answer_errors, require_key

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["SimulatedVllm", "add_arguments", "run"]

IDLE_CONNECTION_SECONDS = 5
"""How long vLLM's HTTP server keeps a connection that nobody uses."""

_UNBOUNDED = 2**40
_SHUTDOWN_SECONDS = 0.5


class SimulatedVllm:
    """One stand-in. An async context manager; `url` is known once it has started.

    host, port: where to listen; port 0 takes any free one. Starting raises OSError when it cannot listen.
    """

    def __init__(
        self, settings: StandInSettings | None = None, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.settings = settings or StandInSettings()
        self.engine = Engine(
            PROFILES[self.settings.profile],
            EngineLimits(block_size=self.settings.block_size),
            kv_tokens=self.settings.kv_tokens,
        )
        self._host = host
        self._port = port
        self._driver = EngineDriver(self.engine, self.settings.time_scale)
        self._runner = web.AppRunner(
            self._application(),
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=IDLE_CONNECTION_SECONDS,
            shutdown_timeout=_SHUTDOWN_SECONDS,
        )

    @property
    def url(self) -> str:
        """Where it listens, without a trailing slash."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def start(self) -> None:
        """Start the engine and listen."""
        await self._runner.setup()
        self._driver.start()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError:
            await self.stop()
            raise
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening, cancel what runs and stop the engine."""
        await self._runner.cleanup()
        await self._driver.stop()

    async def __aenter__(self) -> SimulatedVllm:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def _application(self) -> web.Application:
        guards = [require_key(self.settings.api_keys)] if self.settings.api_keys else []
        application = web.Application(client_max_size=_UNBOUNDED, middlewares=[*guards, answer_errors])
        generation = GenerationApi(self._driver, self.settings)
        metrics = EngineMetrics(self._driver, self.settings.models[0], generation.finished)
        if self.settings.runner == "pooling":
            PoolingApi(self._driver, self.settings).add_routes(application.router)
        else:
            generation.add_routes(application.router)
        InfoApi(self._driver, self.settings, metrics).add_routes(application.router)
        return application


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; return the exit status: 0, 1 for a port in use, 2 for bad settings."""
    try:
        stand_in = SimulatedVllm(read_arguments(arguments), arguments.host, arguments.port)
    except ValueError as error:
        print(f"simulated-vllm: {error}", file=sys.stderr)
        return 2
    try:
        uvloop.run(_serve(stand_in))
    except OSError as error:
        where = f"{arguments.host}:{arguments.port}"
        print(f"simulated-vllm: cannot listen on {where}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


async def _serve(stand_in: SimulatedVllm) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    delay = asyncio.create_task(stop.wait(), name="stop-signal")
    await asyncio.wait({delay}, timeout=stand_in.settings.startup_delay_seconds)
    if not stop.is_set():
        async with stand_in:
            profile = stand_in.settings.profile
            print(f"simulated-vllm: {profile} on {stand_in.url}", file=sys.stderr, flush=True)
            await delay


def main() -> int:
    """`python -m prefix_router.simulate.server`."""
    parser = argparse.ArgumentParser(prog="simulated-vllm", description=(__doc__ or "").split("\n", 1)[0])
    add_arguments(parser)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
