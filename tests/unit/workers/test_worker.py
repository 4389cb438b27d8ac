"""A worker in the test's own event loop; the test plays the pool."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from prefix_router.routing.fleet import Backend, BackendName, BackendState
from prefix_router.routing.health import HealthEvent
from prefix_router.routing.strategies.shared import Ended, Note, Sent
from prefix_router.settings.model import Settings
from prefix_router.workers import worker as worker_module
from prefix_router.workers.channel import Channel
from prefix_router.workers.journal import Journal, JournalPeers
from prefix_router.workers.messages import (
    Begin,
    Confirmed,
    Continues,
    Evidence,
    Failed,
    FleetView,
    MemberView,
    ModelsRefreshed,
    Ready,
    Recall,
    Reconfigure,
    RefreshModels,
    Remember,
    Report,
    Stop,
    Tell,
    ToPool,
    ToWorker,
)
from prefix_router.workers.shared_counts import SharedCounts
from prefix_router.workers.worker import serve
from tests.support.router import RawAnswer, chat, read_answer, request_bytes, settings_for
from tests.support.scripted_backend import Conversation, ScriptedBackend, answering
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


class Pool:
    """The other end of a worker's line."""

    def __init__(self, settings: Settings, *urls: str) -> None:
        self.settings = structs.replace(settings, workers=2)
        self.urls = urls
        self.heard: list[ToPool] = []
        self.counts = SharedCounts.create(workers=2)
        self.journal = Journal.create(workers=2)
        self.line: Channel[ToPool, ToWorker] = Channel(ToPool, self.heard.append, lambda: None)
        self.port = 0

    def of(self, kind: type[ToPool]) -> list[ToPool]:
        return [message for message in self.heard if isinstance(message, kind)]

    @property
    def reports(self) -> list[Report]:
        return [message for message in self.heard if isinstance(message, Report)]

    @property
    def evidence(self) -> list[Evidence]:
        return [evidence for report in self.reports for evidence in report.evidence]

    def view(
        self, version: int = 1, state: BackendState = BackendState.HEALTHY, **fields: object
    ) -> FleetView:
        members = [
            MemberView(Backend(BackendName(chr(97 + at)), url), None, state, False, at)
            for at, url in enumerate(self.urls)
        ]
        return FleetView(version, 16, tuple(members))

    async def ask(
        self, body: dict[str, object] | None = None, path: str = "/v1/chat/completions"
    ) -> RawAnswer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request_bytes(body or chat(), path))
        try:
            return await asyncio.wait_for(read_answer(reader), 10)
        finally:
            writer.close()


@asynccontextmanager
async def begun(pool: Pool) -> AsyncIterator[asyncio.Future[int]]:
    """Start a worker and let it begin; yields what it will return."""
    ours, theirs = socket.socketpair()
    await pool.line.open(ours)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        pool.port = bound.getsockname()[1]
        status = asyncio.ensure_future(serve(theirs, os.dup(pool.counts.descriptor)))
        listeners = (os.dup(bound.fileno()),)
        journal = pool.journal.descriptor
        pool.line.send(Begin(pool.settings, 1, pool.counts.bells, journal, listeners, pool.view()))
    try:
        yield status
    finally:
        pool.line.close()
        await asyncio.wait_for(status, 10)
        pool.counts.close()
        pool.journal.close()


@asynccontextmanager
async def serving(*urls: str, **sections: object) -> AsyncIterator[tuple[Pool, asyncio.Future[int]]]:
    pool = Pool(settings_for(urls, **sections), *urls)
    async with begun(pool) as status:
        await until(lambda: pool.of(Ready))
        yield pool, status


async def test_a_worker_serves_on_the_socket_it_is_given_and_reports_what_it_served() -> None:
    async with ScriptedBackend(answering(b'{"n": 1}')) as a, serving(a.url) as (pool, _):
        answer = await pool.ask()
        assert (answer.status, answer.json()) == (200, {"n": 1})
        await until(lambda: [event for report in pool.reports for event in report.finished])
        [event] = [event for report in pool.reports for event in report.finished]
        assert (event.backend, event.status) == ("a", 200)
        assert HealthEvent.REQUEST_OK in [evidence.event for evidence in pool.evidence]


async def test_it_counts_leases_in_the_shared_memory() -> None:
    release = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        while await conversation.request() is not None:
            await release.wait()
            await conversation.respond()

    async with ScriptedBackend(script) as a, serving(a.url) as (pool, _):
        asking = asyncio.ensure_future(pool.ask())
        counter = pool.counts.in_flight(0, 2)
        await until(lambda: counter.count == 1)
        pool.line.send(Tell(5))
        await until(lambda: any(report.answers == 5 for report in pool.reports))
        assert pool.reports[-1].active == 1
        release.set()
        await asking
        assert counter.count == 0


async def test_it_says_now_and_then_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "HEARTBEAT_SECONDS", 0.01)
    async with serving("http://127.0.0.1:1") as (pool, _):
        await until(lambda: len(pool.reports) >= 3)


async def test_it_decides_on_the_newest_fleet_and_confirms_it() -> None:
    async with ScriptedBackend(answering(b"1")) as a, ScriptedBackend(answering(b"2")) as b:
        async with serving(a.url) as (pool, _):
            assert (await pool.ask()).body == b"1"
            pool.urls = (b.url,)
            pool.line.send(pool.view(2, BackendState.DOWN))
            pool.line.send(pool.view(3))
            await until(lambda: Confirmed(3) in pool.heard)
            assert (await pool.ask()).body == b"2"


