from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from prefix_router.configuration_watch import ConfigurationWatch
from prefix_router.discovery.file_watch import SeenFile
from tests.support.waiting import until


class Reloads:
    """Counts; `during` is called in the middle of each."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.during: Callable[[], object] = int

    async def __call__(self) -> None:
        self.begun += 1
        self.during()
        await asyncio.sleep(0.01)
        self.ended += 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "router.yaml"
    path.write_text("one")
    return path


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def test_each_change_is_one_reload_also_one_from_before_the_watch_began(file: Path) -> None:
    reloads = Reloads()
    seen = SeenFile.now(file)
    write(file, "another")
    watch = ConfigurationWatch(seen, reloads, 0.005)
    watch.set_on(True)
    watch.set_on(True)
    await until(lambda: reloads.ended == 1)
    write(file, "a third one")
    await until(lambda: reloads.ended == 2)
    await asyncio.sleep(0.05)
    await watch.stop()
    assert reloads.begun == 2


async def test_a_reload_that_turns_the_watch_off_is_not_cut_short(file: Path) -> None:
    reloads = Reloads()
    watch = ConfigurationWatch(SeenFile.now(file), reloads, 0.005)
    reloads.during = lambda: watch.set_on(False)
    watch.set_on(True)
    write(file, "another")
    await until(lambda: reloads.ended == 1)
    write(file, "a third one")
    await asyncio.sleep(0.05)
    await watch.stop()
    assert reloads.begun == 1


async def test_without_a_file_it_says_that_there_is_nothing_to_watch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    watch = ConfigurationWatch(None, Reloads())
    watch.set_on(True)
    await watch.stop()
    assert "started without --config: nothing is watched" in caplog.text
