"""What a new configuration changes in a running router, and what of it must wait for a restart.

Pure: two `Settings` in, the settings that are then in force and a `ReloadReport` out. Applies nothing.

The rule: a configuration is valid as a whole or refused as a whole, before it comes here. Of a valid one,
every change that a running router can make is made; a change that needs a restart is reported, and its old
value stays in force. A router that refused the whole file for the sake of one port would be worse: the
backend that must leave now would have to wait for a maintenance window.

`RELOADABLE` names every setting that the router re-reads; a setting that is missing there is one that nobody
has taught to change, and is reported as needing a restart. O(settings + backends).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from msgspec import UNSET, Struct, UnsetType, structs

from prefix_router.settings.fields import written
from prefix_router.settings.secrets import shown, shown_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefix_router.settings.clients import ClientSettings
    from prefix_router.settings.model import BackendSettings, Settings

    _Named: TypeAlias = BackendSettings | ClientSettings

_SectionT = TypeVar("_SectionT", bound=Struct)

RELOADABLE: Final = frozenset(
    {
        "backends",
        "backends[].url",
        "backends[].name",
        "backends[].weight",
        "backends[].models",
        "backends[].kv_events",
        "backends[].kv_events_replay",
        "backends[].kv_events_ranks",
        "backends[].server_name",
        "backends[].authorization",
        "clients",
        "clients[].name",
        "clients[].key_sha256",
        "discovery.settle_seconds",
        "discovery.first_answer_seconds",
        "discovery.believe_empty_seconds",
        "discovery.file.path",
        "discovery.dns.name",
        "discovery.dns.type",
        "discovery.dns.port",
        "discovery.dns.scheme",
        "discovery.dns.family",
        "discovery.dns.weights",
        "discovery.dns.resolvers",
        "discovery.dns.min_seconds",
        "discovery.dns.max_seconds",
        "discovery.kubernetes.service",
        "discovery.kubernetes.selector",
        "discovery.kubernetes.namespace",
        "discovery.kubernetes.port",
        "discovery.kubernetes.scheme",
        "discovery.kubernetes.family",
        "discovery.kubernetes.models_label",
        "discovery.kubernetes.kubeconfig",
        "discovery.kubernetes.context",
        "discovery.kubernetes.watch_seconds",
        "discovery.defaults.weight",
        "discovery.defaults.models",
        "discovery.defaults.path",
        "discovery.defaults.server_name",
        "discovery.defaults.authorization",
        "backend_tls.ca",
        "backend_tls.certificate",
        "backend_tls.key",
        "backend_tls.verify",
        "listen.tls.certificate",
        "listen.tls.key",
        "listen.tls.client_ca",
        "listen.trusted_proxies",
        "listen.cors.allow_origins",
        "listen.cors.allow_headers",
        "listen.cors.expose_headers",
        "listen.cors.max_age_seconds",
        "admin.tls.certificate",
        "admin.tls.key",
        "admin.tls.client_ca",
        "admin.token_sha256",
        "admin.allowed_hosts",
        "routing.strategy",
        "routing.several_routers",
        "routing.prefix.depth",
        "routing.prefix.length",
        "routing.prefix.unit",
        "routing.prefix.anchor",
        "routing.prefix.tokenizer",
        "routing.concurrency_threshold",
        "routing.ring.virtual_nodes",
        "routing.session.header",
        "routing.session.cookie",
        "routing.kv_events.max_blocks",
        "limits.max_body_bytes",
        "limits.max_header_bytes",
        "limits.max_in_flight_per_backend",
        "limits.max_in_flight",
        "queue.max_waiting",
        "queue.timeout_seconds",
        "timeouts.connect_seconds",
        "timeouts.first_byte_seconds",
        "timeouts.idle_seconds",
        "timeouts.upstream_keepalive_seconds",
        "timeouts.client_write_seconds",
        "timeouts.client_keepalive_seconds",
        "timeouts.shutdown_delay_seconds",
        "timeouts.shutdown_grace_seconds",
        "retry.max_attempts",
        "retry.budget_ratio",
        "retry.budget_min_per_second",
        "health.path",
        "health.interval_seconds",
        "health.timeout_seconds",
        "health.probe_failures",
        "health.request_failures",
        "health.cooldown_seconds",
        "health.recovery_successes",
        "health.max_ejected_fraction",
        "joining.warm_up",
        "joining.timeout_seconds",
        "models.refresh_seconds",
        "engine_metrics.path",
        "engine_metrics.interval_seconds",
        "logging.level",
        "logging.access",
        "tracing.endpoint",
        "tracing.authorization",
        "tracing.sample_ratio",
        "tracing.service_name",
        "capture.path",
        "capture.max_bytes",
        "capture.sample",
        "reload.watch",
        "response_headers.decision",
    }
)
"""Dotted paths of what a running router can change; `[]` stands for any entry of a list."""


_BY_NAME: Final = frozenset({"backends", "clients"})
"""Lists whose entries are told apart by their names; their order is no difference."""


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that differs, as plain values (what YAML would hold), secrets masked.

    path: dotted; a backend or client is called by its name: `backends[a].weight`. old, new: UNSET for one
    that joins or leaves.
    """

    path: str
    old: Any
    new: Any

    def document(self) -> dict[str, Any]:
        """Return it for JSON; a side that is absent is left out."""
        sides = (("old", self.old), ("new", self.new))
        return {"path": self.path, **{name: value for name, value in sides if value is not UNSET}}

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.old)} → {_shown(self.new)}"


