"""The whole against a publisher on loopback: real sockets, and everything that can go wrong with them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from prefix_router.kv_events.kv_events import KvEvents
from prefix_router.kv_events.prompt_tokens import PromptTokens
from prefix_router.kv_events.source import Source
from prefix_router.kv_events.status import Count, EngineStatus
from prefix_router.kv_events.subscriber import Patience
from prefix_router.openai_api.request import parse
from prefix_router.routing.fleet import BackendName
from tests.support.kv_publisher import Publisher, cleared, removed, stored
from tests.support.waiting import eventually, until

A, B = BackendName("a"), BackendName("b")
NEVER = 3600.0
PROMPT = list(range(21))


class Counted:
    """Counters that remember."""

    def __init__(self) -> None:
        self.totals: Counter[tuple[str, Count]] = Counter()

    def counted(self, backend: BackendName, count: Count, amount: int) -> None:
        assert amount > 0
        self.totals[backend, count] += amount


class Listener:
    """A `KvEvents` and what it says."""

    def __init__(self, events: KvEvents, counted: Counted) -> None:
        self.events = events
        self.counted = counted

    async def held(self, prompt: Sequence[int] = tuple(PROMPT), **fields: Any) -> dict[str, int] | None:
        body = json.dumps({"prompt": list(prompt), **fields}).encode()
        request = parse("/v1/completions", "application/json", body, {})
        held = await self.events.holdings(request, body)
        return None if held is None else {str(name): tokens for name, tokens in held.items()}

    async def holds(self, **expected: int) -> None:
        """Wait until it says exactly this."""
        await eventually(self.held, lambda held: held == expected)

    async def knows_nothing(self) -> None:
        """Wait until it says nothing."""
        await eventually(self.held, lambda held: held is None)

    def status(self, index: int = 0) -> EngineStatus:
        return self.events.statuses()[index]

    def count(self, count: Count, backend: str = "a") -> int:
        return self.counted.totals[backend, count]


@asynccontextmanager
async def listening(model: Path, *sources: Source, **patience: float) -> AsyncIterator[Listener]:
    counted = Counted()
    events = KvEvents(
        sources,
        PromptTokens(model / "tokenizer.json"),
        counted,
        most_blocks=20_000,
        patience=Patience(
            **{"idle_seconds": NEVER, "replay_seconds": 2.0, "retry_seconds": 0.05, **patience}
        ),
    )
    events.start()
    try:
        yield Listener(events, counted)
    finally:
        await events.stop()


def source(publisher: Publisher, name: BackendName = A) -> Source:
    return Source(name, 0, publisher.endpoint, publisher.replay)


@pytest.fixture
async def publisher() -> AsyncIterator[Publisher]:
    async with Publisher() as publisher:
        yield publisher


@pytest.fixture
async def listener(model: Path, publisher: Publisher) -> AsyncIterator[Listener]:
    async with listening(model, source(publisher)) as listener:
        await publisher.subscribed()
        await listener.holds(a=0)
        yield listener


class TestFollowing:
    async def test_an_engine_that_has_sent_nothing_holds_nothing(self, listener: Listener) -> None:
        status = listener.status()
        assert (status.connected, status.out_of_sync, status.last_sequence) == (True, False, None)

    async def test_live_events(self, publisher: Publisher, listener: Listener) -> None:
        await publisher.publish(stored([1, 2], range(8)))
        await listener.holds(a=8)
        await publisher.publish(removed(2), {"type": "Tomorrow"})
        await listener.holds(a=4)
        await publisher.publish(cleared())
        await listener.holds(a=0)
        status = listener.status()
        assert (status.last_sequence, status.blocks, status.out_of_sync) == (2, 0, False)
        assert listener.count(Count.EVENTS) == 3
        assert listener.count(Count.UNKNOWN) == 1
        assert listener.count(Count.GAPS) == 0

    async def test_requests_for_chat_are_rendered(self, publisher: Publisher, listener: Listener) -> None:
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
        tokens = [1, *b"[user] hi [assistant]"]
        await publisher.publish(stored([1], tokens[:8], block_size=8))
        await until(lambda: listener.status().blocks)
        request = parse("/v1/chat/completions", "application/json", body, {})
        assert await listener.events.holdings(request, body) == {"a": 8}

    async def test_a_prompt_whose_tokens_are_not_certain_has_no_answer(self, listener: Listener) -> None:
        assert await listener.held(suffix="x") is None

    async def test_model_and_salt_are_those_of_the_request(
        self, publisher: Publisher, listener: Listener
    ) -> None:
        await publisher.publish(stored([1], range(4), lora_name="sql", extra_keys=[["sql", "pepper"]]))
        await until(lambda: listener.status().blocks)
        assert await listener.held(model="sql", cache_salt="pepper") == {"a": 4}
        assert await listener.held(model="sql") == {"a": 0}
        assert await listener.held() == {"a": 0}


class TestJoiningLate:
    async def test_what_was_before_is_had_again(self, model: Path, publisher: Publisher) -> None:
        await publisher.publish(stored([1], range(4)))
        await publisher.publish(stored([2], range(4, 8), parent=1))
        async with listening(model, source(publisher)) as listener:
            await listener.holds(a=8)
            assert publisher.asked_from == [0]
            assert listener.status().last_sequence == 1

    async def test_from_an_older_version(self, model: Path, publisher: Publisher) -> None:
        publisher.names_topic = False
        await publisher.publish(["BlockStored", [1], None, list(range(4)), 4, None])
        async with listening(model, source(publisher)) as listener:
            await listener.holds(a=4)

    async def test_too_late_for_the_beginning_until_the_cache_is_cleared(
        self, model: Path, publisher: Publisher
    ) -> None:
        await publisher.publish(stored([1], range(4)))
        await publisher.publish(stored([2], range(4, 8), parent=1))
        del publisher.buffer[0]
        async with listening(model, source(publisher)) as listener:
            await until(lambda: listener.status().last_sequence == 1)
            assert await listener.held() is None
            assert listener.status().out_of_sync
            assert listener.count(Count.LOST) == 1
            await publisher.publish(stored([3], range(4)))
            await until(lambda: listener.status().last_sequence == 2)
            assert await listener.held() is None
            await publisher.publish(cleared(), stored([1], range(4)))
            await listener.holds(a=4)

    async def test_a_clearing_that_is_had_again_is_a_beginning(
        self, model: Path, publisher: Publisher
    ) -> None:
        await publisher.publish(stored([1], range(4)))
        await publisher.publish(cleared())
        await publisher.publish(stored([2], range(4)))
        del publisher.buffer[0]
        async with listening(model, source(publisher)) as listener:
            await listener.holds(a=4)

    async def test_a_long_history_whose_answer_has_holes(self, model: Path, publisher: Publisher) -> None:
        """More than the publisher's queue holds: it drops some, and they are asked for again."""
        await publisher.publish(stored([0], range(4)))
        for number in range(1, 2_500):
            await publisher.publish(stored([number], range(number, number + 4)), sent=False)
        publisher.skipped = {1, 700, 2_000}
        async with listening(model, source(publisher)) as listener:
            await until(lambda: listener.status().last_sequence == 2_499)
            await listener.holds(a=4)
            assert listener.status().blocks == 2_500
            assert publisher.asked_from[:2] == [0, 0]
            assert len(publisher.asked_from) >= 4


