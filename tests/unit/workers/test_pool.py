"""The pool in the test's own event loop, with real worker processes."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from prefix_router.app import Router
from prefix_router.routing.fleet import BackendState
from prefix_router.routing.strategies.shared import Gone
from prefix_router.workers import pool as pool_module
from prefix_router.workers import process as process_module
from prefix_router.workers.journal import JournalPeers
from prefix_router.workers.pool import WorkerPool, _pause
from prefix_router.workers.shared_counts import SharedInFlight
from tests.support.router import ask, chat, running_router, settings_for
from tests.support.scripted_backend import ScriptedBackend, answering
from tests.support.waiting import eventually, until

NOWHERE = "http://127.0.0.1:1"


def pids(router: Router) -> list[int]:
    return [worker["pid"] for worker in router.status()["workers"] if worker["ready"]]


async def test_a_router_with_workers_serves_counts_and_stops() -> None:
    async with ScriptedBackend(answering(b"good")) as a, running_router(a.url, workers=2) as router:
        assert router.not_ready() in (None, "backends have not all been asked yet")
        assert len(pids(router)) == 2
        for number in range(8):
            assert (await ask(router, chat(f"text {number}"))).body == b"good"
        await until(lambda: router.totals.requests == 8)
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", router.port)


async def test_a_router_with_one_process_has_no_pool_and_shares_nothing() -> None:
    async with running_router(NOWHERE) as router:
        assert "workers" not in router.status()
        assert type(router.store.fleet.members[0].in_flight).__name__ == "InFlight"
        assert b"prefix_router_workers 1.0" in router.metrics.render()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("-c", "raise SystemExit(3)"), "worker 1 cannot start: it exited with status 3"),
        (("-c", "import os; os.kill(os.getpid(), 9)"), "worker 1 cannot start: it was killed by signal 9"),
    ],
)
async def test_workers_that_cannot_start_are_said_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], why: str
) -> None:
    monkeypatch.setattr(process_module, "_COMMAND", command)
    router = Router(settings_for([NOWHERE], workers=2))
    with pytest.raises(OSError, match=why.replace("1", "[12]", 1)):
        await router.start()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", router.port)


async def test_an_interpreter_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    router = Router(settings_for([NOWHERE], workers=2))
    with pytest.raises(OSError, match=r"worker [12] cannot start: .*No such file"):
        await router.start()


async def test_a_worker_that_stands_still_holds_up_no_scrape_and_is_replaced_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "COLLECT_SECONDS", 0.05)
    async with ScriptedBackend(answering()) as a, running_router(a.url, workers=2) as router:
        monkeypatch.setattr(pool_module, "TICK_SECONDS", 0.25)
        monkeypatch.setattr(pool_module, "SILENT_TICKS", 12)  # others speak once a second
        frozen, _ = pids(router)
        os.kill(frozen, signal.SIGSTOP)
        await router._data.collect()
        assert frozen in pids(router)
        await until(lambda: router.status()["worker_restarts"] == 1)
        await until(lambda: len(pids(router)) == 2)
        assert frozen not in pids(router)
        assert (await ask(router, chat())).status == 200


async def test_the_other_workers_hear_that_one_has_died() -> None:
    async with running_router(NOWHERE, workers=2) as router:
        pool = router._data
        assert isinstance(pool, WorkerPool)
        os.kill(router.status()["workers"][1]["pid"], signal.SIGKILL)
        await until(lambda: router.status()["worker_restarts"] == 1)
        [(worker, note)] = JournalPeers(pool._journal, 1).read()
        assert (worker, type(note)) == (2, Gone)


async def test_a_worker_that_ignores_the_end_of_its_grace_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_END_SECONDS", 0.05)
    async with running_router(NOWHERE, workers=2) as router:
        os.kill(pids(router)[0], signal.SIGSTOP)
    assert pids(router) == []


async def test_a_worker_that_keeps_dying_is_restarted_with_pauses_while_the_other_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[int] = []

    def pause(died_young: int) -> float:
        pauses.append(died_young)
        return 0.01 if died_young > 1 else 0

    monkeypatch.setattr(pool_module, "_pause", pause)
    async with ScriptedBackend(answering()) as a, running_router(a.url, workers=2) as router:
        victim, other = router.status()["workers"]
        monkeypatch.setattr(process_module, "_COMMAND", ("-c", "raise SystemExit(3)"))
        os.kill(victim["pid"], signal.SIGKILL)
        await until(lambda: len(pauses) >= 3)
        assert pauses[:3] == [1, 2, 3]
        assert pids(router) == [other["pid"]]
        assert (await ask(router, chat())).status == 200
        monkeypatch.undo()
        await until(lambda: len(pids(router)) == 2)


def test_pauses_grow_and_are_bounded() -> None:
    assert [_pause(died_young) for died_young in range(6)] == [0, 0, 0.5, 1, 2, 4]
    assert _pause(1000) == 30


async def test_evidence_and_reloads_change_the_one_fleet() -> None:
    async with ScriptedBackend(answering()) as a, ScriptedBackend(answering(b"2")) as b:
        async with running_router(a.url, workers=2) as router:
            await until(lambda: router.not_ready() is None)
            await a.stop()
            assert (await ask(router, chat())).status == 502
            await until(lambda: router.store.fleet.members[0].state is BackendState.DOWN)
            await router.reload(settings_for([b.url], workers=2))
            assert [(await ask(router, chat())).body for _ in range(8)] == [b"2"] * 8


async def test_rows_of_backends_that_left_are_used_again() -> None:
    async with running_router(NOWHERE, workers=2) as router:
        used: set[int] = set()
        for number in range(12):
            await router.reload(settings_for([f"http://127.0.0.1:{number + 2}"], workers=2))
            counter = router.store.fleet.members[0].in_flight
            assert isinstance(counter, SharedInFlight)
            used.add(counter.slot)
        assert len(used) <= 3


async def test_a_model_that_is_unknown_is_asked_for_by_the_pool() -> None:
    listed = b'{"data": [{"id": "x"}]}'
    async with ScriptedBackend(answering(listed)) as a:
        async with running_router(a.url, workers=2, models={"refresh_seconds": 3600}) as router:
            await until(lambda: router.store.fleet.members[0].models == frozenset({"x"}))

            async def status(model: str) -> int:
                return (await ask(router, chat(model=model))).status

            assert await eventually(lambda: status("y"), lambda code: code == 404)
            asked = [request.target for request in a.requests].count("/v1/models")
            assert asked >= 2
            assert await status("x") == 200
