"""Changing a running router: reloads of its configuration, and draining single backends."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from prefix_router.app import Router
from prefix_router.reloader import ReloadRefusedError
from prefix_router.routing.fleet import BackendState, InFlight
from prefix_router.settings.load import load
from tests.support.processes import router_process
from tests.support.router import (
    QUIET,
    RawAnswer,
    admin,
    ask,
    chat,
    connect,
    read_answer,
    request_bytes,
    running_router,
    settings_for,
    until,
)
from tests.support.scripted_backend import Conversation, ScriptedBackend, answering
from tests.support.waiting import eventually

BACKEND_HEADER = "x-prefix-router-backend"
REASON_HEADER = "x-prefix-router-reason"


def streaming(release: asyncio.Event) -> Callable[[Conversation], Any]:
    """A backend that begins a stream, and ends it when it is told to."""

    async def script(conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.method != "POST":
                await conversation.respond()
                continue
            await conversation.start_stream()
            await conversation.chunk(b"one")
            await release.wait()
            await conversation.chunk(b"two")
            await conversation.chunk(b"")

    return script


async def two_pieces(conversation: Conversation) -> None:
    """A backend that answers streams in two pieces, and everything else whole."""
    while (request := await conversation.request()) is not None:
        if request.method == "POST" and request.json().get("stream"):
            await conversation.start_stream()
            await conversation.chunk(b"data: one\n\n")
            await asyncio.sleep(0.001)
            await conversation.chunk(b"data: [DONE]\n\n")
            await conversation.chunk(b"")
        else:
            await conversation.respond()


def write_config(path: Path, urls: list[str], **sections: Any) -> None:
    """Write a configuration file with backends a, b, c, …"""
    document: dict[str, Any] = {name: dict(values) for name, values in QUIET.items()}
    document["backends"] = [{"url": url, "name": chr(ord("a") + at)} for at, url in enumerate(urls)]
    for name, values in sections.items():
        document[name] = {**document.get(name, {}), **values}
    path.write_text(json.dumps(document))


@asynccontextmanager
async def configured_router(path: Path) -> AsyncIterator[Router]:
    """A router that can read its file again."""
    router = Router(await asyncio.to_thread(load, path), lambda: load(path))
    await router.start()
    try:
        yield router
    finally:
        await router.stop(grace_seconds=0)


def counters(router: Router) -> list[InFlight]:
    return [member.in_flight for member in router.store.fleet.members]


async def document(router: Router, path: str, body: bytes | None = None) -> tuple[int, Any]:
    status, answer = await admin(router, path, body)
    return status, json.loads(answer)


async def start_stream(router: Router) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask for a stream, and return when its first piece is there."""
    reader, writer = await connect(router)
    writer.write(request_bytes(chat(stream=True)))
    await asyncio.wait_for(reader.readuntil(b"one\r\n"), 5)
    return reader, writer


