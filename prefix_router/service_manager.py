"""Telling systemd how the router is: the datagrams of sd_notify(3), for a unit of `Type=notify`.

    READY=1                          it listens
    RELOADING=1, then READY=1        it reads the configuration again, and is done
    STOPPING=1                       it drains
    EXTEND_TIMEOUT_USEC=…            it drains for so long: do not kill it before
    WATCHDOG=1                       the event loop turns (with `WatchdogSec=`)

Without `NOTIFY_SOCKET` in the environment every call does nothing. A message that the service manager does
not take is dropped: it must never hold up or end the router.

Source: sd_notify(3), sd_watchdog_enabled(3) of systemd.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping

_MICROSECONDS = 1_000_000


class ServiceManager:
    """Whoever started the router and wants to hear from it."""

    def __init__(self, environ: Mapping[str, str] = os.environ, pid: int | None = None) -> None:
        """environ: where NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are looked up. pid: of the router."""
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self.watchdog_seconds = _watchdog_seconds(environ, os.getpid() if pid is None else pid)
        """How long the service manager waits for a sign of life; None when it waits for none."""

    def ready(self, status: str = "") -> None:
        """Say that clients can connect. status: one line for `systemctl status`."""
        self._tell("READY=1", *([f"STATUS={status}"] if status else []))

    def reloading(self) -> None:
        """Say that the configuration is read again; `ready` says that it is done."""
        # CLOCK_MONOTONIC tells a service manager whether this is the answer to its own request.
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._tell("RELOADING=1", f"MONOTONIC_USEC={now}")

    def stopping(self, seconds: float) -> None:
        """Say that the router drains, which may take so many seconds."""
        self._tell("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int(seconds * _MICROSECONDS)}")

    async def keep_alive(self) -> None:
        """Give signs of life, twice as often as they are asked for, until cancelled."""
        if self.watchdog_seconds is None:
            return
        while True:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_seconds / 2)

    def _tell(self, *lines: str) -> None:
        if self._address is None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            try:
                sock.sendto("\n".join(lines).encode(), self._address)
            except OSError:
                return


def _address(text: str) -> str | None:
    """A path, or an abstract name, which is written with an @ and begins with a zero byte."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else None


def _watchdog_seconds(environ: Mapping[str, str], pid: int) -> float | None:
    if environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None  # meant for another process
    text = environ.get("WATCHDOG_USEC", "")
    microseconds = int(text) if text.isascii() and text.isdigit() else 0
    return microseconds / _MICROSECONDS if microseconds else None
