from __future__ import annotations

from prefix_router.kv_events.source import Source, sources_of
from prefix_router.routing.fleet import BackendName

A = BackendName("a")


def test_one_engine() -> None:
    assert sources_of(A, "tcp://h:5557") == (Source(A, 0, "tcp://h:5557", None),)


def test_the_ports_of_several_engines_count_up() -> None:
    assert sources_of(A, "tcp://[::1]:5557", "tcp://[::1]:5657", ranks=2) == (
        Source(A, 0, "tcp://[::1]:5557", "tcp://[::1]:5657"),
        Source(A, 1, "tcp://[::1]:5558", "tcp://[::1]:5658"),
    )
