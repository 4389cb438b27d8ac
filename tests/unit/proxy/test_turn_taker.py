from __future__ import annotations

import asyncio
import itertools
from collections.abc import Generator

import pytest

from prefix_router.proxy.turn_taker import TURN_SECONDS, TurnTaker


def count(name: str, steps: int, seen: list[str]) -> Generator[None, None, str]:
    try:
        for _ in range(steps):
            seen.append(name)
            yield
        return name
    finally:
        seen.append(f"{name} closed")


def with_turns_of_one_step() -> TurnTaker:
    looks = itertools.count()
    return TurnTaker(lambda: next(looks) * 0.6 * TURN_SECONDS)


async def test_a_computation_gives_its_result() -> None:
    seen: list[str] = []
    assert await TurnTaker().finish(count("a", 3, seen)) == "a"
    assert seen == ["a", "a", "a", "a closed"]


async def test_all_computations_together_take_one_turn_in_each_pass_of_the_loop() -> None:
    seen: list[str] = []
    turns = with_turns_of_one_step()
    async with asyncio.TaskGroup() as group:
        found = [group.create_task(turns.finish(count(name, 3, seen))) for name in "ab"]
        before = 0
        while not all(task.done() for task in found):
            await asyncio.sleep(0)
            assert len(seen) <= before + 2  # a step, and perhaps the end of a computation
            before = len(seen)
    assert [task.result() for task in found] == ["a", "b"]
    assert seen == ["a", "b", "a", "b", "a", "b", "a closed", "b closed"]


async def test_a_computation_that_nobody_waits_for_ends_and_leaves_its_turn() -> None:
    seen: list[str] = []
    turns = with_turns_of_one_step()
    endless = asyncio.create_task(turns.finish(count("a", 1_000_000, seen)))
    await asyncio.sleep(0)
    other = asyncio.create_task(turns.finish(count("b", 2, seen)))
    await asyncio.sleep(0)
    endless.cancel()
    assert await other == "b"
    assert endless.cancelled()
    assert seen.index("a closed") < seen.index("b closed")


async def test_an_error_of_a_computation_is_its_result() -> None:
    def broken() -> Generator[None, None, None]:
        yield
        raise ValueError("broken")

    turns = TurnTaker()
    with pytest.raises(ValueError, match="broken"):
        await turns.finish(broken())
    assert await turns.finish(count("a", 1, [])) == "a"
