from __future__ import annotations

import msgspec

from prefix_router.admin.status import status_document
from prefix_router.observe.events import EngineSample
from prefix_router.observe.totals import Totals
from prefix_router.routing.fleet import Backend, BackendName, BackendState, Fleet, InFlight, Member
from prefix_router.routing.ring import Ring

A, B = BackendName("a"), BackendName("b")


def test_it_says_all_that_a_person_asks_for() -> None:
    busy = InFlight()
    busy.count = 3
    fleet = Fleet(
        (
            Member(Backend(A, "http://a:1", 2), BackendState.HEALTHY, busy, frozenset({"n", "m"})),
            Member(Backend(B, "http://b:1"), BackendState.DOWN, InFlight(), None, draining=True),
        ),
        Ring({A: 2, B: 1}, 8),
    )
    totals = Totals()
    totals.engine_sampled(EngineSample(A, 1.0, 2.0, 0.5, 200.0, 50.0))
    totals.by_backend[A] = 4
    totals.prompt_tokens, totals.cached_tokens = 10, 5
    document = status_document(
        fleet,
        totals,
        version="1",
        strategy="prefix_aware",
        uptime_seconds=1.5,
        active_requests=3,
        startup={A: {"discovered": 0.0}}.get,
    )
    assert msgspec.json.decode(msgspec.json.encode(document)) == document
    first, second = document["backends"]
    assert first == {
        "name": "a",
        "url": "http://a:1",
        "weight": 2,
        "state": "healthy",
        "draining": False,
        "in_flight": 3,
        "max_in_flight": None,
        "requests": 4,
        "share": 1.0,
        "models": ["m", "n"],
        "startup": {"discovered": 0.0},
        "engine": {
            "requests_running": 1.0,
            "requests_waiting": 2.0,
            "kv_cache_usage_ratio": 0.5,
            "prefix_cache_hit_rate": 0.25,
        },
    }
    assert (second["state"], second["draining"], second["models"], second["engine"]) == (
        "down",
        True,
        None,
        None,
    )
    assert second["startup"] is None
    assert document["totals"]["observed_hit_rate"] == 0.5
    assert document["ring"] == {"virtual_nodes": 8, "points": 24}


def test_without_evidence_there_is_no_hit_rate() -> None:
    document = status_document(
        Fleet((), Ring({}, 8)), Totals(), version="1", strategy="random", uptime_seconds=0, active_requests=0
    )
    assert document["totals"]["observed_hit_rate"] is None
    assert document["backends"] == []
