from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from prefix_router.routing.strategies.adaptive import Adaptive
from prefix_router.routing.strategies.random import Random
from prefix_router.routing.strategies.shared import FirstToken
from prefix_router.workers import sharing as sharing_module
from prefix_router.workers.journal import RING_BYTES, Journal
from prefix_router.workers.sharing import Sharing
from tests.support.fleets import fleet_of, member
from tests.support.waiting import until
from tests.unit.routing.strategies.test_shared import TOKENS, asked, sent

ONE, TWO = 1, 2
FLEET = fleet_of(member(name) for name in "ab")


@pytest.fixture
def journal() -> Iterator[Journal]:
    made = Journal.create(workers=2)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing_module, "FOLLOW_SECONDS", 0.001)


@asynccontextmanager
async def following(sharing: Sharing) -> AsyncIterator[None]:
    task = asyncio.ensure_future(sharing.follow())
    try:
        yield
    finally:
        task.cancel()


def used() -> Adaptive:
    """A strategy that has seen its fleet."""
    strategy = Adaptive()
    strategy.choose(asked(99), FLEET)
    return strategy


async def test_a_worker_that_decides_nothing_follows_the_others(journal: Journal) -> None:
    sharing, strategy = Sharing(journal, ONE), used()
    async with following(sharing):
        sharing.share(Random())
        sharing.share(strategy)
        journal.append(TWO, sent(FLEET, 0, missing=TOKENS))
        await until(lambda: strategy.pending_tokens() == TOKENS)
        sharing.share(strategy)
        journal.append(TWO, FirstToken(1, 1.0))
        await until(lambda: strategy.pending_tokens() == 0)


async def test_a_strategy_that_is_no_longer_in_use_reads_and_writes_nothing(journal: Journal) -> None:
    sharing, strategy = Sharing(journal, ONE), used()
    sharing.share(strategy)
    decision = strategy.choose(asked(1), FLEET)
    assert decision is not None
    assert decision.visit is not None
    sharing.share(Random())
    journal.append(TWO, sent(FLEET, 0, missing=TOKENS))
    decision.visit.sent(1.0, streamed=True)
    assert journal.heads[0] == 0
    assert not strategy.follow()


async def test_a_strategy_that_comes_later_takes_over_what_is_in_the_journal(journal: Journal) -> None:
    sharing, first = Sharing(journal, ONE), used()
    sharing.share(first)
    decision = first.choose(asked(1), FLEET)
    assert decision is not None
    assert decision.visit is not None
    decision.visit.sent(1.0, streamed=True)
    later = used()
    sharing.share(later)
    for draw in range(2):
        again = later.choose(asked(1, 100.0, draw), FLEET)
        assert again is not None
        assert again.member is decision.member


async def test_what_is_lost_is_said_but_not_again_and_again(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    sharing, strategy = Sharing(journal, ONE), used()
    sharing.share(strategy)
    assert not strategy.follow()

    def lose() -> None:
        end = journal.heads[1] + 2 * RING_BYTES
        while journal.heads[1] < end:
            journal.append(TWO, sent(FLEET, 0))

    with caplog.at_level(logging.WARNING):
        async with following(sharing):
            for times in range(1, 4):
                lose()
                await until(partial(has_lost, sharing, times * RING_BYTES))
    assert caplog.text.count("this worker is behind") in (1, 2)


def has_lost(sharing: Sharing, lost_bytes: int) -> bool:
    assert sharing._peers is not None
    return sharing._peers.lost_bytes >= lost_bytes
