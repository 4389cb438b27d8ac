from __future__ import annotations

import asyncio

import pytest

from prefix_router.proxy.tasks import TaskGroup


async def forever() -> None:
    await asyncio.Event().wait()


async def test_tasks_are_named_kept_and_stopped() -> None:
    group = TaskGroup()
    task = group.start("watch:a", forever())
    assert task.get_name() == "watch:a"
    assert len(group) == 1
    await group.stop()
    assert task.cancelled()
    assert len(group) == 0


async def test_a_task_that_dies_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise ValueError("oh")

    group = TaskGroup()
    await asyncio.wait([group.start("broken:a", broken())])
    await asyncio.sleep(0)
    assert len(group) == 0
    assert "task broken:a died" in caplog.text