async def test_a_hundred_reloads_under_load_fail_no_request_and_lose_no_count() -> None:
    choose = random.Random(7)
    answers: list[RawAnswer] = []
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(ScriptedBackend(two_pieces)) for _ in range(5)]
        urls = [server.url for server in servers]
        tasks_before = len(asyncio.all_tasks())
        async with running_router(*urls) as router:
            seen = counters(router)
            stop = asyncio.Event()

            async def client(number: int) -> None:
                reader, writer = await connect(router)
                for turn in itertools.count():
                    if stop.is_set():
                        break
                    body = chat(f"prefix {(number + turn) % 11}", stream=turn % 2 == 0)
                    writer.write(request_bytes(body))
                    answers.append(await read_answer(reader))
                writer.close()

            clients = [asyncio.create_task(client(number)) for number in range(8)]
            for turn in range(100):
                here = sorted(choose.sample(range(5), choose.randint(2, 5)))
                backends = [
                    {"url": urls[at], "name": f"backend-{at}", "weight": choose.randint(1, 3)} for at in here
                ]
                strategies = ("prefix_aware", "round_robin", "least_outstanding_requests", "random")
                settings = settings_for(
                    [],
                    backends=backends,
                    routing={
                        "strategy": strategies[turn % 4],
                        "concurrency_threshold": choose.randint(1, 9),
                        "ring": {"virtual_nodes": choose.choice((8, 16))},
                    },
                    health={"interval_seconds": choose.choice((60, 120))},
                )
                answered = len(answers)
                await router.reload(settings)
                seen += counters(router)
                assert [member.name for member in router.store.fleet.members] == [
                    f"backend-{at}" for at in here
                ]
                await until(lambda before=answered: len(answers) > before + 4)
            stop.set()
            await asyncio.gather(*clients)
            assert [(answer.status, answer.complete) for answer in answers] == [(200, True)] * len(answers)
            assert [counter.count for counter in seen] == [0] * len(seen)
            assert [counter.trials for counter in seen] == [0] * len(seen)
            assert router.prober.asked == {member.name for member in router.store.fleet.members}
            await until(lambda: router.prober.task_count == len(router.store.fleet.members))
            _, metrics = await admin(router, "/metrics")
            assert b'prefix_router_config_reloads_total{result="success"} 100.0' in metrics
        await until(lambda: len(asyncio.all_tasks()) <= tasks_before + sum(len(s._tasks) for s in servers))


async def test_a_backend_that_leaves_finishes_what_it_has_begun_and_takes_nothing_new() -> None:
    release = asyncio.Event()
    async with ScriptedBackend(streaming(release)) as old, ScriptedBackend(answering(b"new")) as new:
        timeouts = {"upstream_keepalive_seconds": 3600}
        async with running_router(old.url, timeouts=timeouts) as router:
            counter = counters(router)[0]
            reader, writer = await start_stream(router)
            new_fleet = [{"url": new.url, "name": "z"}]
            await router.reload(settings_for([], backends=new_fleet, timeouts=timeouts))
            assert (await ask(router, chat())).header(BACKEND_HEADER) == "z"
            assert counter.count == 1
            _, metrics = await admin(router, "/metrics")
            assert b'backend="a"' not in metrics
            release.set()
            assert await reader.readuntil(b"0\r\n\r\n") == b"3\r\ntwo\r\n0\r\n\r\n"
            await until(lambda: counter.count == 0)
            _, metrics = await admin(router, "/metrics")
            assert b'backend="a"' not in metrics
            assert b'prefix_router_requests_total{backend="other",reason="affinity"' in metrics
            _, status = await document(router, "/status")
            assert [(entry["name"], entry["requests"]) for entry in status["backends"]] == [("z", 1)]
            writer.close()
            await until(lambda: old.conversations[-1].reader.at_eof())  # its connection is not kept


async def test_a_backend_that_stays_keeps_count_health_connections_and_numbers() -> None:
    release = asyncio.Event()
    async with ScriptedBackend(streaming(release)) as backend, ScriptedBackend(answering()) as other:
        async with running_router(backend.url) as router:
            await until(lambda: router.not_ready() is None)
            reader, writer = await start_stream(router)
            release.set()
            await reader.readuntil(b"0\r\n\r\n")
            release.clear()
            writer.close()
            reader, writer = await start_stream(router)
            before = router.store.fleet.members[0]
            connections = len([c for c in backend.conversations if not c.reader.at_eof()])
            await router.reload(
                settings_for(
                    [],
                    backends=[
                        {"url": other.url, "name": "z"},
                        {"url": backend.url, "name": "a", "weight": 3},
                    ],
                )
            )
            after = router.store.fleet.members[1]
            assert after.in_flight is before.in_flight
            assert (after.state, after.in_flight.count, after.backend.weight) == (before.state, 1, 3)
            _, metrics = await admin(router, "/metrics")
            assert (
                b'prefix_router_requests_total{backend="a",reason="affinity",status_class="2xx"} 1.0'
                in metrics
            )
            assert len([c for c in backend.conversations if not c.reader.at_eof()]) == connections
            release.set()
            await reader.readuntil(b"0\r\n\r\n")
            writer.close()


