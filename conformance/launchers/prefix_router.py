"""prefix_router of this checkout, started as `python -m prefix_router serve --config FILE`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from conformance.backend import Backend
from conformance.launchers.base import CommandLauncher, Ports, RunningRouter, json_of
from conformance.model import Capability, CaseFailed, NotApplicable
from conformance.profile import Profile, Strategy
from conformance.wire import BrokenError, ClosedError

_STRATEGIES = {
    Strategy.PREFIX: "prefix_aware",
    Strategy.LEAST_LOADED: "least_outstanding_requests",
    Strategy.ROUND_ROBIN: "round_robin",
}

_PLACES = {
    "threshold": ("routing", "concurrency_threshold"),
    "connect_timeout_seconds": ("timeouts", "connect_seconds"),
    "first_byte_timeout_seconds": ("timeouts", "first_byte_seconds"),
    "idle_timeout_seconds": ("timeouts", "idle_seconds"),
    "upstream_keepalive_seconds": ("timeouts", "upstream_keepalive_seconds"),
    "client_write_timeout_seconds": ("timeouts", "client_write_seconds"),
    "shutdown_delay_seconds": ("timeouts", "shutdown_delay_seconds"),
    "shutdown_grace_seconds": ("timeouts", "shutdown_grace_seconds"),
    "max_body_bytes": ("limits", "max_body_bytes"),
    "max_attempts": ("retry", "max_attempts"),
    "max_in_flight": ("limits", "max_in_flight"),
    "max_in_flight_per_backend": ("limits", "max_in_flight_per_backend"),
    "queue_length": ("queue", "max_waiting"),
    "queue_timeout_seconds": ("queue", "timeout_seconds"),
    "health_interval_seconds": ("health", "interval_seconds"),
    "health_timeout_seconds": ("health", "timeout_seconds"),
    "probe_failures": ("health", "probe_failures"),
    "request_failures": ("health", "request_failures"),
    "cooldown_seconds": ("health", "cooldown_seconds"),
    "models_refresh_seconds": ("models", "refresh_seconds"),
    "retries_per_second": ("retry", "budget_min_per_second"),
    "engine_metrics_seconds": ("engine_metrics", "interval_seconds"),
}
"""Profile field -> section and key of the configuration."""

_SOURCES = {"kubeconfig": ("discovery", "kubernetes"), "name_server": ("discovery", "dns")}
"""Profile field -> the section that says where backends are found instead."""


class PrefixRouter(CommandLauncher):
    """The router that this suite belongs to; it gets no favours."""

    name: ClassVar[str] = "prefix_router"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(Capability)
    _known: ClassVar[dict[str, Any] | None] = None

    def lacks(self, needs: frozenset[Capability], profile: Profile) -> str | None:
        """Add the settings that this checkout does not know (its schema says)."""
        if (reason := super().lacks(needs, profile)) is not None:
            return reason
        known = self._schema()
        for name in profile.asked_for:
            section, key = {**_PLACES, **_SOURCES}.get(name, ("", ""))
            if section and key not in known.get(section, ()):
                return f"{name} cannot be set: there is no {section}.{key}"
        return None

    def version(self) -> str:
        """Ask the command."""
        command = [sys.executable, "-m", "prefix_router", "--version"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip().rpartition(" ")[2] or "unknown"

    def command(self, profile: Profile, urls: Sequence[str], ports: Ports, folder: Path) -> list[str]:
        """Write the configuration (JSON is YAML) and name it."""
        path = folder / "prefix-router.yaml"
        path.write_text(json.dumps(_document(profile, urls, ports)), encoding="utf-8")
        return [sys.executable, "-m", "prefix_router", "serve", "--config", str(path)]

    def _schema(self) -> dict[str, Any]:
        if PrefixRouter._known is None:
            command = [sys.executable, "-m", "prefix_router", "schema"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            PrefixRouter._known = keys_of(json.loads(done.stdout or "{}"))
        return PrefixRouter._known

    async def set_backends(
        self, router: RunningRouter, profile: Profile, backends: Sequence[Backend]
    ) -> None:
        """Write the file anew and ask for a reload. Raises NotApplicable."""
        if router.folder is None:
            raise NotApplicable("the suite did not start the router")
        path = router.folder / "prefix-router.yaml"
        document = json.loads(path.read_text(encoding="utf-8"))
        document["backends"] = [{"url": profile.backend_address.format(port=b.port)} for b in backends]
        path.write_text(json.dumps(document), encoding="utf-8")
        answer = await router.admin("/reload", method="POST")
        if answer.status == 404:
            raise NotApplicable("this checkout has no reload")
        if answer.status != 200:
            raise CaseFailed(f"reload: {answer}")

    async def in_flight(self, router: RunningRouter) -> dict[str, int] | None:
        """Read them from `/status`."""
        if router.admin_port is None:
            return None
        try:
            document = json_of(await router.admin("/status"))
        except (OSError, TimeoutError, ClosedError, BrokenError):
            return None
        if not isinstance(document, dict):
            return None
        return {entry["name"]: int(entry["in_flight"]) for entry in document["backends"]}


def _document(profile: Profile, urls: Sequence[str], ports: Ports) -> dict[str, Any]:
    document: dict[str, Any] = {
        "listen": {"host": profile.listen_host, "port": ports.data},
        "admin": {"host": "127.0.0.1", "port": ports.admin},
        "backends": [{"url": url} for url in urls],
        "routing": {"strategy": _STRATEGIES[profile.strategy]},
    }
    for field, (section, key) in _PLACES.items():
        value = getattr(profile, field)
        if value is not None:
            document.setdefault(section, {})[key] = value
    if profile.kubeconfig is not None or profile.name_server is not None:
        document["backends"] = []
        document["discovery"] = _discovery(profile)
    return document


def _discovery(profile: Profile) -> dict[str, Any]:
    sources: dict[str, Any] = {"believe_empty_seconds": 0}
    if profile.kubeconfig is not None:
        sources["kubernetes"] = {"service": "vllm", "port": "http", "kubeconfig": profile.kubeconfig}
    if profile.name_server is not None:
        sources["dns"] = {
            "name": "_http._tcp.backends.conformance.test",
            "type": "srv",
            "resolvers": [profile.name_server],
            "min_seconds": 0.1,
        }
    return sources


def keys_of(schema: dict[str, Any]) -> dict[str, Any]:
    """Return section -> its keys, from a JSON schema whose sections are properties or references."""
    definitions = schema.get("$defs", {})

    def resolved(node: dict[str, Any]) -> dict[str, Any]:
        for choice in (node, *node.get("anyOf", ()), *node.get("allOf", ())):
            if "$ref" in choice:
                found: dict[str, Any] = definitions.get(choice["$ref"].rpartition("/")[2], {})
                return found
        return node

    sections = resolved(schema).get("properties", {})
    return {name: set(resolved(node).get("properties", {})) for name, node in sections.items()}
