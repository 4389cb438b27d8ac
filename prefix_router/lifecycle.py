"""The router as a process: signals, log, file limit, exit status.

    SIGTERM, SIGINT    drain and stop: not ready at once, new connections for a while, then what runs may end
    the same again     stop at once
    SIGHUP             read the configuration again

Exit status: 0 after a stop, 1 when a port cannot be had, 2 for a configuration that cannot be used. A service
manager that wants to know hears of each step (`service_manager`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

from prefix_router import __version__
from prefix_router.app import Router
from prefix_router.discovery.file_watch import SeenFile
from prefix_router.garbage import spare_what_lives_on
from prefix_router.observe.logs import configure
from prefix_router.service_manager import ServiceManager
from prefix_router.settings.model import Settings
from prefix_router.shutdown import stop_unless_hurried
from prefix_router.tls import TlsFileError
from prefix_router.tokenization import TokenizerError

logger = logging.getLogger(__name__)

_CUTTING_SECONDS = 10
"""What is left to do after the grace takes less."""


def serve(
    settings: Settings, read_again: Callable[[], Settings] | None = None, file: SeenFile | None = None
) -> int:
    """Run a router until it is told to stop; return the exit status.

    read_again: reads the settings anew for a reload, blocking; None when there is no file to read. file: as
    it was before it was read, to be watched where the settings want that.
    """
    _raise_file_limit()
    logs = configure(settings.logging.level.value, settings.logging.format.value)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings, read_again, file))
    finally:
        logs.shutdown()


def _raise_file_limit() -> None:
    """Each request costs two sockets; the usual soft limit of 1,024 is there for programs that use select."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Signals:
    """What the process has been told. A signal that comes early is not lost: it sets an event."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.reload = asyncio.Event()

    def listen(self) -> None:
        """Take the process's signals."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop, number.name)
        loop.add_signal_handler(signal.SIGHUP, self.reload.set)

    def _told_to_stop(self, name: str) -> None:
        logger.info("%s: %s", name, "stopping at once" if self.stop.is_set() else "draining")
        (self.hurry if self.stop.is_set() else self.stop).set()


async def _serve(settings: Settings, read_again: Callable[[], Settings] | None, file: SeenFile | None) -> int:
    signals = _Signals()
    signals.listen()
    began = time.monotonic()
    try:
        router = Router(settings, read_again, file)
        await router.start()
    except (TokenizerError, TlsFileError) as error:
        print(f"prefix-router: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"prefix-router: cannot listen: {error.strerror or error}", file=sys.stderr)
        return 1
    logger.info(
        "prefix-router %s: %d backends%s, strategy %s, data on %s:%d, admin on %s:%d, ready in %.0f ms",
        __version__,
        len(settings.backends),
        " and those that are found" if settings.discovery.on else "",
        settings.routing.strategy.value,
        settings.listen.host,
        router.port,
        settings.admin.host,
        router.admin_port,
        (time.monotonic() - began) * 1000,
    )
    spare_what_lives_on()
    manager = ServiceManager()
    manager.ready()
    reloading = asyncio.ensure_future(_reload_on_signal(signals.reload, router.reload_file, manager))
    living = asyncio.ensure_future(manager.keep_alive())
    await signals.stop.wait()
    reloading.cancel()
    timeouts = router.settings.timeouts
    manager.stopping(timeouts.shutdown_delay_seconds + timeouts.shutdown_grace_seconds + _CUTTING_SECONDS)
    await stop_unless_hurried(
        router.stop, timeouts.shutdown_grace_seconds, timeouts.shutdown_delay_seconds, signals.hurry
    )
    living.cancel()
    return 0


async def _reload_on_signal(
    told: asyncio.Event, reload: Callable[[], Awaitable[object]], manager: ServiceManager
) -> None:
    """Reload once for each signal, and once only for those that come while a reload is waiting to begin."""
    while True:
        await told.wait()
        told.clear()
        manager.reloading()
        await reload()
        manager.ready()
