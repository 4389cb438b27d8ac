"""vllm-router, from its wheel. Flags as its `--help` of the pinned version has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from conformance.backend import Backend
from conformance.launchers.base import CommandLauncher, Ports, RunningRouter
from conformance.launchers.peer import expect_ok, installed_version, program, worker_ids, worker_loads
from conformance.model import Capability
from conformance.profile import Profile, Strategy

_POLICIES = {
    Strategy.PREFIX: "cache_aware",
    Strategy.LEAST_LOADED: "power_of_two",
    Strategy.ROUND_ROBIN: "round_robin",
}

_FLAGS = {
    "max_body_bytes": "--max-payload-size",
    "max_attempts": "--retry-max-retries",
    "max_in_flight": "--max-concurrent-requests",
    "queue_length": "--queue-size",
    "queue_timeout_seconds": "--queue-timeout-secs",
    "health_interval_seconds": "--health-check-interval-secs",
    "health_timeout_seconds": "--health-check-timeout-secs",
    "probe_failures": "--health-failure-threshold",
    "request_failures": "--cb-failure-threshold",
    "cooldown_seconds": "--cb-timeout-duration-secs",
}
"""Profile field -> flag. Its seconds are whole: fractions are rounded up."""


class VllmRouter(CommandLauncher):
    """vllm-router with its prefix policy, cache_aware, unless a case asks for another."""

    name: ClassVar[str] = "vllm-router"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {
            Capability.PROCESS,
            Capability.FRESH,
            Capability.METRICS,
            Capability.IN_FLIGHT,
            Capability.MEMBERSHIP,
            Capability.QUEUE,
        }
    )
    unsupported: ClassVar[dict[str, str]] = {
        "threshold": "its bound on load compares the whole fleet, not one backend",
        "connect_timeout_seconds": "no such setting",
        "first_byte_timeout_seconds": "it has one timeout for a whole request",
        "idle_timeout_seconds": "it has one timeout for a whole request",
        "upstream_keepalive_seconds": "no such setting",
        "client_write_timeout_seconds": "no such setting",
        "shutdown_delay_seconds": "no such setting",
        "shutdown_grace_seconds": "no such setting",
        "models_refresh_seconds": "no such setting",
        "engine_metrics_seconds": "no such setting",
        "max_in_flight_per_backend": "its limits are for all backends together",
        "kubeconfig": "its discovery follows pods, and the suite plays endpoints only",
        "name_server": "no such setting",
    }

    def version(self) -> str:
        """Return the installed version."""
        return installed_version(self.name)

    def command(self, profile: Profile, urls: Sequence[str], ports: Ports, folder: Path) -> list[str]:
        """Return the command line."""
        arguments = ["--host", profile.listen_host, "--port", str(ports.data)]
        arguments += ["--prometheus-port", str(ports.metrics), "--log-level", "warning"]
        arguments += ["--policy", _POLICIES[profile.strategy], "--worker-startup-check-interval", "1"]
        for field, flag in _FLAGS.items():
            value = getattr(profile, field)
            if value is not None:
                arguments += [flag, str(max(1, -int(-value // 1)))]
        return [program(self.name), *arguments, "--worker-urls", *urls]

    async def in_flight(self, router: RunningRouter) -> dict[str, int] | None:
        """Read them from `GET /workers`."""
        return await worker_loads(router)

    async def set_backends(
        self, router: RunningRouter, profile: Profile, backends: Sequence[Backend]
    ) -> None:
        """Add and remove workers until they are `backends`."""
        wanted = {profile.backend_address.format(port=backend.port) for backend in backends}
        present = set(await worker_ids(router))
        for url in sorted(wanted - present):
            await expect_ok(await router.admin(f"/add_worker?url={quote(url, safe='')}", method="POST"))
        for url in sorted(present - wanted):
            await expect_ok(await router.admin(f"/remove_worker?url={quote(url, safe='')}", method="POST"))