async def test_a_backend_that_flaps_while_it_works_keeps_counts_right() -> None:
    release = asyncio.Event()
    async with ScriptedBackend(streaming(release)) as one, ScriptedBackend(answering()) as two:
        with_a = settings_for([one.url, two.url])
        without_a = settings_for([], backends=[{"url": two.url, "name": "b"}])
        async with running_router(one.url) as router:
            seen, streams = counters(router), []
            for _ in range(10):
                streams.append(await start_stream(router))
                await router.reload(without_a)
                seen += counters(router)
                await router.reload(settings_for([one.url]))
                seen += counters(router)
            await router.reload(with_a)
            assert sum({id(counter): counter.count for counter in seen}.values()) == 10
            release.set()
            for reader, writer in streams:
                await reader.readuntil(b"0\r\n\r\n")
                writer.close()
            await until(lambda: all(counter.count == 0 for counter in seen))


async def test_a_request_ends_under_the_configuration_it_began_under() -> None:
    body = b'{"prompt": "%b"}' % (b"x" * 4000)
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        data = request_bytes(body)
        writer.write(data[:2000])
        await until(lambda: router.status()["active_requests"] == 1)
        await router.reload(settings_for([backend.url], limits={"max_body_bytes": 1024}))
        writer.write(data[2000:])
        assert (await read_answer(reader)).status == 200
        writer.close()
        assert (await ask(router, body)).status == 413


async def test_the_next_request_goes_by_the_new_rule() -> None:
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        assert (await ask(router, chat())).header(REASON_HEADER) == "affinity"
        await router.reload(settings_for([backend.url], routing={"strategy": "random"}))
        assert (await ask(router, chat())).header(REASON_HEADER) == "random"
        assert (await document(router, "/status"))[1]["strategy"] == "random"
        await router.reload(settings_for([backend.url], response_headers={"decision": False}))
        assert (await ask(router, chat())).header(REASON_HEADER) is None


