from __future__ import annotations

from typing import Any

import msgspec
import pytest

from prefix_router.kv_events import follower as follower_module
from prefix_router.kv_events.engine import EngineBlocks
from prefix_router.kv_events.follower import BEFORE_ALL, Follower, Verdict
from prefix_router.kv_events.index import KvIndex
from prefix_router.kv_events.status import Count
from prefix_router.routing.fleet import BackendName
from tests.support.kv_publisher import cleared, removed, stored


def payload(*events: Any, time: float = 0.0) -> bytes:
    return msgspec.msgpack.encode([time, list(events), 0])


@pytest.fixture
def engine() -> EngineBlocks:
    return EngineBlocks(KvIndex(100)._directory, 100)


@pytest.fixture
def follower(engine: EngineBlocks) -> Follower:
    return Follower(KvIndex(100), engine)


def test_who_follows_from_the_beginning_knows_everything(follower: Follower, engine: EngineBlocks) -> None:
    assert not engine.in_sync
    assert follower.take(0, payload(stored([1], range(4)))) is Verdict.FOLLOWED
    assert follower.take(1, payload(stored([2], range(4, 8), parent=1))) is Verdict.FOLLOWED
    assert (follower.last, len(engine), engine.in_sync) == (1, 2, True)


def test_who_comes_late_knows_nothing(follower: Follower, engine: EngineBlocks) -> None:
    assert follower.take(5, payload(stored([1], range(4)))) is Verdict.GAP
    assert (follower.last, len(engine), engine.in_sync) == (None, 0, False)


def test_a_gap_changes_nothing(follower: Follower, engine: EngineBlocks) -> None:
    follower.take(0, payload(stored([1], range(4))))
    assert follower.take(2, payload(removed(1))) is Verdict.GAP
    assert (follower.last, len(engine)) == (0, 1)


def test_the_same_message_again_is_a_duplicate(follower: Follower, engine: EngineBlocks) -> None:
    first = payload(stored([1], range(4)))
    follower.take(0, first)
    follower.take(1, payload(removed(1)))
    assert follower.take(0, first) is Verdict.DUPLICATE
    assert (follower.last, len(engine)) == (1, 0)


@pytest.mark.parametrize("number", [0, 1])
def test_another_message_under_a_number_is_of_another_life(
    follower: Follower, engine: EngineBlocks, number: int
) -> None:
    for known in range(3):
        follower.take(known, payload(stored([known], range(4))))
    message = payload(stored([9], range(4)), time=7.0)
    assert follower.take(number, message) is Verdict.OTHER_LIFE
    assert (follower.last, len(engine), engine.in_sync) == (None, 0, False)
    assert follower.take(number, message) is (Verdict.FOLLOWED if number == 0 else Verdict.GAP)
    assert follower.counts[Count.RESTARTS] == 1


def test_old_fingerprints_are_forgotten(follower: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_module, "REMEMBERED", 2)
    for number in range(3):
        follower.take(number, payload(time=number))
    assert follower.take(1, payload(time=1)) is Verdict.DUPLICATE
    assert follower.take(0, payload(time=0)) is Verdict.OTHER_LIFE


def test_what_is_lost_is_lost_until_the_cache_is_cleared(follower: Follower, engine: EngineBlocks) -> None:
    follower.take(0, payload(stored([1], range(4))))
    follower.lose(5)
    assert (len(engine), engine.in_sync) == (0, False)
    follower.take(6, payload(stored([1], range(4))))
    assert (len(engine), engine.in_sync) == (0, False)
    follower.take(7, payload(stored([2], range(4)), cleared(), stored([3], range(4)), removed(8)))
    assert (len(engine), engine.in_sync) == (1, True)
    assert follower.counts[Count.LOST] == 1


def test_in_doubt_the_view_is_kept_and_not_told(follower: Follower, engine: EngineBlocks) -> None:
    follower.take(0, payload(stored([1], range(4))))
    follower.doubt()
    follower.take(1, payload(stored([2], range(4, 8), parent=1)))
    assert (len(engine), engine.in_sync) == (2, False)
    follower.trust()
    assert engine.in_sync


def test_what_is_had_again_is_not_certain_before_its_end(follower: Follower, engine: EngineBlocks) -> None:
    follower.take(0, payload(stored([1], range(4))), live=False)
    assert not engine.in_sync
    follower.trust()
    assert engine.in_sync


def test_an_engine_that_has_sent_nothing_is_known_to_hold_nothing(
    follower: Follower, engine: EngineBlocks
) -> None:
    follower.begin()
    follower.trust()
    assert (follower.last, engine.in_sync) == (BEFORE_ALL, True)
    assert follower.take(0, payload(stored([1], range(4)))) is Verdict.FOLLOWED
    assert engine.in_sync


@pytest.mark.parametrize("bad", [b"garbage", payload({"type": "BlockStored"}, removed(1))])
def test_after_a_message_that_cannot_be_read_all_is_lost(
    follower: Follower, engine: EngineBlocks, bad: bytes
) -> None:
    follower.take(0, payload(stored([1], range(4))))
    assert follower.take(1, bad) is Verdict.FOLLOWED
    assert (follower.last, len(engine), engine.in_sync) == (1, 0, False)
    assert (follower.counts[Count.MALFORMED], follower.counts[Count.LOST]) == (1, 1)
    assert follower.take(1, bad) is Verdict.DUPLICATE


def test_events_that_nobody_knows_lose_nothing(follower: Follower, engine: EngineBlocks) -> None:
    follower.take(0, payload(stored([1], range(4)), {"type": "Tomorrow"}))
    assert engine.in_sync
    assert (follower.counts[Count.EVENTS], follower.counts[Count.UNKNOWN]) == (1, 1)


def test_an_engine_that_is_given_up_is_not_told_of() -> None:
    index = KvIndex(1)
    engine = index.join(BackendName("a"))
    follower = Follower(index, engine)
    follower.take(0, payload(stored([1, 2], range(8))))
    assert (engine.overflown, engine.in_sync) == (True, False)
    follower.take(1, payload(cleared(), stored([1], range(4))))
    assert (engine.overflown, engine.in_sync) == (False, True)
