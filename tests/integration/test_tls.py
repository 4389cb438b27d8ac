"""TLS on both sides of the router, with real certificates."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from blockbuster import BlockBuster

from prefix_router import listening
from prefix_router.app import Router
from prefix_router.settings.load import load
from tests.support.certificates import Authority
from tests.support.processes import router_process
from tests.support.router import (
    QUIET,
    RawAnswer,
    ask,
    chat,
    read_answer,
    request_bytes,
    running_router,
    until,
)
from tests.support.scripted_backend import Conversation, ScriptedBackend, answering

NAME = "router.example"


@pytest.fixture(autouse=True)
def _a_start_may_read_files(_no_blocking_calls: BlockBuster) -> None:
    """Before anything listens; a reload may not."""
    for function in _no_blocking_calls.functions.values():
        function.can_block_in("prefix_router/app.py", "__init__")
        function.can_block_in("tests/support/router.py", "settings_for")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def connect_tls(
    port: int, context: ssl.SSLContext, name: str = NAME
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name, limit=1 << 20)


async def ask_tls(port: int, context: ssl.SSLContext, *args: Any, **kwargs: Any) -> RawAnswer:
    reader, writer = await connect_tls(port, context)
    try:
        writer.write(request_bytes(*args, **kwargs))
        return await asyncio.wait_for(read_answer(reader), 10)
    finally:
        writer.close()


async def streaming(conversation: Conversation) -> None:
    while await conversation.request() is not None:
        await conversation.start_stream()
        for piece in (b"data: one\n\n", b"data: [DONE]\n\n", b""):
            await conversation.chunk(piece)


def serial_seen(writer: asyncio.StreamWriter) -> str:
    certificate: dict[str, str] = writer.get_extra_info("peercert")
    return certificate["serialNumber"]


async def test_a_stream_goes_through_tls_on_both_sides(authority: Authority) -> None:
    seen: list[str | None] = []
    engine = authority.server(authority.issue("engine", "engine.internal"), asks_clients=True)
    engine.sni_callback = lambda _connection, name, _context: seen.append(name)
    ours = authority.issue("ours", "router.internal")
    async with ScriptedBackend(streaming, tls=engine) as backend:
        async with running_router(
            listen={"tls": authority.issue("front", NAME).settings},
            backends=[{"url": backend.url, "name": "a", "server_name": "engine.internal"}],
            backend_tls={"ca": str(authority.path), **ours.settings},
        ) as router:
            answer = await ask_tls(router.port, authority.client(), chat(stream=True))
            assert (answer.status, answer.complete) == (200, True)
            assert answer.body == b"data: one\n\ndata: [DONE]\n\n"
            assert backend.work[-1].header("x-forwarded-proto") == "https"
            assert backend.work[-1].header("host") == backend.url.removeprefix("https://")
            await until(lambda: router.not_ready() is None)  # the probe got through, too
    assert set(seen) == {"engine.internal"}


async def test_clients_must_show_a_certificate_where_one_is_asked_for(
    authority: Authority, tmp_path: Path
) -> None:
    known = authority.issue("client", "client.internal")
    stranger = Authority(tmp_path, "other").issue("stranger", "client.internal")
    async with ScriptedBackend(answering()) as backend:
        tls = {**authority.issue("front", NAME).settings, "client_ca": str(authority.path)}
        async with running_router(backend.url, listen={"tls": tls}) as router:
            assert (await ask_tls(router.port, authority.client(known), chat())).status == 200
            for files in (None, stranger):
                with pytest.raises((OSError, asyncio.IncompleteReadError)):
                    await ask_tls(router.port, authority.client(files), chat())
            assert (await ask_tls(router.port, authority.client(known), chat())).status == 200
        assert len(backend.work) == 2


async def test_what_is_no_handshake_is_cut_and_harms_nobody(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE_SECONDS", 0.5)
    async with ScriptedBackend(answering()) as backend:
        async with running_router(
            backend.url, listen={"tls": authority.issue("front", NAME).settings}
        ) as router:
            idle = [await asyncio.open_connection("127.0.0.1", router.port) for _ in range(50)]
            for first in (request_bytes(chat()), b"\x16\x03\x01\x02\x00\xff" * 100, b"\x00" * 70_000):
                reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
                writer.write(first)
                try:
                    answer = await asyncio.wait_for(reader.read(), 10)
                except ConnectionError:
                    answer = b""
                assert b"HTTP" not in answer
                writer.close()
            assert (await ask_tls(router.port, authority.client(), chat())).status == 200
            for reader, writer in idle:
                assert await asyncio.wait_for(reader.read(), 10) == b""
                writer.close()
        assert len(backend.work) == 1


def write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document))


@asynccontextmanager
async def configured(path: Path, *urls: str, **sections: Any) -> AsyncIterator[Router]:
    """A router with a file that it can read again."""
    document: dict[str, Any] = {name: dict(values) for name, values in QUIET.items()}
    document["backends"] = [{"url": url, "name": chr(ord("a") + at)} for at, url in enumerate(urls)]
    for name, values in sections.items():
        document[name] = {**document.get(name, {}), **values} if isinstance(values, dict) else values
    write(path, document)
    router = Router(await asyncio.to_thread(load, path), lambda: load(path))
    await router.start()
    try:
        yield router
    finally:
        await router.stop(grace_seconds=0)


async def test_renewed_certificates_are_taken_over_under_load_and_no_request_fails(
    authority: Authority, tmp_path: Path
) -> None:
    engine = authority.server(authority.issue("engine", "127.0.0.1"), asks_clients=True)
    async with ScriptedBackend(streaming, tls=engine) as backend:
        async with configured(
            tmp_path / "router.yaml",
            backend.url,
            listen={"tls": authority.issue("front", NAME).settings},
            backend_tls={"ca": str(authority.path), **authority.issue("ours", "us").settings},
            admin={"tls": authority.issue("admin", "admin.example").settings},
        ) as router:
            client = authority.client()
            kept_reader, kept_writer = await connect_tls(router.port, client)
            before = serial_seen(kept_writer)
            failed: list[object] = []
            stop = asyncio.Event()
            served = 0

            async def ask_on() -> None:
                nonlocal served
                while not stop.is_set():
                    try:
                        answer = await ask_tls(router.port, client, chat(stream=True))
                    except (OSError, asyncio.IncompleteReadError) as error:
                        failed.append(error)
                        continue
                    served += 1
                    if (answer.status, answer.complete) != (200, True):
                        failed.append(answer)

            clients = [asyncio.create_task(ask_on()) for _ in range(4)]
            serials = [before]
            for _ in range(5):
                for file, name in (("front", NAME), ("ours", "us"), ("admin", "admin.example")):
                    authority.issue(file, name)
                target = served + 8
                reply = await router.reload_file()
                assert (int(reply.status), reply.document["applied"]) == (200, [])
                _, writer = await connect_tls(router.port, client)
                serials.append(serial_seen(writer))
                writer.close()
                await until(lambda target=target: served > target, 20)
            _, writer = await connect_tls(router.admin_port, client, "admin.example")
            admin_serial = serial_seen(writer)
            writer.close()
            stop.set()
            await asyncio.gather(*clients)
            assert failed == []
            assert len(set(serials)) == 6
            assert admin_serial not in serials
            kept_writer.write(request_bytes(chat()))  # who was connected before stays connected
            assert (await read_answer(kept_reader)).status == 200
            kept_writer.close()


async def test_a_reload_that_renews_nothing_changes_no_connection(
    authority: Authority, tmp_path: Path
) -> None:
    engine = authority.server(authority.issue("engine", "127.0.0.1"))
    async with ScriptedBackend(answering(), tls=engine) as backend:
        async with configured(
            tmp_path / "router.yaml",
            backend.url,
            listen={"tls": authority.issue("front", NAME).settings},
            backend_tls={"ca": str(authority.path)},
            timeouts={"upstream_keepalive_seconds": 3600},
        ) as router:
            await until(lambda: router.not_ready() is None)
            for _ in range(3):
                assert (await ask_tls(router.port, authority.client(), chat())).status == 200
                await router.reload_file()
        assert len(backend.conversations) == 2  # a probe's, and the one of all requests


async def test_a_reload_can_begin_and_end_tls(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("front", NAME)
    async with ScriptedBackend(answering()) as backend:
        path = tmp_path / "router.yaml"
        async with configured(path, backend.url) as router:
            assert (await ask(router, chat())).status == 200
            document = json.loads(path.read_text())
            document["listen"]["tls"] = files.settings
            write(path, document)
            reply = await router.reload_file()
            assert [change["path"] for change in reply.document["applied"]] == [
                "listen.tls.certificate",
                "listen.tls.key",
            ]
            assert (await ask_tls(router.port, authority.client(), chat())).status == 200
            files.key.unlink()
            refused = await router.reload_file()
            assert refused.status == 422
            assert refused.document["problems"][0]["path"] == "listen.tls.key"
            assert (await ask_tls(router.port, authority.client(), chat())).status == 200
            del document["listen"]["tls"]
            write(path, document)
            assert (await router.reload_file()).status == 200
            assert (await ask(router, chat())).status == 200


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        ("expired", "its certificate is not accepted: certificate has expired"),
        ("other name", "its certificate is not accepted: IP address mismatch"),
        ("stranger", "its certificate is not accepted: unable to get local issuer certificate"),
    ],
)
async def test_a_bad_certificate_has_an_error_and_a_cause_of_its_own(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, problem: str, said: str
) -> None:
    caplog.set_level("INFO")
    issuer = Authority(tmp_path, "other") if problem == "stranger" else authority
    names = ["192.0.2.7"] if problem == "other name" else ["127.0.0.1"]
    files = issuer.issue("engine", *names, expired=problem == "expired")
    engine = issuer.server(files)
    async with ScriptedBackend(answering(), tls=engine) as bad, ScriptedBackend(answering()) as good:
        sections = {"backend_tls": {"ca": str(authority.path)}, "health": {"probe_failures": 1}}
        async with running_router(bad.url, **sections) as router:
            answer = await ask(router, chat())
            assert answer.status == 502
            assert answer.json()["error"]["code"] == "backend_bad_certificate"
            assert said in caplog.text
        async with running_router(bad.url, good.url, **sections) as router:
            for text in range(8):
                assert (await ask(router, chat(str(text)))).status == 200
            await until(lambda: router.store.fleet.members[0].state.value == "ejected")
        assert bad.work == []


async def test_a_backend_that_hangs_up_over_our_certificate_is_suspected_of_it(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    engine = authority.server(authority.issue("engine", "127.0.0.1"), asks_clients=True)
    async with ScriptedBackend(answering(), tls=engine) as backend:
        async with running_router(backend.url, backend_tls={"ca": str(authority.path)}) as router:
            assert (await ask(router, chat())).status == 502
    assert "perhaps it asks for another certificate of ours" in caplog.text


async def test_a_backend_that_speaks_no_tls_is_called_that(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def plain(conversation: Conversation) -> None:
        await conversation.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    async with ScriptedBackend(plain) as backend:
        url = backend.url.replace("http://", "https://")
        async with running_router(url, backend_tls={"verify": False}) as router:
            answer = await ask(router, chat())
    assert (answer.status, answer.json()["error"]["code"]) == (502, "backend_unreachable")
    assert "TLS failed: it does not speak TLS at this port" in caplog.text


async def test_nobody_is_checked_where_that_is_wished_and_loudly_so(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    engine = authority.server(authority.issue("engine", "somebody.else", expired=True))
    async with ScriptedBackend(answering(), tls=engine) as backend:
        async with running_router(backend.url, backend_tls={"verify": False}) as router:
            assert (await ask(router, chat())).status == 200
    assert "backend_tls.verify is false" in caplog.text


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_real_router_serves_and_renews_with_one_process_and_with_workers(
    authority: Authority, tmp_path: Path, workers: int
) -> None:
    engine = authority.server(authority.issue("engine", "engine.internal"))
    async with ScriptedBackend(streaming, tls=engine) as backend:
        document = {
            **{name: values for name, values in QUIET.items() if name not in ("listen", "admin")},
            "listen": {"tls": authority.issue("front", NAME).settings},
            "admin": {"tls": authority.issue("admin", "localhost").settings},
            "backends": [{"url": backend.url, "name": "a", "server_name": "engine.internal"}],
            "backend_tls": {"ca": str(authority.path)},
        }
        config = tmp_path / "router.yaml"
        write(config, document)
        client = authority.client()
        async with router_process("--config", str(config), "--workers", str(workers)) as router:
            _, plain = await asyncio.open_connection("127.0.0.1", router.port)
            plain.write(b"GET / HTTP/1.1\r\n\r\n")
            serials = set()
            for _ in range(3):
                for _ in range(6):
                    reader, writer = await connect_tls(router.port, client)
                    serials.add(serial_seen(writer))
                    writer.write(request_bytes(chat(stream=True)))
                    answer = await asyncio.wait_for(read_answer(reader), 10)
                    assert (answer.status, answer.complete) == (200, True)
                    assert backend.work[-1].header("x-forwarded-proto") == "https"
                    writer.close()
                authority.issue("front", NAME)
                async with aiohttp.ClientSession() as session:
                    url = f"https://localhost:{router.admin_port}/reload"
                    async with session.post(url, ssl=client) as response:
                        assert response.status == 200
            plain.close()
            assert len(serials) == 3
            assert not any("Traceback" in line or "exception" in line for line in router.log)
