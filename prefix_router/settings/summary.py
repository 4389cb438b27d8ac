"""A configuration in a few lines, for a person who wants to see that the right one was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.settings.backend_url import host_port
from prefix_router.settings.model import PrefixDepth, StrategyName

if TYPE_CHECKING:
    from prefix_router.settings.model import RoutingSettings, Settings

MAX_BACKENDS = 10
"""Backends that are listed; the rest are counted."""


def summary(settings: Settings) -> str:
    """Listeners, backends and strategy, one a line."""
    listen, admin, backends = settings.listen, settings.admin, settings.backends
    lines = [
        f"listen    {host_port(listen.host, listen.port)}, admin {host_port(admin.host, admin.port)}",
        f"strategy  {_strategy(settings.routing)}",
        f"backends  {len(backends)}",
    ]
    if settings.workers > 1:
        lines.insert(1, f"workers   {settings.workers}")
    for backend in backends[:MAX_BACKENDS]:
        models = f", models {', '.join(backend.models)}" if backend.models else ""
        lines.append(f"          {backend.name}: {backend.url}, weight {backend.weight}{models}")
    if len(backends) > MAX_BACKENDS:
        lines.append(f"          and {len(backends) - MAX_BACKENDS} more")
    return "\n".join(lines)


def _strategy(routing: RoutingSettings) -> str:
    name = routing.strategy.value
    if routing.strategy is StrategyName.SESSION:
        cookie = f" or cookie {routing.session.cookie}" if routing.session.cookie else ""
        return f"{name}: header {routing.session.header}{cookie}"
    if routing.strategy is StrategyName.ADAPTIVE:
        return f"{name}: {'several routers' if routing.several_routers else 'one router'}"
    if routing.strategy is not StrategyName.PREFIX_AWARE:
        return name
    prefix = routing.prefix
    if prefix.depth is PrefixDepth.AUTO:
        return f"{name}: depth auto, overflow from {routing.concurrency_threshold} in flight"
    counted = prefix.unit.value if prefix.tokenizer is None else f"{prefix.unit.value} of {prefix.tokenizer}"
    return (
        f"{name}: first {prefix.length} {counted}, anchor {prefix.anchor.value}, "
        f"overflow from {routing.concurrency_threshold} in flight, {routing.ring.virtual_nodes} virtual nodes"
    )
