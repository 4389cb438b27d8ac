from __future__ import annotations

import pytest

from prefix_router.proxy.upstreams import Address, Upstreams
from prefix_router.routing.fleet import Backend, BackendName
from prefix_router.upstream.pool import Timeouts
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
