from __future__ import annotations

from prefix_router.proxy.continuations import Continuations
from prefix_router.routing.fleet import BackendName

A, B = BackendName("a"), BackendName("b")


def test_a_response_is_found_where_it_was_made() -> None:
    known = Continuations()
    known.remember("resp_1", A)
    known.remember("resp_2", B)
    assert known.backend("resp_1") == A
    assert known.backend("resp_2") == B
    assert known.backend("resp_3") is None


def test_the_oldest_are_forgotten_first() -> None:
    known = Continuations(capacity=2)
    known.remember("1", A)
    known.remember("2", A)
    known.remember("1", B)
    known.remember("3", A)
    assert (known.backend("1"), known.backend("2"), known.backend("3")) == (B, None, A)
    assert len(known) == 2


def test_an_endless_id_is_not_kept() -> None:
    known = Continuations()
    known.remember("x" * 257, A)
    assert len(known) == 0
