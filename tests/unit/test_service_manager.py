"""What the service manager hears, on a real datagram socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from prefix_router.service_manager import ServiceManager


class Manager:
    """systemd's end of the socket."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)

    def heard(self) -> list[list[str]]:
        messages: list[list[str]] = []
        with suppress(BlockingIOError):
            while True:
                messages.append(self.socket.recv(4096).decode().split("\n"))
        return messages


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "notify")


@pytest.fixture
def manager(path: str) -> Iterator[Manager]:
    listening = Manager(path)
    yield listening
    listening.socket.close()


def test_it_hears_of_each_step(path: str, manager: Manager) -> None:
    told = ServiceManager({"NOTIFY_SOCKET": path})
    told.ready("3 backends")
    told.reloading()
    told.ready()
    told.stopping(32.5)

    ready, reloading, again, stopping = manager.heard()
    assert ready == ["READY=1", "STATUS=3 backends"]
    assert reloading[0] == "RELOADING=1"
    assert reloading[1].startswith("MONOTONIC_USEC=")
    assert again == ["READY=1"]
    assert stopping == ["STOPPING=1", "EXTEND_TIMEOUT_USEC=32500000"]


def test_an_abstract_address_is_understood() -> None:
    listening = Manager("\0prefix-router-test-notify")
    try:
        ServiceManager({"NOTIFY_SOCKET": "@prefix-router-test-notify"}).ready()
        assert listening.heard() == [["READY=1"]]
    finally:
        listening.socket.close()


@pytest.mark.parametrize("address", ["", "relative/path", "/nowhere/at/all"])
def test_without_a_listener_nothing_happens(address: str) -> None:
    ServiceManager({"NOTIFY_SOCKET": address}).ready()


def test_a_manager_that_takes_nothing_holds_nobody_up(path: str, manager: Manager) -> None:
    told = ServiceManager({"NOTIFY_SOCKET": path})
    for _ in range(10_000):  # far more than a socket's queue holds
        told.ready()
    assert manager.heard()


async def test_signs_of_life_are_given_until_it_is_cancelled(path: str, manager: Manager) -> None:
    told = ServiceManager({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "20000"})
    task = asyncio.create_task(told.keep_alive())
    heard: list[list[str]] = []
    while len(heard) < 3:
        await asyncio.sleep(0.005)
        heard += manager.heard()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert heard[:3] == [["WATCHDOG=1"]] * 3


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "10000000"}, 10.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "77"}, 10.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "78"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_a_watchdog_is_for_the_process_that_it_names(environ: dict[str, str], seconds: float | None) -> None:
    assert ServiceManager(environ, pid=77).watchdog_seconds == seconds


async def test_without_a_watchdog_there_are_no_signs_of_life(path: str, manager: Manager) -> None:
    await ServiceManager({"NOTIFY_SOCKET": path}).keep_alive()
    assert manager.heard() == []
