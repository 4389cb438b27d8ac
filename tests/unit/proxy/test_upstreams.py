from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prefix_router.proxy.upstreams import Address, Upstreams
from prefix_router.routing.fleet import Backend, BackendName
from prefix_router.tls import BackendFiles, backend_tls
from prefix_router.upstream.pool import Pool, Timeouts
from tests.support.certificates import Authority
from tests.support.scripted_backend import ScriptedBackend, answering

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h:81", Address("h", 81, False, b"h:81", b"")),
        ("http://h", Address("h", 80, False, b"h", b"")),
        ("https://h/p/q/", Address("h", 443, True, b"h", b"/p/q")),
        ("http://[::1]:8000/x", Address("::1", 8000, False, b"[::1]:8000", b"/x")),
    ],
)
def test_a_url_is_taken_apart(url: str, address: Address) -> None:
    assert Address.of(url) == address


def test_the_path_prefix_goes_before_the_clients_path() -> None:
    upstreams = Upstreams(Timeouts())
    assert upstreams.of(Backend(BackendName("a"), "http://h/p")).target(b"/v1?x") == b"/p/v1?x"
    assert upstreams.of(Backend(BackendName("b"), "http://h")).target(b"/v1?x") == b"/v1?x"


async def test_connections_of_a_backend_that_left_are_closed_and_others_kept() -> None:
    async with ScriptedBackend(answering()) as one, ScriptedBackend(answering()) as two:
        upstreams = Upstreams(Timeouts())
        backends = [Backend(BackendName("a"), one.url), Backend(BackendName("b"), two.url)]
        pools = [upstreams.of(backend).pool for backend in backends]
        for pool in pools:
            response = await pool.send(b"GET", HEAD)
            while await response.read():
                pass
        upstreams.retain(backends[1:])
        assert [pool.idle_connections for pool in pools] == [0, 1]
        assert upstreams.of(backends[1]).pool is pools[1]
        upstreams.close()
        assert pools[1].idle_connections == 0


async def test_new_timeouts_hold_for_old_and_new_connections() -> None:
    upstreams = Upstreams(Timeouts())
    pool = upstreams.of(Backend(BackendName("a"), "http://h:1")).pool
    upstreams.set_timeouts(Timeouts(connect_seconds=1.0))
    assert pool.timeouts.connect_seconds == 1.0
    assert upstreams.of(Backend(BackendName("b"), "http://h:2")).pool.timeouts.connect_seconds == 1.0


def test_a_backend_that_must_prove_another_name_gets_new_connections_another_login_does_not() -> None:
    upstreams = Upstreams(Timeouts())
    backend = Backend(
        BackendName("a"), "https://10.0.0.1", server_name="a.internal", authorization="Bearer 1"
    )
    first = upstreams.of(backend)
    assert (first.address.server_name, first.authorization) == ("a.internal", b"Bearer 1")
    upstreams.retain([replace(backend, authorization="Bearer 2")])
    second = upstreams.of(backend)
    assert (second.pool, second.authorization) == (first.pool, b"Bearer 2")
    renamed = replace(backend, server_name="b.internal")
    upstreams.retain([renamed])
    third = upstreams.of(renamed)
    assert third.pool is not first.pool
    assert third.address.server_name == "b.internal"
    assert "Bearer" not in repr(third) + repr(backend)


async def test_new_certificates_hold_for_new_connections_and_old_ones_are_not_used_again(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    engine = authority.server(authority.issue("engine", "127.0.0.1"))
    async with ScriptedBackend(answering(), tls=engine) as secure, ScriptedBackend(answering()) as plain:
        upstreams = Upstreams(Timeouts(), backend_tls(BackendFiles(str(authority.path))))
        backends = [Backend(BackendName("a"), secure.url), Backend(BackendName("b"), plain.url)]

        async def ask() -> list[Pool]:
            pools = [upstreams.of(backend).pool for backend in backends]
            for pool in pools:
                response = await pool.send(b"GET", HEAD)
                while await response.read():
                    pass
            return pools

        before = await ask()
        authority.path.write_bytes(authority.path.read_bytes() + b"\n")
        tls = backend_tls(BackendFiles(str(authority.path)))
        upstreams.set_tls(tls)
        assert [pool.idle_connections for pool in before] == [0, 1]
        after = await ask()
        assert (after[0] is before[0], after[1] is before[1]) == (False, True)
        upstreams.set_tls(tls)
        assert upstreams.of(backends[0]).pool is after[0]
        upstreams.close()
