"""The router as a process: starting, draining, stopping, refusing to start."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from pathlib import Path
from typing import cast

import pytest

from tests.support.processes import RouterProcess, router_process
from tests.support.router import RawAnswer, chat, read_answer, request_bytes
from tests.support.scripted_backend import Conversation, ScriptedBackend, answering
from tests.support.waiting import eventually


async def started_stream(router: RouterProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
    writer.write(request_bytes(chat(stream=True)))
    await reader.readuntil(b"one\r\n")
    return reader, writer


def streaming(release: asyncio.Event) -> ScriptedBackend:
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

    return ScriptedBackend(script)


async def test_sigterm_lets_streams_finish_and_says_not_ready_meanwhile() -> None:
    release = asyncio.Event()
    async with streaming(release) as backend, router_process("--backend", backend.url) as router:
        reader, writer = await started_stream(router)
        async with asyncio.timeout(5):
            while await router.readiness() != 200:  # the first round of probes may still be under way
                await asyncio.sleep(0.01)
        router.signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            while await router.readiness() != 503:
                await asyncio.sleep(0.01)
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", router.port)
        release.set()
        assert await reader.read() == b"3\r\ntwo\r\n0\r\n\r\n"
        assert await router.exit_status() == 0
        writer.close()


async def test_a_second_signal_stops_at_once() -> None:
    release = asyncio.Event()
    async with streaming(release) as backend, router_process("--backend", backend.url) as router:
        reader, writer = await started_stream(router)
        router.signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            while await router.readiness() != 503:
                await asyncio.sleep(0.01)
        router.signal(signal.SIGTERM)
        assert await router.exit_status() == 0
        assert b"0\r\n\r\n" not in await reader.read()
        writer.close()


async def test_the_grace_period_is_bounded() -> None:
    release = asyncio.Event()
    async with streaming(release) as backend:
        async with router_process("--backend", backend.url, "--shutdown-grace-seconds", "0.2") as router:
            reader, writer = await started_stream(router)
            router.signal(signal.SIGINT)
            assert await router.exit_status() == 0
            assert b"0\r\n\r\n" not in await reader.read()
            writer.close()


async def test_a_client_that_leaves_is_noticed_by_a_real_process() -> None:
    async def script(conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.method == "POST":
                await conversation.client_gone()
                return
            await conversation.respond()

    async with ScriptedBackend(script) as backend, router_process("--backend", backend.url) as router:
        _, writer = await asyncio.open_connection("127.0.0.1", router.port)
        writer.write(request_bytes(chat()))
        async with asyncio.timeout(5):
            while not any(request.method == "POST" for request in backend.work):  # not only probes
                await asyncio.sleep(0.005)
        writer.close()
        async with asyncio.timeout(5):
            while not any(conversation.gone.is_set() for conversation in backend.conversations):
                await asyncio.sleep(0.005)


async def test_keep_alive_clients_are_told_to_leave_while_draining() -> None:
    release = asyncio.Event()
    async with streaming(release) as backend, router_process("--backend", backend.url) as router:
        _, stream_writer = await started_stream(router)
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", router.port)
        idle_writer.write(request_bytes(b"", "/health", method="GET"))
        assert (await read_answer(idle_reader)).header("connection") is None
        router.signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            while await router.readiness() != 503:
                await asyncio.sleep(0.01)
        idle_writer.write(request_bytes(b"", "/health", method="GET"))
        assert (await read_answer(idle_reader)).header("connection") == "close"
        release.set()
        assert await router.exit_status() == 0
        idle_writer.close()
        stream_writer.close()


async def answer_on_a_new_connection(router: RouterProcess, path: str = "/v1/chat/completions") -> RawAnswer:
    reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
    method = "GET" if path == "/health" else "POST"
    writer.write(request_bytes(b"" if method == "GET" else chat(), path, method=method))
    answer = await read_answer(reader)
    writer.close()
    return answer


async def test_new_connections_are_taken_for_a_window_in_which_readiness_already_says_no() -> None:
    async with (
        ScriptedBackend(answering()) as backend,
        router_process("--backend", backend.url, "--shutdown-delay-seconds", "600") as router,
    ):
        assert (await answer_on_a_new_connection(router, "/health")).status == 200
        await eventually(router.readiness, lambda status: status == 200)  # the first probes are over
        router.signal(signal.SIGTERM)
        await eventually(router.readiness, lambda status: status == 503)
        answer = await answer_on_a_new_connection(router)
        assert (answer.status, answer.header("connection")) == (200, "close")
        health = await answer_on_a_new_connection(router, "/health")
        assert (health.status, health.json()["error"]["code"]) == (503, "draining")
        router.signal(signal.SIGTERM)  # nobody wants to wait for the rest of the window
        assert await router.exit_status() == 0


async def test_the_window_ends() -> None:
    async with (
        ScriptedBackend(answering()) as backend,
        router_process("--backend", backend.url, "--shutdown-delay-seconds", "0.1") as router,
    ):
        router.signal(signal.SIGTERM)
        assert await router.exit_status() == 0
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", router.port)


async def test_an_idle_connection_is_closed_cleanly_once_nothing_runs() -> None:
    release = asyncio.Event()
    async with streaming(release) as backend, router_process("--backend", backend.url) as router:
        stream_reader, stream_writer = await started_stream(router)
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", router.port)
        idle_writer.write(request_bytes(b"", "/health", method="GET"))
        assert (await read_answer(idle_reader)).status == 200
        fresh_reader, fresh_writer = await asyncio.open_connection("127.0.0.1", router.port)
        router.signal(signal.SIGTERM)
        await eventually(router.readiness, lambda status: status == 503)
        release.set()
        assert await stream_reader.read() == b"3\r\ntwo\r\n0\r\n\r\n"
        # An orderly end, not a reset: read() would raise.
        assert await asyncio.wait_for(idle_reader.read(), 10) == b""
        assert await asyncio.wait_for(fresh_reader.read(), 10) == b""
        assert await router.exit_status() == 0
        for writer in (stream_writer, idle_writer, fresh_writer):
            writer.close()


async def test_what_remains_can_be_seen_while_it_drains() -> None:
    release = asyncio.Event()
    async with streaming(release) as backend, router_process("--backend", backend.url) as router:
        _, writer = await started_stream(router)
        router.signal(signal.SIGTERM)
        await eventually(router.readiness, lambda status: status == 503)
        assert "prefix_router_active_requests 1.0" in await router.metrics()
        release.set()
        assert await router.exit_status() == 0
        writer.close()


async def run_to_end(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "prefix_router", *arguments, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode is not None
    return process.returncode, errors.decode()


@pytest.mark.parametrize("flag", ["--port", "--admin-port"])
async def test_a_port_in_use_is_said_and_nothing_is_left(flag: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ports = {"--port": "0", "--admin-port": "0", flag: port}
        arguments = [word for pair in ports.items() for word in pair]
        status, errors = await run_to_end(
            "serve", "--host", "127.0.0.1", "--backend", "http://127.0.0.1:1", *arguments
        )
    assert status == 1
    assert "prefix-router: cannot listen" in errors
    assert port in errors
    assert "Traceback" not in errors


async def test_a_bad_configuration_starts_nothing(tmp_path: Path) -> None:
    config = tmp_path / "bad.yaml"
    config.write_text("backends: [{url: 'ftp://x'}]\nrouting: {strateggy: random}\n")
    status, errors = await run_to_end("serve", "--config", str(config))
    assert status == 2
    assert f"{config}:1" in errors
    assert f"{config}:2" in errors
    assert "Traceback" not in errors


async def test_an_unreadable_tokenizer_is_said_at_start(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text("{}")
    status, errors = await run_to_end(
        "serve",
        "--port",
        "0",
        "--admin-port",
        "0",
        "--backend",
        "http://127.0.0.1:1",
        "--prefix-tokenizer",
        str(tokenizer),
    )
    assert status == 2
    assert str(tokenizer) in errors
    assert "Traceback" not in errors


async def test_a_backend_that_comes_back_on_its_port_gets_traffic_again() -> None:
    async with ScriptedBackend(answering(b"good")) as backend:
        async with router_process("--backend", backend.url, "--health-interval-seconds", "0.05") as router:

            async def status() -> int:
                reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
                writer.write(request_bytes(chat()))
                answer = await read_answer(reader)
                writer.close()
                return answer.status

            assert await status() == 200
            await backend.stop()
            async with asyncio.timeout(5):
                while await status() != 503:
                    await asyncio.sleep(0.01)
            await backend.start()
            async with asyncio.timeout(5):
                while await status() != 200:
                    await asyncio.sleep(0.01)


async def test_a_slow_client_gets_the_end_of_its_response_before_the_router_exits() -> None:
    body = b"x" * 6_000_000
    async with (
        ScriptedBackend(answering(body)) as backend,
        router_process("--backend", backend.url) as router,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", router.port, limit=2**16)
        cast(asyncio.Transport, writer.transport).pause_reading()
        writer.write(request_bytes(chat()))
        async with asyncio.timeout(5):
            while not any(request.method == "POST" for request in backend.work):
                await asyncio.sleep(0.01)
        router.signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            while await router.readiness() != 503:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # long enough for a router that does not wait to be gone
        cast(asyncio.Transport, writer.transport).resume_reading()
        answer = await read_answer(reader)
        assert (len(answer.body), answer.complete) == (len(body), True)
        assert await router.exit_status() == 0
        writer.close()


async def test_a_service_manager_hears_of_start_reload_and_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "router.yaml"
    config.write_text("backends: [{url: 'http://127.0.0.1:1'}]\n", encoding="utf-8")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

        async def heard() -> str:
            message = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(manager, 4096), 10)
            return message.decode().partition("\n")[0]

        async with router_process("--config", str(config)) as router:
            assert await heard() == "READY=1"
            router.signal(signal.SIGHUP)
            assert [await heard(), await heard()] == ["RELOADING=1", "READY=1"]
            router.signal(signal.SIGTERM)
            assert await heard() == "STOPPING=1"
            assert await router.exit_status() == 0
