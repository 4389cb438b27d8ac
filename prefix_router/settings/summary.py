"""A configuration in a few lines, for a person who wants to see that the right one was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.settings.backend_url import host_port
from prefix_router.settings.model import PrefixDepth, StrategyName

if TYPE_CHECKING:
    from prefix_router.settings.discovery import DiscoverySettings
    from prefix_router.settings.model import RoutingSettings, Settings
    from prefix_router.settings.tls import ListenerTlsSettings

MAX_BACKENDS = 10
"""Backends that are listed; the rest are counted."""


def summary(settings: Settings) -> str:
    """Listeners, backends and strategy, one a line."""
    listen, admin, backends = settings.listen, settings.admin, settings.backends
    data_side = host_port(listen.host, listen.port) + _guards(listen.tls)
    has_token = admin.token_sha256 is not None
    admin_side = host_port(admin.host, admin.port) + _guards(admin.tls, token=has_token)
    lines = [
        f"listen    {data_side}, admin {admin_side}",
        f"strategy  {_strategy(settings.routing)}",
        f"backends  {len(backends)}{_sources(settings.discovery)}",
    ]
    if settings.workers > 1:
        lines.insert(1, f"workers   {settings.workers}")
    for backend in backends[:MAX_BACKENDS]:
        models = f", models {', '.join(backend.models)}" if backend.models else ""
        lines.append(f"          {backend.name}: {backend.url}, weight {backend.weight}{models}")
    if not settings.backend_tls.verify:
        lines.append("          WARNING: backend_tls.verify is false, their certificates are not checked")
    if len(backends) > MAX_BACKENDS:
        lines.append(f"          and {len(backends) - MAX_BACKENDS} more")
    return "\n".join(lines)


def _guards(tls: ListenerTlsSettings, *, token: bool = False) -> str:
    """What stands before a listener, in parentheses; "" for nothing."""
    asked = {"TLS": tls.certificate, "client certificates": tls.client_ca, "token": token or None}
    words = [word for word, value in asked.items() if value is not None]
    return f" ({', '.join(words)})" if words else ""


def _sources(discovery: DiscoverySettings) -> str:
    """Where others are found."""
    file, dns, kubernetes = discovery.file, discovery.dns, discovery.kubernetes
    sources = []
    if file.path is not None:
        sources.append(f"file {file.path}")
    if dns.name is not None:
        sources.append(f"DNS {dns.name} ({dns.type.value})")
    if (wanted := kubernetes.service or kubernetes.selector) is not None:
        sources.append(f"Kubernetes {wanted}")
    return f", and those that are found: {', '.join(sources)}" if sources else ""


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