async def test_timeouts_probes_and_health_rules_go_by_the_new_values() -> None:
    async def failing(conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.method != "POST":
                await conversation.respond()
            elif b"hang" in request.body:
                await conversation.client_gone()
            else:
                await conversation.respond(500)

    async with ScriptedBackend(failing) as backend, running_router(backend.url) as router:
        await until(lambda: router.not_ready() is None)
        await router.reload(
            settings_for(
                [backend.url],
                timeouts={"first_byte_seconds": 0.05},
                health={"path": "/up", "request_failures": 1, "max_ejected_fraction": 1},
            )
        )
        await until(lambda: "/up" in [request.target for request in backend.requests])
        assert (await ask(router, chat("hang"))).status == 504
        assert router.store.fleet.members[0].state is BackendState.EJECTED


async def test_header_limit_and_keep_alive_hold_for_connections_made_later() -> None:
    long = [("X-Long", "x" * 2000)]
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        writer.write(request_bytes(chat()))
        assert (await read_answer(reader)).status == 200
        await router.reload(
            settings_for(
                [backend.url],
                limits={"max_header_bytes": 1024},
                timeouts={"client_keepalive_seconds": 0.05},
            )
        )
        writer.write(request_bytes(chat(), headers=long))
        assert (await read_answer(reader)).status == 200
        writer.close()
        assert (await ask(router, chat(), headers=long)).status == 431
        reader, writer = await connect(router)
        writer.write(request_bytes(chat()))
        assert (await read_answer(reader)).status == 200
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


async def test_idle_connections_to_backends_go_by_the_new_keep_alive() -> None:
    long = {"upstream_keepalive_seconds": 3600}
    async with ScriptedBackend(answering()) as backend, running_router(backend.url, timeouts=long) as router:
        await ask(router, chat())
        await router.reload(settings_for([backend.url], timeouts={"upstream_keepalive_seconds": 0}))
        await ask(router, chat())
        await ask(router, chat())
        await until(lambda: all(conversation.reader.at_eof() for conversation in backend.conversations))


async def test_the_log_goes_by_the_new_values(caplog: pytest.LogCaptureFixture) -> None:
    root, access = logging.getLogger(), logging.getLogger("prefix_router.access")
    before = root.level, access.level
    try:
        async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
            caplog.set_level(logging.INFO, "prefix_router.access")
            await router.reload(settings_for([backend.url], logging={"level": "debug", "access": True}))
            assert root.level == logging.DEBUG
            await ask(router, chat())
            await until(lambda: "request" in [record.getMessage() for record in caplog.records])
    finally:
        root.setLevel(before[0])
        access.setLevel(before[1])


async def test_another_url_under_an_old_name_is_another_backend() -> None:
    async with ScriptedBackend(answering()) as one, ScriptedBackend(answering(b"two")) as two:
        async with running_router(one.url) as router:
            await until(lambda: router.not_ready() is None)
            await ask(router, chat())
            counter = counters(router)[0]
            await router.reload(settings_for([two.url]))
            assert counters(router)[0] is not counter
            _, metrics = await admin(router, "/metrics")
            assert b'prefix_router_requests_total{backend="a"' not in metrics
            assert (await ask(router, chat())).body == b"two"


async def test_round_robin_goes_on_where_it_was() -> None:
    async with ScriptedBackend(answering()) as one, ScriptedBackend(answering()) as two:
        settings = settings_for([one.url, two.url], routing={"strategy": "round_robin"})
        async with running_router(one.url, two.url, routing={"strategy": "round_robin"}) as router:
            asked = []
            for _ in range(6):
                asked.append((await ask(router, chat())).header(BACKEND_HEADER))
                await router.reload(settings)
            assert asked == ["a", "b"] * 3


async def test_a_new_backend_is_probed_at_once_and_does_not_make_the_router_unready() -> None:
    async with ScriptedBackend(answering()) as one, ScriptedBackend(answering()) as two:
        async with running_router(one.url) as router:
            await until(lambda: router.not_ready() is None)
            await router.reload(settings_for([one.url, two.url]))
            assert router.not_ready() is None
            await until(lambda: [request.target for request in two.requests] == ["/health"])


async def test_post_reload_reads_the_file_and_says_what_it_changed(tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    async with ScriptedBackend(answering()) as one, ScriptedBackend(answering()) as two:
        write_config(config, [one.url])
        async with configured_router(config) as router:
            assert await document(router, "/reload", b"") == (200, {"applied": [], "needs_restart": []})
            write_config(
                config,
                [one.url, two.url],
                routing={"concurrency_threshold": 5},
                listen={"port": 1, "backlog": 9},
            )
            status, report = await document(router, "/reload", b"")
            assert status == 200
            added = report["applied"][0]["new"]
            assert (added["url"], added["name"], added["weight"]) == (two.url, "b", 1)
            assert report == {
                "applied": [
                    {"path": "backends[b]", "new": added},
                    {"path": "routing.concurrency_threshold", "old": 64, "new": 5},
                ],
                "needs_restart": [
                    {"path": "listen.port", "old": 0, "new": 1},
                    {"path": "listen.backlog", "old": 2048, "new": 9},
                ],
            }
            _, settings = await document(router, "/config")
            assert settings["routing"]["concurrency_threshold"] == 5
            assert settings["listen"]["backlog"] == 2048
            assert [backend["name"] for backend in settings["backends"]] == ["a", "b"]
            assert (await ask(router, chat())).status == 200


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("backends: [{url: 'ftp://x'}]\nretry: {max_attempts: 0}", "backends[0].url"),
        ("backends: [", ""),
        ("", ""),
        (None, ""),
        ("backends: [{url: h:1}]\nrouting: {prefix: {tokenizer: /none.json}}", "routing.prefix.tokenizer"),
    ],
)
async def test_a_file_with_mistakes_changes_nothing(tmp_path: Path, text: str | None, problem: str) -> None:
    config = tmp_path / "router.yaml"
    async with ScriptedBackend(answering()) as backend:
        write_config(config, [backend.url])
        async with configured_router(config) as router:
            await until(lambda: router.not_ready() is None)
            fleet, settings = router.store.fleet, router.settings
            if text is None:
                config.unlink()
            else:
                config.write_text(text)
            status, answer = await document(router, "/reload", b"")
            assert status == 422
            assert answer["problems"][0]["path"] == problem
            assert answer["problems"][0]["source"] == str(config)
            assert (router.store.fleet, router.settings) == (fleet, settings)
            assert (await ask(router, chat())).status == 200
            _, metrics = await admin(router, "/metrics")
            assert b"prefix_router_config_last_reload_success 0.0" in metrics
            assert b'prefix_router_config_reloads_total{result="failure"} 1.0' in metrics
            write_config(config, [backend.url])
            assert (await document(router, "/reload", b""))[0] == 200
            assert b"prefix_router_config_last_reload_success 1.0" in (await admin(router, "/metrics"))[1]


