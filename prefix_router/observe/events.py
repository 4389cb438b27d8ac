"""The facts that the data path reports. Metrics, logs and spans are made from these and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from msgspec import Struct

from prefix_router.routing.chain import PrefixChain
from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendName, BackendState


class Outcome(Enum):
    """How a request ended. The values are metric labels and log fields."""

    __hash__ = object.__hash__  # members are compared by identity; Enum's own hash is a call in Python

    COMPLETED = "completed"
    """A whole response of a backend was delivered, whatever its status."""
    REJECTED = "rejected"
    """The router answered by itself: 4xx, or 503 without a routable backend."""
    ANSWERED = "answered"
    """The router answered by itself and well: `/v1/models`."""
    CLIENT_DISCONNECTED = "client_disconnected"
    UPSTREAM_FAILED = "upstream_failed"
    """No backend gave a first byte: 502 or 504."""
    UPSTREAM_TRUNCATED = "upstream_truncated"
    """A response broke off after its first byte; the client's connection was aborted."""


class AdminRefusal(Enum):
    """Why the admin listener did not serve a request. The values are metric labels."""

    HOST = "host"
    """Asked under a name that anybody could have registered."""
    TOKEN_MISSING = "token_missing"
    TOKEN_WRONG = "token_wrong"
    TOKEN_LIMIT = "token_limit"
    """Not looked at: its address has sent too many wrong tokens."""


class RetryCause(Enum):
    """Why another attempt was made."""

    CONNECT = "connect"
    RESET = "reset"
    REUSED_CONNECTION = "reused_connection"
    BACK_PRESSURE = "back_pressure"


class AttemptRecord(Struct):
    """One request to one backend, as a span of a trace.

    span_id: 64 bits, not 0; the backend knows it as the parent of its own spans. url: of the backend.
    began_seconds, ended_seconds: from the moment the request head was read. status: of the backend's
    response, 0 without one. failure: why it failed, in the word of `routing.retry.Failure`.
    """

    span_id: int
    backend: BackendName
    url: str
    reason: Reason
    began_seconds: float
    ended_seconds: float = 0.0
    status: int = 0
    failure: str | None = None


class TraceRecord(Struct):
    """Where a request belongs in its trace.

    trace_id: 32 hexadecimal digits. span_id: of the router's span, 64 bits, not 0. parent_id: of the span
    that the client sent the request from; None where the trace begins here. flags, state: what goes on to
    backends (`openai_api.trace_context`). sampled: whether spans are made of it. began_unix_ns: when its head
    was read.
    """

    trace_id: str
    span_id: int
    parent_id: int | None
    flags: int
    state: str
    sampled: bool
    began_unix_ns: int
    attempts: list[AttemptRecord] = []


class RequestRecord(Struct):
    """One request and what became of it. Never holds prompt text.

    The data path writes what it knows as it goes; at the end, once, whatever the end is, observers read it.
    They do not change it, and nobody does after them.

    Times are seconds, measured from the moment the request head was read. `router_seconds` is the router's
    own work: from the whole body read to the upstream send, plus from the response head received to its being
    sent. `first_token_seconds` is the first content event of a stream. Token counts come from the response's
    own `usage`. `queue_seconds` is the time in line for a backend, None for a request that did not have to
    wait; `retry_denied` says that only the retry budget stood in the way of another attempt. `chain` is there
    only while somebody captures traffic (`observe.capture`), `trace` only while requests are traced.

    `client_address` is the one that the request came from, or, where gateways are trusted to say so, the
    address of whoever asked them; "" when unknown. `client` is the configured client whose key it showed.

    Where prompts have chains, that is, with strategy adaptive or depth auto: `prompt_length` is the length of
    the prompt in the tokens of its chain, which are estimates, `shared_tokens` how much of it this router has
    seen before, wherever that went, and `expected_tokens` how much of it the strategy expected to be cached
    where it sent it; None for a strategy that expects nothing.
    """

    request_id: str
    method: str
    path: str
    api: str = "other"
    model: str | None = None
    stream: bool = False
    status: int = 0
    outcome: Outcome = Outcome.REJECTED
    backend: BackendName | None = None
    reason: Reason | None = None
    home: BackendName | None = None
    key: int | None = None
    attempts: int = 0
    retry_causes: tuple[RetryCause, ...] = ()
    request_bytes: int = 0
    response_bytes: int = 0
    duration_seconds: float = 0.0
    router_seconds: float = 0.0
    first_byte_seconds: float | None = None
    first_token_seconds: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    error_code: str | None = None
    queue_seconds: float | None = None
    retry_denied: bool = False
    chain: PrefixChain | None = None
    prompt_length: int | None = None
    shared_tokens: int | None = None
    expected_tokens: int | None = None
    client_address: str = ""
    client: str | None = None
    trace: TraceRecord | None = None


@dataclass(frozen=True, slots=True)
class BackendChanged:
    """A backend's health state moved."""

    backend: BackendName
    before: BackendState
    after: BackendState
    cause: str


@dataclass(frozen=True, slots=True)
class EngineSample:
    """What one scrape of a backend's own `/metrics` said; None for what it does not export.

    Counters are in tokens and only ever grow while the engine lives.
    """

    backend: BackendName
    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_cache_usage_ratio: float | None = None
    prefix_cache_queried_tokens: float | None = None
    prefix_cache_hit_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class DiscoveryStatus:
    """How a source of backends does.

    up: its last word was an answer; otherwise what it said last is kept. backends: in its last good set.
    failures: questions without a usable answer, since the start. last_success_at: Unix time, None for never.
    last_error: what is wrong now, None for nothing; never holds a secret.
    """

    source: str
    up: bool
    backends: int
    failures: int
    last_success_at: float | None
    last_error: str | None


class Observer(Protocol):
    """Receives events. Must return at once and never raise."""

    def request_finished(self, event: RequestRecord) -> None:
        """Count one finished request."""

    def backend_changed(self, event: BackendChanged) -> None:
        """Count one health transition."""

    def engine_sampled(self, event: EngineSample) -> None:
        """Keep the last sample of one backend."""