class TestGaps:
    async def test_what_is_missing_is_had_again(self, publisher: Publisher, listener: Listener) -> None:
        await publisher.publish(stored([1], range(4)))
        await publisher.publish(stored([2], range(4, 8), parent=1), sent=False)
        await publisher.publish(stored([3], range(8, 12), parent=2))
        await listener.holds(a=12)
        assert publisher.asked_from[-1] == 0
        assert listener.count(Count.GAPS) == 1
        assert listener.count(Count.LOST) == 0

    async def test_messages_that_come_meanwhile_are_neither_lost_nor_followed_twice(
        self, publisher: Publisher, listener: Listener
    ) -> None:
        await publisher.publish(stored([1], range(4)))
        await publisher.publish(stored([2], range(4, 8), parent=1), sent=False)
        for number in range(3, 60):
            await publisher.publish(stored([2], range(4, 8), parent=1) if number % 2 else removed(2))
        await publisher.publish(stored([3], range(8, 12), parent=2))
        await listener.holds(a=12)
        for copies_left in range(2):
            await publisher.publish(removed(2))
            await listener.holds(a=12 if not copies_left else 4)

    async def test_what_cannot_be_had_again_is_lost(self, publisher: Publisher, listener: Listener) -> None:
        await publisher.publish(stored([1], range(4)))
        await listener.holds(a=4)
        await publisher.publish(removed(1), sent=False, buffered=False)
        await publisher.publish(stored([2], range(4, 8), parent=1))
        await until(lambda: listener.status().last_sequence == 2)
        await listener.knows_nothing()
        assert listener.status().blocks == 0
        await until(lambda: listener.count(Count.LOST) == 1)
        await publisher.publish(cleared())
        await listener.holds(a=0)

    async def test_the_silence_after_a_message_that_was_dropped_is_looked_into(
        self, model: Path, publisher: Publisher
    ) -> None:
        async with listening(model, source(publisher), idle_seconds=0.2) as listener:
            await publisher.subscribed()
            await publisher.publish(stored([1], range(4)))
            await listener.holds(a=4)
            await publisher.publish(removed(1), sent=False)
            await listener.holds(a=0)


