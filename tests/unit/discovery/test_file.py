from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from prefix_router.discovery import file as module
from prefix_router.discovery.file import FileOptions
from prefix_router.discovery.source import FoundSet, Trouble
from prefix_router.found_backends import BackendListReader
from tests.support.waiting import until


class Listener:
    def __init__(self) -> None:
        self.reports: list[FoundSet | Trouble] = []

    @property
    def last(self) -> Any:
        """The names of the last report, or its trouble."""
        report = self.reports[-1] if self.reports else None
        if isinstance(report, Trouble):
            return report.message
        return None if report is None else [found.name for found in report]


@asynccontextmanager
async def following(path: Path) -> AsyncIterator[Listener]:
    listener = Listener()

    async def listen() -> None:
        async for report in FileOptions(str(path), BackendListReader(None), 0.005).source().reports():
            listener.reports.append(report)

    task = asyncio.create_task(listen())
    try:
        yield listener
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def config_map(mount: Path) -> Callable[[str], None]:
    """Mount a ConfigMap as the kubelet does, and return what exchanges its content."""
    mount.mkdir()
    (mount / "backends.yaml").symlink_to("..data/backends.yaml")
    versions = iter(range(1000))

    def write(text: str) -> None:
        directory = mount / f"..version_{next(versions)}"
        directory.mkdir()
        (directory / "backends.yaml").write_text(text)
        (mount / "..data_tmp").symlink_to(directory.name)
        os.replace(mount / "..data_tmp", mount / "..data")

    return write


async def test_a_file_that_is_written_renamed_over_or_comes_back_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "backends.yaml"
    path.write_text("- {url: h:1, name: a}")
    async with following(path) as listener:
        await until(lambda: listener.last == ["a"])
        path.write_text("- {url: h:1, name: a}\n- {url: h:2, name: b}")
        await until(lambda: listener.last == ["a", "b"])
        other = tmp_path / "other"
        other.write_text('[{"url": "h:3", "name": "c"}]')
        os.replace(other, path)
        await until(lambda: listener.last == ["c"])
        path.unlink()
        await until(lambda: listener.last == f"{path}: cannot be read: No such file or directory")
        path.write_text("backends: [{url: h:4, name: d}]")
        await until(lambda: listener.last == ["d"])


async def test_a_mounted_config_map_is_read_again_when_its_link_is_exchanged(tmp_path: Path) -> None:
    write = config_map(tmp_path / "mount")
    write("- {url: h:1, name: a}")
    async with following(tmp_path / "mount" / "backends.yaml") as listener:
        await until(lambda: listener.last == ["a"])
        write("- {url: h:1, name: b}")  # the same size, maybe the same inode
        await until(lambda: listener.last == ["b"])


async def test_a_mistake_is_told_with_its_line_and_gone_when_it_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "backends.yaml"
    path.write_text("- {url: h:1, name: a}\n- {url: h:2, weight: 0}\n- {url: h:3, wieght: 1}\n")
    async with following(path) as listener:
        expected = f"{path}:2: backends[1].weight: expected a whole number from 1 to 100, got 0; and 1 more"
        await until(lambda: listener.last == expected)
        path.write_text("- {url: h:1, name: a}")
        await until(lambda: listener.last == ["a"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", ": names no backend; to have none from a file, take discovery.file.path out"),
        ("", ": expected a list of backends, the file holds nothing"),
        ("backends: [{url: h:1}]\nhost: x\n", ":1: expected a list of backends, or backends: with one"),
        ("- {url: h:1}\n- {url: h:1}\n", ":2: backends[1].url: expected each backend once"),
        ("- {url: h:1, server_name: x}\n", ":1: backends[0].server_name: expected null with an http:// URL"),
        ("- {url: h:1, kv_events: 'tcp://h:1'}\n", "needs routing.prefix.tokenizer"),
        ("- url: h:1\n oops", ":2: not valid YAML"),
    ],
)
async def test_a_list_that_says_nothing_or_nonsense_is_trouble(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "backends.yaml"
    path.write_text(text)
    async with following(path) as listener:
        await until(lambda: listener.last)
        assert listener.last.startswith(str(path))
        assert message in listener.last


async def test_a_file_is_read_again_now_and_then_to_show_that_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPEAT_SECONDS", 0.01)
    path = tmp_path / "backends.yaml"
    path.write_text("- {url: h:1, name: a}")
    async with following(path) as listener:
        await until(lambda: len(listener.reports) > 2)
        assert len(set(listener.reports)) == 1


def test_what_the_file_does_not_say_is_left_to_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "backends.yaml"
    path.write_text("- {url: h:1}\n- {url: h:2, weight: 1, models: [m]}\n")
    report = BackendListReader(None)(str(path))
    assert not isinstance(report, Trouble)
    assert [(found.weight, found.models) for found in report] == [(None, None), (1, frozenset({"m"}))]
