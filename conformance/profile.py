"""The settings that a case asks for, in words that belong to no router.

A launcher translates them to flags or a file. A field left at None means "the router's own default". Cases
with equal profiles share one router process.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum


class Strategy(Enum):
    """How backends are to be chosen."""

    PREFIX = "prefix"
    """Requests with equal beginnings go to the same backend."""
    LEAST_LOADED = "least_loaded"
    """By the router's own count of requests in flight."""
    ROUND_ROBIN = "round_robin"


@dataclass(frozen=True, slots=True)
class Profile:
    """Settings of a router under test. Times in seconds, sizes in bytes.

    strategy: see Strategy. threshold: requests in flight at which a backend stops being preferred.
    idle_timeout_seconds: between two pieces of a response. upstream_keepalive_seconds: how long an unused
    connection to a backend is kept. client_write_timeout_seconds: how long a client may take no byte.
    shutdown_delay_seconds: after SIGTERM, while new connections are still taken. max_in_flight: requests on
    all backends together before others wait. max_in_flight_per_backend: on each of them. queue_length,
    queue_timeout_seconds: how many may wait, and how long. request_failures: failed requests in a row that
    take a backend out. cooldown_seconds: before such a backend is tried again. max_attempts: times that one
    request may be sent, the first included. retries_per_second: how many a budget for retries must allow at
    least; a router without one allows all, and needs no telling. engine_metrics_seconds: between two readings
    of a backend's own metrics.
    kubeconfig: path of one whose API server has the backends as service `vllm`, port `http`. name_server:
    `address:port` of one that has them as SRV records of `_http._tcp.backends.conformance.test`.
    backend_count: how many of the suite's backends the router gets. backend_address: how an address is
    written for the router, `{port}` stands for the port. listen_host: where the router listens.
    """

    strategy: Strategy = Strategy.PREFIX
    threshold: int | None = None
    connect_timeout_seconds: float | None = None
    first_byte_timeout_seconds: float | None = None
    idle_timeout_seconds: float | None = None
    upstream_keepalive_seconds: float | None = None
    client_write_timeout_seconds: float | None = None
    shutdown_delay_seconds: float | None = None
    shutdown_grace_seconds: float | None = None
    max_body_bytes: int | None = None
    max_attempts: int | None = None
    max_in_flight: int | None = None
    max_in_flight_per_backend: int | None = None
    queue_length: int | None = None
    queue_timeout_seconds: float | None = None
    health_interval_seconds: float | None = None
    health_timeout_seconds: float | None = None
    probe_failures: int | None = None
    request_failures: int | None = None
    cooldown_seconds: float | None = None
    models_refresh_seconds: float | None = None
    retries_per_second: float | None = None
    engine_metrics_seconds: float | None = None
    kubeconfig: str | None = None
    name_server: str | None = None
    backend_count: int = 3
    backend_address: str = "http://127.0.0.1:{port}"
    listen_host: str = "127.0.0.1"

    @property
    def asked_for(self) -> dict[str, object]:
        """The fields that differ from their defaults, by name."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }

    @property
    def label(self) -> str:
        """The profile in one line, for reports."""
        return ", ".join(
            f"{name}={value.value if isinstance(value, Enum) else value}"
            for name, value in self.asked_for.items()
        )


DEFAULT_PROFILE = Profile()