class TestWithoutReplay:
    async def test_from_the_first_message_on_everything_is_known(self, model: Path) -> None:
        async with Publisher(replay=False) as publisher, listening(model, source(publisher)) as listener:
            await publisher.subscribed()
            assert await listener.held() is None
            await publisher.publish(stored([1], range(4)))
            await listener.holds(a=4)

    async def test_what_is_missed_is_lost_until_the_cache_is_cleared(self, model: Path) -> None:
        async with Publisher(replay=False) as publisher, listening(model, source(publisher)) as listener:
            await publisher.subscribed()
            await publisher.publish(stored([1], range(4)))
            await listener.holds(a=4)
            await publisher.publish(removed(1), sent=False)
            await publisher.publish(stored([2], range(4, 8), parent=1))
            await listener.knows_nothing()
            assert (listener.count(Count.GAPS), listener.count(Count.LOST)) == (1, 1)
            await publisher.publish(cleared())
            await listener.holds(a=0)

    async def test_a_message_that_clears_the_cache_needs_nothing_before_it(self, model: Path) -> None:
        async with Publisher(replay=False) as publisher, listening(model, source(publisher)) as listener:
            await publisher.subscribed()
            await publisher.publish(stored([1], range(4)), sent=False)
            await publisher.publish(cleared(), stored([1], range(4)))
            await listener.holds(a=4)

    async def test_after_a_connection_was_lost_only_a_new_beginning_is_believed(self, model: Path) -> None:
        async with Publisher(replay=False) as publisher:
            port = int(publisher.endpoint.rpartition(":")[2])
            async with listening(model, source(publisher)) as listener:
                await publisher.subscribed()
                await publisher.publish(stored([1], range(4)))
                await listener.holds(a=4)
                await publisher.__aexit__(None, None, None)
                await listener.knows_nothing()
                async with Publisher(replay=False, port=port) as reborn:
                    await reborn.subscribed()
                    reborn.number = 1
                    await reborn.publish(stored([1], range(4)))
                    await until(lambda: listener.status().last_sequence == 1)
                    assert await listener.held() is None
                    await reborn.publish(cleared())
                    await listener.holds(a=0)
                    reborn.restart()
                    await reborn.publish(stored([9], range(4)))
                    await listener.holds(a=4)
                await publisher.__aenter__()


