from __future__ import annotations

import asyncio

import pytest

from prefix_router.routing.fleet import BackendName
from prefix_router.workers import continuations
from prefix_router.workers.continuations import SharedContinuations
from prefix_router.workers.messages import Continues, Recall, Remember

A = BackendName("a")


class Pool:
    def __init__(self, *, alive: bool = True) -> None:
        self.heard: list[Remember | Recall] = []
        self.alive = alive
        self.known = SharedContinuations(self.hear)

    def hear(self, message: Remember | Recall) -> bool:
        self.heard.append(message)
        return self.alive


async def test_what_a_worker_has_seen_is_told_to_all_and_known_at_once() -> None:
    pool = Pool()
    pool.known.remember("r1", A)
    await pool.known.recall("r1")
    assert pool.heard == [Remember("r1", A)]
    assert pool.known.backend("r1") == A


async def test_what_another_worker_has_seen_is_asked_for_once() -> None:
    pool = Pool()
    asking = [asyncio.ensure_future(pool.known.recall("r1")) for _ in range(3)]
    await asyncio.sleep(0)
    pool.known.answered(Continues("r1", A))
    await asyncio.gather(*asking)
    assert pool.heard == [Recall("r1")]
    assert pool.known.backend("r1") == A
    await pool.known.recall("r1")
    assert len(pool.heard) == 1


async def test_what_nobody_has_seen_stays_unknown() -> None:
    pool = Pool()
    asking = asyncio.ensure_future(pool.known.recall("r1"))
    await asyncio.sleep(0)
    pool.known.answered(Continues("r1", None))
    await asking
    assert pool.known.backend("r1") is None


@pytest.mark.parametrize("alive", [True, False], ids=["silent", "gone"])
async def test_a_pool_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, alive: bool
) -> None:
    monkeypatch.setattr(continuations, "ANSWER_SECONDS", 0.01)
    pool = Pool(alive=alive)
    await pool.known.recall("r1")
    assert pool.known.backend("r1") is None
    pool.known.answered(Continues("r1", A))  # late, and still good to know
    assert pool.known.backend("r1") == A


async def test_a_request_that_is_cancelled_takes_no_answer_from_others() -> None:
    pool = Pool()
    leaving, staying = [asyncio.ensure_future(pool.known.recall("r1")) for _ in range(2)]
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    pool.known.answered(Continues("r1", A))
    await staying
    assert pool.heard == [Recall("r1")]
    assert pool.known.backend("r1") == A