@dataclass(frozen=True, slots=True)
class ReloadReport:
    """What came of a valid configuration: the changes that are in force now, and those that are not."""

    applied: tuple[Change, ...] = ()
    needs_restart: tuple[Change, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "applied": [change.document() for change in self.applied],
            "needs_restart": [change.document() for change in self.needs_restart],
        }


def compare(running: Settings, wanted: Settings) -> tuple[Settings, ReloadReport]:
    """Return the settings that are in force once `wanted` has been applied, and what that changes."""
    in_force = _keep_fixed(running, wanted, "")
    applied = tuple(changes(running, in_force))
    return in_force, ReloadReport(applied, tuple(changes(in_force, wanted)))


def changes(old: Settings, new: Settings) -> Iterator[Change]:
    """Yield every setting that differs, in the order of the model. The order of backends is no difference."""
    yield from _changes(old, new, "")


def _changes(old: Struct, new: Struct, prefix: str) -> Iterator[Change]:
    for field in structs.fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        path = prefix + field.name
        if before == after:
            continue
        if path in _BY_NAME:
            yield from _named_changes(path, before, after)
        elif isinstance(before, Struct) and isinstance(after, Struct):
            yield from _changes(before, after, f"{path}.")
        else:
            yield Change(path, shown_value(field.type, before), shown_value(field.type, after))


def _named_changes(section: str, old: tuple[_Named, ...], new: tuple[_Named, ...]) -> Iterator[Change]:
    before = {entry.name: entry for entry in old}
    after = {entry.name: entry for entry in new}
    for name in {**before, **after}:
        path = f"{section}[{name}]"
        if name not in after:
            yield Change(path, shown(before[name]), UNSET)
        elif name not in before:
            yield Change(path, UNSET, shown(after[name]))
        else:
            yield from _changes(before[name], after[name], f"{path}.")


def _keep_fixed(running: _SectionT, wanted: _SectionT, prefix: str) -> _SectionT:
    """Return `wanted`, with the running value of everything that cannot change."""
    kept: dict[str, Any] = {}
    for field in structs.fields(wanted):
        before, after = getattr(running, field.name), getattr(wanted, field.name)
        path = prefix + field.name
        if isinstance(after, Struct):
            kept[field.name] = _keep_fixed(before, after, f"{path}.")
        elif path not in RELOADABLE:
            kept[field.name] = before
    return structs.replace(wanted, **kept)


def _shown(value: Any | UnsetType) -> str:
    if value is UNSET:
        return "(none)"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_shown(item)}' for key, item in value.items())}}}"
    return written(tuple(value) if isinstance(value, list) else value)