class TestRestarts:
    async def test_on_the_same_connection(self, publisher: Publisher, listener: Listener) -> None:
        for _ in range(3):
            await publisher.publish(stored([1], range(4)))
        await listener.holds(a=4)
        publisher.restart()
        await publisher.publish(stored([1, 2], range(8)))
        await listener.holds(a=8)
        assert listener.status().last_sequence == 0
        assert listener.count(Count.RESTARTS) == 1

    @pytest.mark.parametrize("messages", [0, 2, 5], ids=["nothing sent", "fewer sent", "more sent"])
    async def test_on_another_connection(self, model: Path, messages: int) -> None:
        async with Publisher() as publisher:
            ports = [
                int(str(address).rpartition(":")[2]) for address in (publisher.endpoint, publisher.replay)
            ]
            async with listening(model, source(publisher)) as listener:
                await publisher.subscribed()
                for _ in range(3):
                    await publisher.publish(stored([1], range(4)))
                await listener.holds(a=4)
                await publisher.__aexit__(None, None, None)
                await listener.knows_nothing()
                assert not listener.status().connected
                async with Publisher(port=ports[0], replay_port=ports[1]) as reborn:
                    reborn.life = 1
                    for number in range(messages):
                        await reborn.publish(stored([9 + number], range(100 + number, 104 + number)))
                    await listener.holds(a=0)
                    assert listener.status().blocks == messages
                    await reborn.publish(stored([5], range(4)))
                    await listener.holds(a=4)
                await publisher.__aenter__()

    async def test_a_connection_that_comes_back_to_the_same_engine_costs_nothing(self, model: Path) -> None:
        async with Publisher() as publisher:
            ports = [
                int(str(address).rpartition(":")[2]) for address in (publisher.endpoint, publisher.replay)
            ]
            async with listening(model, source(publisher)) as listener:
                await publisher.subscribed()
                await publisher.publish(stored([1], range(4)))
                await listener.holds(a=4)
                await publisher.__aexit__(None, None, None)
                await listener.knows_nothing()
                assert listener.status().blocks == 1, "kept, and not told"
                async with Publisher(port=ports[0], replay_port=ports[1]) as same:
                    same.number, same.buffer = publisher.number, publisher.buffer
                    await listener.holds(a=4)
                    await same.publish(stored([2], range(4, 8), parent=1))
                    await listener.holds(a=8)
                await publisher.__aenter__()

    async def test_one_that_has_forgotten_what_was_followed_is_lost(self, model: Path) -> None:
        async with Publisher() as publisher:
            ports = [
                int(str(address).rpartition(":")[2]) for address in (publisher.endpoint, publisher.replay)
            ]
            async with listening(model, source(publisher)) as listener:
                await publisher.subscribed()
                await publisher.publish(stored([1], range(4)))
                await listener.holds(a=4)
                await publisher.__aexit__(None, None, None)
                async with Publisher(port=ports[0], replay_port=ports[1]) as same:
                    same.number = 5
                    await same.publish(stored([2], range(4, 8), parent=1))
                    await until(lambda: listener.status().last_sequence == 5)
                    assert await listener.held() is None
                    assert listener.status().blocks == 0
                await publisher.__aenter__()


class TestRubbish:
    @pytest.mark.parametrize(
        "frames", [[b"kv"], [b"kv", b"short", b"x"], [b"kv", b"\0" * 8, b"a", b"b"], [b"", b"", b""]]
    )
    async def test_a_message_that_is_none_is_counted(
        self, publisher: Publisher, listener: Listener, frames: list[bytes]
    ) -> None:
        await publisher.send_frames(*frames)
        await publisher.publish(stored([1], range(4)))
        await listener.holds(a=4)
        await until(lambda: listener.count(Count.MALFORMED) == 1)

    async def test_a_batch_that_cannot_be_read_hides_what_it_said(
        self, publisher: Publisher, listener: Listener
    ) -> None:
        await publisher.publish(stored([1], range(4)))
        await listener.holds(a=4)
        await publisher.publish_bytes(b"\xc1rubbish")
        await listener.knows_nothing()
        await until(lambda: listener.count(Count.MALFORMED) == 1)
        assert listener.count(Count.LOST) == 1
        await publisher.publish(cleared())
        await listener.holds(a=0)

    async def test_a_number_out_of_nowhere_is_recovered_from(
        self, publisher: Publisher, listener: Listener
    ) -> None:
        await publisher.publish(stored([1], range(4)))
        await listener.holds(a=4)
        await publisher.send_frames(b"kv", b"\x7f" * 8, msgspec.msgpack.encode([0.0, [], 0]))
        await listener.knows_nothing()
        await publisher.publish(stored([2], range(4, 8), parent=1))
        await listener.holds(a=8)