async def test_a_tokenizer_that_turns_out_unusable_changes_nothing(tmp_path: Path) -> None:
    config, tokenizer = tmp_path / "router.yaml", tmp_path / "tokenizer.json"
    tokenizer.write_text("{}")
    async with ScriptedBackend(answering()) as backend:
        write_config(config, [backend.url])
        async with configured_router(config) as router:
            prefix = {"prefix": {"tokenizer": str(tokenizer)}, "strategy": "random"}
            write_config(config, [backend.url, "http://127.0.0.1:1"], routing=prefix)
            status, answer = await document(router, "/reload", b"")
            assert (status, answer["problems"][0]["path"]) == (422, "routing.prefix.tokenizer")
            assert len(router.store.fleet.members) == 1
            assert (await ask(router, chat())).header(REASON_HEADER) == "affinity"


async def test_a_router_that_stops_changes_nothing_any_more() -> None:
    release = asyncio.Event()
    async with ScriptedBackend(streaming(release)) as backend, running_router(backend.url) as router:
        reader, writer = await start_stream(router)
        stopping = asyncio.create_task(router.stop(grace_seconds=10))
        await until(lambda: router.not_ready() == "shutting down")
        with pytest.raises(ReloadRefusedError):
            await router.reload(settings_for([backend.url, "http://127.0.0.1:1"]))
        assert router.prober.asked == {"a"}
        release.set()
        await stopping
        assert await reader.read() == b"3\r\ntwo\r\n0\r\n\r\n"
        writer.close()


async def test_without_a_file_a_reload_is_refused() -> None:
    async with running_router("http://127.0.0.1:1") as router:
        status, answer = await document(router, "/reload", b"")
        assert status == 409
        assert "--config" in answer["error"]


