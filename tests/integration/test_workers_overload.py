"""More requests than the backends may get, behind several workers: one limit, one order of arrival."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.router import RawAnswer, chat, read_answer, request_bytes
from tests.support.scripted_backend import Conversation, ScriptedBackend
from tests.support.turnstile import Turnstile
from tests.support.waiting import eventually, until
from tests.support.workers import Workers, workers

LIMIT_ONE = {"max_in_flight_per_backend": 1}
PATIENCE_SECONDS = 15


@dataclass
class Client:
    """A connection, and so a client of one worker."""

    worker: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, text: str) -> asyncio.Task[RawAnswer]:
        self.writer.write(request_bytes(chat(text)))
        return asyncio.create_task(self._answer())

    async def ask(self, text: str) -> RawAnswer:
        return await self.send(text)

    async def _answer(self) -> RawAnswer:
        return await asyncio.wait_for(read_answer(self.reader), PATIENCE_SECONDS)


@dataclass
class Two:
    """Two workers, with the clients of each, and one backend that holds their requests up."""

    router: Workers
    turnstile: Turnstile
    here: list[Client] = field(default_factory=list)
    there: list[Client] = field(default_factory=list)

    async def send(self, client: Client, text: str) -> asyncio.Task[RawAnswer]:
        """Send a request; it is at the backend or in line when this returns."""
        before = await self.requests()
        task = client.send(text)
        await eventually(self.requests, lambda count: count == before + 1)
        return task

    async def requests(self) -> int:
        """Requests that run, waiting ones included."""
        return int((await self.router.status())["active_requests"])

    async def waiting(self) -> int:
        return int((await self.router.status())["waiting_requests"])

    async def reaches_backend(self, count: int) -> None:
        """Wait until the backend has got so many requests."""
        await until(lambda: len(self.turnstile.order) == count)

    async def calm(self) -> None:
        """Wait until nothing is counted any more."""
        await eventually(self.router.in_flight, lambda counts: set(counts.values()) == {0})
        await eventually(self.requests, lambda count: count == 0)
        await eventually(self.waiting, lambda count: count == 0)


@asynccontextmanager
async def two_workers(
    directory: Path, turnstile: Turnstile, each: int = 3, **sections: Any
) -> AsyncIterator[Two]:
    """Run a router with two workers, and connect `each` clients to each of them."""
    async with ScriptedBackend(turnstile) as backend, workers(directory, backend.url, **sections) as router:
        two = Two(router, turnstile)
        clients: list[Client] = []
        try:
            await connect(two, clients, each)
            yield two
        finally:
            for client in clients:
                client.writer.close()


async def connect(two: Two, clients: list[Client], each: int) -> None:
    """Open connections until both workers have enough; a request that is held up shows whose each one is."""
    first, _ = await two.router.active()
    while min(len(two.here), len(two.there)) < each:
        reader, writer = await asyncio.open_connection("127.0.0.1", two.router.router.port)
        client = Client(0, reader, writer)
        clients.append(client)
        answer = client.send("hello")
        active = await eventually(two.router.active, lambda active: sum(active.values()) == 1)
        client.worker = next(pid for pid, count in active.items() if count)
        (two.here if client.worker == first else two.there).append(client)
        two.turnstile.let_through()
        assert (await answer).status == 200
        await two.calm()
    two.turnstile.order.clear()
    two.turnstile.highest = 0


# The limit.


async def test_a_burst_over_all_workers_keeps_the_limit_and_everybody_is_served(tmp_path: Path) -> None:
    turnstile = Turnstile(open=True)
    async with ScriptedBackend(turnstile) as backend:
        async with workers(tmp_path, backend.url, limits={"max_in_flight_per_backend": 4}) as router:
            two = Two(router, turnstile)
            answers = await asyncio.gather(*(router.ask(f"{number}") for number in range(200)))
            assert {answer.status for answer in answers} == {200}
            assert turnstile.highest == 4
            assert len(turnstile.order) == 200
            await two.calm()


async def test_without_a_line_a_burst_is_served_or_told_that_the_limit_is_reached(tmp_path: Path) -> None:
    turnstile = Turnstile(open=True)
    sections: dict[str, Any] = {"limits": {"max_in_flight_per_backend": 2}, "queue": {"max_waiting": 0}}
    async with ScriptedBackend(turnstile) as backend:
        async with workers(tmp_path, backend.url, **sections) as router:
            answers = await asyncio.gather(*(router.ask(f"{number}") for number in range(200)))
            reasons = {answer.header("x-prefix-router-reason") for answer in answers}
            assert {answer.status for answer in answers} == {200, 429}
            assert reasons == {"affinity", "queue_full"}
            assert turnstile.highest <= 2
            await Two(router, turnstile).calm()


# The line.


async def test_who_waits_is_served_when_a_lease_of_another_worker_ends(tmp_path: Path) -> None:
    turnstile = Turnstile()
    async with two_workers(tmp_path, turnstile, limits=LIMIT_ONE) as two:
        held = await two.send(two.here[0], "held")
        waiters = [await two.send(client, "waits") for client in two.there]
        assert await two.waiting() == len(waiters)
        assert turnstile.order == ["held"]
        turnstile.let_through()
        assert (await held).status == 200
        for served, waiter in enumerate(waiters, start=1):
            await two.reaches_backend(1 + served)
            turnstile.let_through()
            assert (await waiter).status == 200
        assert turnstile.highest == 1
        await two.calm()


async def test_who_waits_is_served_in_order_of_arrival_whichever_worker_it_came_to(tmp_path: Path) -> None:
    turnstile = Turnstile()
    async with two_workers(tmp_path, turnstile, each=4, limits=LIMIT_ONE) as two:
        tasks = [await two.send(two.here.pop(), "held")]
        for number in range(3):
            tasks.append(await two.send(two.there.pop(), f"there {number}"))
            tasks.append(await two.send(two.here.pop(), f"here {number}"))
        for served in range(1, len(tasks) + 1):
            await two.reaches_backend(served)
            turnstile.let_through()
        assert {(await task).status for task in tasks} == {200}
        expected = [f"{side} {number}" for number in range(3) for side in ("there", "here")]
        assert turnstile.order == ["held", *expected]
        await two.calm()


async def test_a_newcomer_does_not_overtake_the_line_of_another_worker(tmp_path: Path) -> None:
    turnstile = Turnstile()
    async with two_workers(tmp_path, turnstile, limits=LIMIT_ONE) as two:
        held = await two.send(two.here[0], "held")
        waiter = await two.send(two.there[0], "waits")
        # Its answer has barely arrived when the next request of that client does.
        turnstile.let_through()
        assert (await held).status == 200
        newcomer = two.here[0].send("comes later")
        turnstile.let_all_through()
        assert (await waiter).status == (await newcomer).status == 200
        assert turnstile.order == ["held", "waits", "comes later"]


async def test_each_worker_has_a_line_of_its_own_length(tmp_path: Path) -> None:
    turnstile = Turnstile()
    async with two_workers(tmp_path, turnstile, limits=LIMIT_ONE, queue={"max_waiting": 1}) as two:
        tasks = [await two.send(two.here[0], "held")]
        for clients in (two.here, two.there):
            tasks.append(await two.send(clients[1], "waits"))
            refused = await clients[2].ask("one too many")
            assert (refused.status, refused.header("x-prefix-router-reason")) == (429, "queue_full")
            assert 1 <= int(refused.header("retry-after") or 0) <= 60
            assert json.loads(refused.body)["error"]["code"] == "queue_full"
        turnstile.let_all_through()
        assert {(await task).status for task in tasks} == {200}
        assert "one too many" not in turnstile.order
        await two.calm()


async def test_who_waits_too_long_for_a_lease_of_another_worker_hears_so(tmp_path: Path) -> None:
    turnstile = Turnstile()
    async with two_workers(tmp_path, turnstile, limits=LIMIT_ONE, queue={"timeout_seconds": 0.1}) as two:
        held = await two.send(two.here[0], "held")
        late = await two.there[0].ask("waits in vain")
        assert (late.status, late.header("x-prefix-router-reason")) == (429, "queue_timeout")
        assert 1 <= int(late.header("retry-after") or 0) <= 60
        turnstile.let_all_through()
        assert (await held).status == 200
        assert "waits in vain" not in turnstile.order
        await two.calm()
        assert (await two.here[0].ask("later")).status == 200


async def test_when_the_last_backend_goes_nobody_waits_for_it_in_any_worker(tmp_path: Path) -> None:
    turnstile = Turnstile()
    async with two_workers(tmp_path, turnstile, limits=LIMIT_ONE) as two:
        held = await two.send(two.here[0], "held")
        waiters = [await two.send(client, "waits") for client in (two.here[1], two.there[1])]
        assert (await two.router.admin("/backends/a/drain", post=True))[0] == 200
        for waiter in waiters:
            answer = await waiter
            assert (answer.status, answer.header("x-prefix-router-reason")) == (503, "no_backend_available")
            assert answer.header("retry-after") == "1"
        turnstile.let_all_through()
        assert (await held).status == 200
        await two.calm()


# A worker that dies.


async def test_the_places_of_a_killed_worker_go_to_who_waits_in_another(tmp_path: Path) -> None:
    turnstile = Turnstile()
    async with two_workers(tmp_path, turnstile, limits={"max_in_flight_per_backend": 2}) as two:
        lost = [await two.send(client, "lost") for client in two.here[:2]]
        waiters = [await two.send(client, "waits") for client in two.there[:2]]
        assert turnstile.order == ["lost", "lost"]
        os.kill(two.here[0].worker, signal.SIGKILL)
        await asyncio.wait(lost)
        assert all(task.exception() for task in lost)
        await until(lambda: turnstile.order == ["lost", "lost", "waits", "waits"])
        turnstile.let_all_through()
        assert {(await waiter).status for waiter in waiters} == {200}
        await two.calm()


async def test_the_line_of_a_killed_worker_holds_up_nobody(tmp_path: Path) -> None:
    turnstile = Turnstile()
    async with two_workers(tmp_path, turnstile, limits=LIMIT_ONE) as two:
        held = await two.send(two.there[0], "held")
        lost = await two.send(two.here[0], "lost")
        waiter = await two.send(two.there[1], "waits")
        os.kill(two.here[0].worker, signal.SIGKILL)
        await asyncio.wait([lost])
        assert lost.exception()
        turnstile.let_all_through()
        assert (await held).status == (await waiter).status == 200
        assert turnstile.order == ["held", "waits"]
        await two.calm()


async def test_the_line_of_a_worker_that_hangs_holds_up_nobody_for_long(tmp_path: Path) -> None:
    turnstile = Turnstile()
    async with two_workers(tmp_path, turnstile, limits=LIMIT_ONE) as two:
        held = await two.send(two.there[0], "held")
        stuck = await two.send(two.here[0], "stuck")
        waiter = await two.send(two.there[1], "waits")
        os.kill(two.here[0].worker, signal.SIGSTOP)
        turnstile.let_all_through()
        assert (await held).status == (await waiter).status == 200
        assert turnstile.order == ["held", "waits"]
        os.kill(two.here[0].worker, signal.SIGCONT)
        assert (await stuck).status == 200
        await two.calm()


# The retry budget.


@dataclass
class Moody:
    """A script that answers, or, once it is out of order, closes without an answer."""

    out_of_order: bool = False

    async def __call__(self, conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.method == "POST" and self.out_of_order:
                return
            await conversation.respond()


async def test_the_retry_budget_of_a_worker_is_a_share_of_its_own_requests(tmp_path: Path) -> None:
    moody, turnstile = Moody(), Turnstile()
    sections: dict[str, Any] = {
        "retry": {"budget_ratio": 0.25, "budget_min_per_second": 0, "max_attempts": 3},
        "health": {"interval_seconds": 3600, "request_failures": 1000},
    }
    async with ScriptedBackend(turnstile) as a, ScriptedBackend(moody) as b, ScriptedBackend(moody) as c:
        async with workers(tmp_path, a.url, **sections) as router:
            two = Two(router, turnstile)
            clients: list[Client] = []
            await connect(two, clients, 1)
            router.config.write_text(
                json.dumps(
                    {
                        **json.loads(router.config.read_text()),
                        "backends": [{"name": "b", "url": b.url}, {"name": "c", "url": c.url}],
                    }
                )
            )
            assert (await router.admin("/reload", post=True))[0] == 200
            rich, poor = two.here[0], two.there[0]
            for number in range(40):
                assert (await rich.ask(f"{number}")).status == 200
            moody.out_of_order = True
            for number in range(7):
                assert (await poor.ask(f"{number}")).status == 502
            # One retry for four requests, of its own: those by which it was found out, and these seven.
            denied = max(7 - (len(two.there) + 7) // 4, 0)
            assert await router.metric("retries_denied_total") == denied
            for number in range(10):
                assert (await rich.ask(f"{number}")).status == 502
            assert await router.metric("retries_denied_total") == denied
            for client in clients:
                client.writer.close()
