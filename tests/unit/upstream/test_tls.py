from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from prefix_router.tls import BackendFiles, backend_tls
from prefix_router.upstream.errors import ErrorKind, UpstreamError
from prefix_router.upstream.pool import Pool, Timeouts
from prefix_router.upstream.tls_failures import refuses_ours, tls_failure
from tests.support.certificates import Authority
from tests.support.scripted_backend import ScriptedBackend, answering

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_backend_that_refuses_our_certificate_says_so(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    authority = Authority(tmp_path)
    engine = authority.server(authority.issue("engine", "127.0.0.1"), asks_clients=True)
    engine.maximum_version = version
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        """Unlike asyncio's, this server sends its alert, and waits for its client to hang up."""
        accepted, _ = listener.accept()
        connection = engine.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        with connection:
            with suppress(ssl.SSLError):
                connection.do_handshake()
            connection.shutdown(socket.SHUT_WR)
            with suppress(OSError):
                while connection.recv(65_536):
                    pass

    serving = asyncio.create_task(asyncio.to_thread(serve))
    ours = Authority(tmp_path, "other").issue("ours", "router.internal")
    files = BackendFiles(str(authority.path), str(ours.certificate), str(ours.key))
    tls = await asyncio.to_thread(backend_tls, files)
    pool = Pool("127.0.0.1", listener.getsockname()[1], Timeouts(), tls.context)
    with pytest.raises(UpstreamError) as failure:
        await pool.send(b"GET", HEAD)
    await serving
    listener.close()
    assert failure.value.kind is ErrorKind.BAD_CERTIFICATE
    assert "it does not accept the router's certificate" in failure.value.detail


async def test_the_name_of_a_server_is_sent_and_checked(tmp_path: Path) -> None:
    seen: list[str | None] = []
    authority = Authority(tmp_path)
    engine = authority.server(authority.issue("engine", "engine.internal"))
    engine.sni_callback = lambda _connection, name, _context: seen.append(name)
    async with ScriptedBackend(answering(), tls=engine) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts(), authority.client(), "engine.internal")
        (await pool.send(b"GET", HEAD)).abort()
        for name in ("other.internal", None):
            pool = Pool("127.0.0.1", backend.port, Timeouts(), authority.client(), name)
            with pytest.raises(UpstreamError, match="its certificate is not accepted") as failure:
                await pool.send(b"GET", HEAD)
            assert failure.value.kind is ErrorKind.BAD_CERTIFICATE
    assert seen[:2] == ["engine.internal", "other.internal"]


def test_openssls_words_are_told_without_its_files_and_numbers() -> None:
    alert = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] (_ssl.c:2580)")
    alert.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert refuses_ours(alert)
    assert tls_failure(alert) == (
        "it does not accept the router's certificate: tlsv13 alert certificate required"
    )
    other = ssl.SSLError(1, "[SSL: TLSV1_ALERT_INTERNAL_ERROR] (_ssl.c:1)")
    other.reason = "TLSV1_ALERT_INTERNAL_ERROR"
    assert not refuses_ours(other)
    assert tls_failure(other) == "TLS failed: tlsv1 alert internal error"
    assert not refuses_ours(ConnectionResetError())