async def test_new_settings_come_into_force_together_with_their_fleet() -> None:
    async with ScriptedBackend(answering(b"1")) as a, ScriptedBackend(answering(b"2")) as b:
        async with serving(a.url) as (pool, _):
            pool.urls = (a.url, b.url)
            changed = settings_for(
                pool.urls, response_headers={"decision": False}, logging={"level": "error"}
            )
            pool.line.send(Reconfigure(structs.replace(changed, workers=2), pool.view(2)))
            await until(lambda: Confirmed(2) in pool.heard)
            answers = [await pool.ask(chat(f"text {number}")) for number in range(16)]
            assert {answer.body for answer in answers} == {b"1", b"2"}
            assert {answer.header("x-prefix-router-backend") for answer in answers} == {None}
            assert logging.getLogger().level == logging.ERROR


async def test_settings_that_cannot_be_used_leave_the_old_ones_and_the_new_fleet(tmp_path: Path) -> None:
    async with ScriptedBackend(answering(b"1")) as a, ScriptedBackend(answering(b"2")) as b:
        async with serving(a.url) as (pool, _):
            pool.urls = (b.url,)
            tokenizer = tmp_path / "tokenizer.json"
            tokenizer.write_text("{}")
            changed = settings_for(pool.urls, routing={"prefix": {"tokenizer": str(tokenizer)}})
            pool.line.send(Reconfigure(structs.replace(changed, workers=2), pool.view(2)))
            await until(lambda: Confirmed(2) in pool.heard)
            assert (await pool.ask()).body == b"2"


async def test_it_hands_on_what_it_learns_about_backends() -> None:
    async with serving("http://127.0.0.1:1") as (pool, _):
        assert (await pool.ask()).status == 502
        await until(lambda: pool.evidence)
        assert (pool.evidence[0].name, pool.evidence[0].event) == ("a", HealthEvent.UNREACHABLE)


async def test_it_asks_the_pool_for_models_and_for_responses_that_it_has_not_seen() -> None:
    async with ScriptedBackend(answering(b'{"id": "resp_1", "object": "response"}')) as a:
        async with serving(a.url) as (pool, _):
            await pool.ask({"input": "hello"}, "/v1/responses")
            await until(lambda: Remember("resp_1", BackendName("a")) in pool.heard)
            asking = asyncio.ensure_future(
                pool.ask({"input": "go on", "previous_response_id": "resp_9"}, "/v1/responses")
            )
            await until(lambda: Recall("resp_9") in pool.heard)
            pool.line.send(Continues("resp_9", BackendName("a")))
            assert (await asking).header("x-prefix-router-reason") == "continuation"

            only_x = structs.replace(
                pool.view(2),
                members=tuple(
                    structs.replace(member, backend=Backend(BackendName("a"), a.url, 1, frozenset({"x"})))
                    for member in pool.view().members
                ),
            )
            pool.line.send(only_x)
            await until(lambda: Confirmed(2) in pool.heard)
            asking = asyncio.ensure_future(pool.ask(chat(model="y")))
            await until(lambda: pool.of(RefreshModels))
            pool.line.send(pool.view(3))
            pool.line.send(ModelsRefreshed())
            assert (await asking).status == 200


async def test_what_it_sends_where_is_in_the_journal_while_its_strategy_learns_from_it() -> None:
    async with (
        ScriptedBackend(answering(b"{}")) as a,
        serving(a.url, routing={"strategy": "adaptive"}) as (pool, _),
    ):
        other = JournalPeers(pool.journal, 2)
        await pool.ask()
        notes: list[tuple[int, Note]] = []

        def heard() -> int:
            notes.extend(other.read())
            return len(notes)

        await until(lambda: heard() == 2)
        assert [type(note) for _, note in notes] == [Sent, Ended]
        pool.line.send(Reconfigure(structs.replace(settings_for([a.url]), workers=2), pool.view(2)))
        await until(lambda: Confirmed(2) in pool.heard)
        await pool.ask()
        assert not other.read()


async def test_told_to_stop_it_lets_requests_end_and_reports_them_and_exits() -> None:
    release = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        while await conversation.request() is not None:
            await release.wait()
            await conversation.respond()

    async with ScriptedBackend(script) as a, serving(a.url) as (pool, status):
        asking = asyncio.ensure_future(pool.ask())
        await until(lambda: a.work)
        pool.line.send(Stop(10, 0))
        release.set()
        assert (await asking).status == 200
        assert await status == 0
        assert sum(len(report.finished) for report in pool.reports) == 1


@pytest.mark.parametrize("patience", [Stop(60, 0), None], ids=["told again", "pool gone"])
async def test_it_does_not_wait_for_requests_when_it_has_to_hurry(patience: Stop | None) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.client_gone()

    grace = {"shutdown_grace_seconds": 0.01}
    async with ScriptedBackend(script) as a, serving(a.url, timeouts=grace) as (pool, status):
        asking = asyncio.ensure_future(pool.ask())
        await until(lambda: a.work)
        if patience is None:
            pool.line.close()
        else:
            pool.line.send(patience)
            pool.line.send(Stop(0, 0))
        assert await asyncio.wait_for(status, 10) == 0
        assert (await asyncio.gather(asking, return_exceptions=True))[0] is not None


async def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text("{}")
    pool = Pool(settings_for(["http://127.0.0.1:1"], routing={"prefix": {"tokenizer": str(tokenizer)}}))
    async with begun(pool) as status:
        assert await status == 1
        await until(lambda: pool.of(Failed))
        [failed] = pool.of(Failed)
        assert isinstance(failed, Failed)
        assert str(tokenizer) in failed.cause


async def test_a_worker_whose_pool_is_gone_before_it_began_exits() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    assert await serve(theirs, -1) == 0