class TestSilence:
    async def test_a_replay_socket_that_does_not_answer_is_asked_again(
        self, model: Path, publisher: Publisher
    ) -> None:
        publisher.answers = False
        await publisher.publish(stored([1], range(4)))
        async with listening(model, source(publisher), replay_seconds=0.05) as listener:
            await until(lambda: len(publisher.asked_from) >= 3)
            assert await listener.held() is None
            await publisher.publish(stored([2], range(4, 8), parent=1))
            publisher.answers = True
            await listener.holds(a=8)

    async def test_nobody_there(self, model: Path) -> None:
        async with Publisher() as gone:
            address = source(gone)
        async with listening(model, address) as listener:
            await asyncio.sleep(0)
            assert await listener.held() is None
            assert not listener.status().connected

    async def test_an_address_that_cannot_be_is_logged_and_does_not_end_anything(
        self, model: Path, publisher: Publisher, caplog: pytest.LogCaptureFixture
    ) -> None:
        bad = Source(B, 0, "nonsense://127.0.0.1:1", None)
        async with listening(model, source(publisher), bad) as listener:
            await listener.holds(a=0)
            await until(lambda: "KV events of b" in caplog.text)


class TestTheFleet:
    async def test_each_backend_is_followed(self, model: Path, publisher: Publisher) -> None:
        async with Publisher() as other, listening(model, source(publisher), source(other, B)) as listener:
            await listener.holds(a=0, b=0)
            await publisher.subscribed()
            await publisher.publish(stored([1], range(4)))
            await listener.holds(a=4, b=0)

    async def test_a_backend_that_stays_keeps_what_is_known_of_it(
        self, model: Path, publisher: Publisher, listener: Listener
    ) -> None:
        await publisher.publish(stored([1], range(4)))
        await listener.holds(a=4)
        async with Publisher() as other:
            listener.events.update([source(publisher), source(other, B)])
            assert await listener.held() == {"a": 4}
            await listener.holds(a=4, b=0)
            assert [status.backend for status in listener.events.statuses()] == ["a", "b"]
            listener.events.update([source(other, B)])
            assert await listener.held() == {"b": 0}
            listener.events.update([])
            assert await listener.held() is None

    async def test_a_backend_that_moves_is_another_engine(
        self, publisher: Publisher, listener: Listener
    ) -> None:
        await publisher.publish(stored([1], range(4)))
        await listener.holds(a=4)
        async with Publisher() as other:
            await other.publish(stored([1, 2], range(8)))
            listener.events.update([source(other)])
            assert await listener.held() is None
            await listener.holds(a=8)

    async def test_an_engine_that_holds_too_much_is_not_told_of(
        self, publisher: Publisher, listener: Listener
    ) -> None:
        listener.events.update([source(publisher)], most_blocks=1)
        await publisher.publish(stored([1, 2], range(8)))
        await until(lambda: listener.status().last_sequence == 0)
        assert listener.status().out_of_sync
        assert await listener.held() is None

    async def test_stopping_twice(self, listener: Listener) -> None:
        await listener.events.stop()
        await listener.events.stop()
        assert listener.events.statuses() == []


def test_it_works_on_the_event_loop_of_the_router(model: Path) -> None:
    async def follow() -> None:
        async with Publisher() as publisher, listening(model, source(publisher)) as listener:
            await publisher.subscribed()
            await publisher.publish(stored([1], range(4)), sent=False)
            await publisher.publish(stored([2], range(4, 8), parent=1))
            await listener.holds(a=8)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(follow())