async def test_reloads_at_the_same_time_leave_one_whole_configuration(tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    async with ScriptedBackend(answering()) as one, ScriptedBackend(answering()) as two:
        write_config(config, [one.url])
        async with configured_router(config) as router:
            write_config(config, [one.url, two.url], retry={"max_attempts": 1})
            answers = await asyncio.gather(*(document(router, "/reload", b"") for _ in range(8)))
            assert sorted(len(answer["applied"]) for _, answer in answers) == [0] * 7 + [2]
            assert len(router.store.fleet.members) == 2
            assert router.settings == await asyncio.to_thread(load, config)


async def test_sighup_reads_the_file_again_and_the_flags_still_win(tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    async with ScriptedBackend(answering()) as one, ScriptedBackend(answering()) as two:
        write_config(config, [one.url])
        async with router_process("--config", str(config), "--strategy", "random") as router:

            async def asked() -> RawAnswer:
                reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
                writer.write(request_bytes(chat()))
                answer = await read_answer(reader)
                writer.close()
                return answer

            assert (await asked()).header(REASON_HEADER) == "random"
            write_config(config, [two.url], routing={"strategy": "prefix_aware"})
            router.signal(signal.SIGHUP)
            await until(lambda: any("changed backends[a].url" in line for line in router.log))
            before = len(one.work)
            assert (await asked()).header(REASON_HEADER) == "random"
            assert (len(one.work), len(two.work)) == (before, 1)

            config.write_text("backends: [{url: 'ftp://x'}]")
            router.signal(signal.SIGHUP)
            await until(lambda: any("reload refused" in line for line in router.log))
            assert any(f"{config}:1" in line for line in router.log)
            assert (await asked()).status == 200
            router.signal(signal.SIGTERM)
            assert await router.exit_status() == 0


async def test_sighup_without_a_file_is_said_and_harmless() -> None:
    async with ScriptedBackend(answering()) as backend, router_process("--backend", backend.url) as router:
        router.signal(signal.SIGHUP)
        await until(lambda: any("without --config" in line for line in router.log))
        await eventually(router.readiness, lambda status: status == 200)
        router.signal(signal.SIGTERM)
        assert await router.exit_status() == 0


async def test_a_drained_backend_takes_nothing_new_and_finishes_what_it_has() -> None:
    release = asyncio.Event()
    async with ScriptedBackend(streaming(release)) as one, ScriptedBackend(answering()) as two:
        async with running_router(one.url) as router:
            reader, writer = await start_stream(router)
            await router.reload(settings_for([one.url, two.url]))
            for _ in range(2):
                status, entry = await document(router, "/backends/a/drain", b"")
                assert status == 200
                assert (entry["name"], entry["draining"], entry["in_flight"]) == ("a", True, 1)
            reasons = set()
            for number in range(20):
                answer = await ask(router, chat(f"prompt {number}"))
                assert (answer.status, answer.header(BACKEND_HEADER)) == (200, "b")
                reasons.add(answer.header(REASON_HEADER))
            assert reasons == {"affinity", "failover"}
            _, metrics = await admin(router, "/metrics")
            assert b'prefix_router_backend_draining{backend="a"} 1.0' in metrics
            assert b'prefix_router_backend_draining{backend="b"} 0.0' in metrics
            assert b'prefix_router_in_flight{backend="a"} 1.0' in metrics
            release.set()
            assert await reader.readuntil(b"0\r\n\r\n") == b"3\r\ntwo\r\n0\r\n\r\n"
            writer.close()
            _, entry = await document(router, "/backends/a/undrain", b"")
            assert not entry["draining"]
            names = {(await ask(router, chat(f"prompt {n}"))).header(BACKEND_HEADER) for n in range(20)}
            assert names == {"a", "b"}


async def test_a_drain_survives_a_reload() -> None:
    async with ScriptedBackend(answering()) as one, ScriptedBackend(answering()) as two:
        async with running_router(one.url, two.url) as router:
            await document(router, "/backends/a/drain", b"")
            await router.reload(settings_for([one.url, two.url], routing={"strategy": "random"}))
            _, status = await document(router, "/status")
            assert [entry["draining"] for entry in status["backends"]] == [True, False]
            assert {(await ask(router, chat())).header(BACKEND_HEADER) for _ in range(10)} == {"b"}


async def test_when_all_are_drained_the_error_says_so() -> None:
    async with ScriptedBackend(answering()) as one, ScriptedBackend(answering()) as two:
        async with running_router(one.url, two.url) as router:
            await until(lambda: router.not_ready() is None)
            for name in ("a", "b"):
                assert router.set_draining(name, True)
            answer = await ask(router, chat())
            assert answer.status == 503
            assert "2 draining" in answer.json()["error"]["message"]
            assert answer.header("retry-after") is not None
            assert (await admin(router, "/readyz"))[0] == 503
            router.set_draining("a", False)
            assert (await ask(router, chat())).status == 200


async def test_who_is_not_there_cannot_be_drained() -> None:
    async with running_router("http://127.0.0.1:1") as router:
        assert not router.set_draining("zz", True)
        assert (await document(router, "/backends/zz/drain", b""))[0] == 404
