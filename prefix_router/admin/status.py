"""`/status`: the whole state of the router as one JSON document, for people with curl and for scripts.

Nothing in it is secret, and no prompt is in it: names, states, counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefix_router.observe.events import DiscoveryStatus, EngineSample
from prefix_router.observe.totals import Totals
from prefix_router.routing.fleet import BackendName, Fleet, Member


def status_document(
    fleet: Fleet,
    totals: Totals,
    *,
    version: str,
    strategy: str,
    uptime_seconds: float,
    active_requests: int,
    waiting_requests: int = 0,
    startup: Callable[[BackendName], dict[str, float] | None] = lambda _: None,
) -> dict[str, Any]:
    """Return the document as plain values. startup: the record of a backend that joined, None without one."""
    prompt, cached = totals.prompt_tokens, totals.cached_tokens
    return {
        "version": version,
        "strategy": strategy,
        "uptime_seconds": round(uptime_seconds, 3),
        "active_requests": active_requests,
        "waiting_requests": waiting_requests,
        "backends": [backend_document(member, totals, startup(member.name)) for member in fleet.members],
        "totals": {
            "requests": totals.requests,
            "retries": totals.retries,
            "by_reason": {reason.value: count for reason, count in totals.by_reason.items()},
            "by_outcome": {outcome.value: count for outcome, count in totals.by_outcome.items()},
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "observed_hit_rate": cached / prompt if prompt else None,
        },
        "ring": {"virtual_nodes": fleet.ring.virtual_nodes, "points": fleet.ring.point_count},
    }


def backend_document(
    member: Member, totals: Totals, startup: dict[str, float] | None = None
) -> dict[str, Any]:
    """Return the entry of one backend."""
    return {
        "name": member.name,
        "url": member.backend.url,
        "weight": member.backend.weight,
        "state": member.state.value,
        "draining": member.draining,
        "in_flight": member.in_flight.count,
        "max_in_flight": member.backend.max_in_flight,
        "requests": totals.by_backend[member.name],
        "share": totals.share(member.name),
        "models": None if member.models is None else sorted(member.models),
        "startup": startup,
        "engine": _engine(totals.engine.get(member.name)),
    }


def source_document(status: DiscoveryStatus, now: float) -> dict[str, Any]:
    """Return the entry of one source of backends. now: Unix time."""
    age = None if status.last_success_at is None else round(max(now - status.last_success_at, 0), 3)
    return {
        "source": status.source,
        "up": status.up,
        "backends": status.backends,
        "seconds_since_last_success": age,
        "failures": status.failures,
        "error": status.last_error,
    }


def _engine(sample: EngineSample | None) -> dict[str, Any] | None:
    if sample is None:
        return None
    queried, hit = sample.prefix_cache_queried_tokens, sample.prefix_cache_hit_tokens
    return {
        "requests_running": sample.requests_running,
        "requests_waiting": sample.requests_waiting,
        "kv_cache_usage_ratio": sample.kv_cache_usage_ratio,
        "prefix_cache_hit_rate": hit / queried if hit is not None and queried else None,
    }
