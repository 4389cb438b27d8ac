"""What can be configured: the typed, immutable settings and what each of them means.

These structs are the single source of the configuration. The loader converts YAML and flags into them,
the JSON Schema and `--help` are made from them, and `config/prefix-router.yaml` is tested against them.
Each docstring ends with one paragraph per setting: what it is, its unit, and when to change it. Range and
default are not repeated there: `settings.fields` takes them from the annotations and adds them wherever a
description is shown.

Nothing here reads a file, a clock or the environment. Rules that look at more than one setting are in
`settings.rules`.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from prefix_router.settings.clients import ClientSettings
from prefix_router.settings.cors import CorsSettings
from prefix_router.settings.discovery import DiscoverySettings
from prefix_router.settings.joining import JoiningSettings
from prefix_router.settings.patterns import (
    CREDENTIAL,
    CREDENTIAL_PATTERN,
    EVENTS,
    EVENTS_PATTERN,
    FIELD_NAME,
    FIELD_NAME_PATTERN,
    FILE,
    HOST,
    HOST_PATTERN,
    MODEL,
    NAME,
    NAME_PATTERN,
    NETWORK,
    NETWORK_PATTERN,
    PATH,
    PATH_PATTERN,
    SHA256,
    SHA256_PATTERN,
    URL,
)
from prefix_router.settings.tls import BackendTlsSettings, ListenerTlsSettings
from prefix_router.settings.tracing import TracingSettings

MAX_WORKERS: Final = 64
"""Processes behind one port: each decision reads a count of each of them."""

DEFAULT_VIRTUAL_NODES: Final = 1280
"""The ring's own default. Not imported from there: a command that checks a file needs no hash ring."""


OFF_OR_AT_LEAST_ONE: Final[dict[str, Any]] = {"anyOf": [{"const": 0}, {"minimum": 1}]}


class StrategyName(Enum):
    """How a backend is chosen."""

    RANDOM = "random"
    ROUND_ROBIN = "round_robin"
    LEAST_OUTSTANDING_REQUESTS = "least_outstanding_requests"
    SESSION = "session"
    PREFIX_AWARE = "prefix_aware"
    ADAPTIVE = "adaptive"


class PrefixUnit(Enum):
    """What the prefix length counts."""

    TOKENS = "tokens"
    CHARACTERS = "characters"
    BYTES = "bytes"


class PrefixAnchor(Enum):
    """Where the prefix may end before its length is used up."""

    FIRST_USER_TURN = "first_user_turn"
    NONE = "none"


class PrefixDepth(Enum):
    """How far a key looks."""

    FIXED = "fixed"
    AUTO = "auto"


class LogLevel(Enum):
    """The least severe line that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(Enum):
    """How a log line is written."""

    TEXT = "text"
    JSON = "json"


class ListenSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where clients connect.

    host: Address that clients connect to. 0.0.0.0 is every IPv4 interface, :: every IPv6 one; set 127.0.0.1
        when a gateway on the same host stands in front.
    port: TCP port that clients connect to. 0 takes any free port and logs which. Change it when something
        else owns the port.
    backlog: Connections that the kernel holds until the router accepts them. Raise it, together with the
        kernel's net.core.somaxconn, when bursts of new clients are refused.
    trusted_proxies: Networks of the gateways in front of the router. The client's address, scheme and host
        are then taken from what these say in X-Forwarded-* or Forwarded, and nobody else's word is passed on.
        null judges nobody: what came is kept, and the address of the connection is appended. Set it when
        backends or logs must know clients.
    """

    host: Annotated[str, Meta(pattern=HOST_PATTERN, extra=HOST)] = "0.0.0.0"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8000
    backlog: Annotated[int, Meta(ge=1, le=65_535)] = 2048
    tls: ListenerTlsSettings = ListenerTlsSettings()
    trusted_proxies: tuple[Annotated[str, Meta(pattern=NETWORK_PATTERN, extra=NETWORK)], ...] | None = None
    cors: CorsSettings = CorsSettings()


class AdminSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where operators and Prometheus connect: probes, metrics, status, explanations, reloads and drains.

    host: Address of the admin listener. Without a token_sha256 whoever reaches it can drain backends: open
        it (0.0.0.0) only with one, or where the network lets nobody but operators, probes and Prometheus in.
    port: TCP port of the admin listener. 0 takes any free port and logs which. Change it when a Prometheus
        server already owns 9090 on this host.
    token_sha256: SHA-256 of the token that operators send as Authorization: Bearer TOKEN to change something
        or to see settings or prompts; null asks for none. `prefix-router hash-key --generate` makes both. Set
        it whenever others than operators can reach the listener.
    allowed_hosts: Names under which the admin listener may be asked, besides IP addresses and names that
        nobody can register: those without a dot, and those that end in .localhost, .local, .internal or .svc.
        Add the name that your browser or Prometheus uses when it is told that a name is not allowed.
    """

    host: Annotated[str, Meta(pattern=HOST_PATTERN, extra=HOST)] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 9090
    tls: ListenerTlsSettings = ListenerTlsSettings()
    token_sha256: Annotated[str, Meta(pattern=SHA256_PATTERN, extra=SHA256)] | None = None
    allowed_hosts: tuple[Annotated[str, Meta(pattern=HOST_PATTERN, extra=HOST)], ...] = ()


class BackendSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One vLLM replica.

    url: Where the replica answers: http:// or https://, host, port, and a path prefix if a gateway needs
        one. Without a scheme it is http://; a final / or /v1 is dropped, because clients send /v1
        themselves. IPv6 addresses stand in brackets: http://[::1]:8000.
    name: What the replica is called in metrics, logs, response headers and on the ring. Empty means
        host:port of the URL. Set it when addresses change but replicas stay: a renamed backend gets other
        keys and starts with a cold cache for them.
    weight: Shares of the ring, a whole number relative to the other backends; its concurrency_threshold
        grows with it. Raise it for a replica with more KV cache than the others. Keep the numbers small: each
        share costs virtual_nodes points.
    models: Names of the models and adapters that this replica serves. null asks its /v1/models. Set it when
        that endpoint is missing, needs a login or lists too much.
    kv_events: Where the replica publishes its KV events; null listens to none. Needs
        routing.prefix.tokenizer and the extra prefix_router[events]. Set it for an exact view of what the
        replica's cache holds, on all replicas or none; docs/kv-events.md says what vLLM needs for it.
    kv_events_replay: Where the replica's KV events can be had again; null when it does not offer that. Set
        it whenever kv_events is: without it, what is missed once is not known until the replica starts again.
    kv_events_ranks: Data-parallel engines behind this url. Each publishes on a port of its own, counted up
        from the ports above, as vLLM does it. Set it to vLLM's --data-parallel-size when one server has
        several.
    server_name: Name that the replica's certificate must have, which it also hears in the TLS handshake; null
        is the host of the URL. Set it when the URL holds an IP address and the certificate a name.
    authorization: What the router sends this replica as Authorization, in requests, probes and all else,
        in place of what the client sent; null passes the client's on. Set it to "Bearer ${VLLM_API_KEY}" when
        the replica runs with --api-key. It is shown nowhere.
    """

    # The loader normalises `url` (see `settings.backend_url`) and fills in an empty `name`.
    url: Annotated[str, Meta(min_length=1, extra=URL)]
    name: Annotated[str, Meta(pattern=NAME_PATTERN, extra=NAME)] = ""
    weight: Annotated[int, Meta(ge=1, le=100)] = 1
    models: (
        Annotated[tuple[Annotated[str, Meta(min_length=1, extra=MODEL)], ...], Meta(min_length=1)] | None
    ) = None
    kv_events: Annotated[str, Meta(pattern=EVENTS_PATTERN, extra=EVENTS)] | None = None
    kv_events_replay: Annotated[str, Meta(pattern=EVENTS_PATTERN, extra=EVENTS)] | None = None
    kv_events_ranks: Annotated[int, Meta(ge=1, le=256)] = 1
    server_name: Annotated[str, Meta(pattern=HOST_PATTERN, extra=HOST)] | None = None
    authorization: Annotated[str, Meta(pattern=CREDENTIAL_PATTERN, extra=CREDENTIAL)] | None = None


class PrefixSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which beginning of a request is its key. Requests with an equal beginning get an equal key.

    depth: fixed hashes `length` units; auto looks as deep as it takes until a beginning is no longer too
        popular to live on one backend, so that there is no length to choose: `length` and `anchor` have no
        say, and `unit` must be tokens. Strategy adaptive always looks like that. Set auto when system prompts
        or tools are shared by many, or when traffic of several kinds comes through one router.
    length: How much of the prompt is hashed, counted in `unit`. Raise it when a long system prompt that
        everyone shares sends too much to one backend; lower it when requests that share a beginning are
        spread because they differ before that many tokens.
    unit: What `length` counts. tokens: about four UTF-8 bytes each, or exact with a `tokenizer`. characters:
        characters of the message text. bytes: bytes of the raw body. Change it to get the same keys as
        another router that counts so.
    anchor: first_user_turn ends the key at the end of the first user turn, so that a chat keeps its backend
        while it grows; none hashes `length` units whatever they are. Set none when the first user turns
        differ but what follows them is shared.
    tokenizer: Path of the model's tokenizer.json, relative to the working directory; null estimates. Only
        with unit tokens, and only when the extra prefix_router[tokenizer] is installed. Set it when `length`
        must be exact; it costs time on each request.
    """

    depth: PrefixDepth = PrefixDepth.FIXED
    length: Annotated[int, Meta(ge=1, le=1_048_576)] = 1024
    unit: PrefixUnit = PrefixUnit.TOKENS
    anchor: PrefixAnchor = PrefixAnchor.FIRST_USER_TURN
    tokenizer: Annotated[str, Meta(min_length=1, extra=FILE)] | None = None


class RingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The consistent-hash ring that maps a key to its home.

    virtual_nodes: Points on the ring for each share of weight. More points spread keys more evenly and take
        more memory and more time on each change of membership. All routers in front of one fleet need the
        same number: another number moves keys, and their caches turn cold.
    """

    virtual_nodes: Annotated[int, Meta(ge=1, le=4096)] = DEFAULT_VIRTUAL_NODES


class SessionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where strategy session finds the session id.

    header: Request header that carries the session id, in any case. Change it to the header that your
        clients send already.
    cookie: Cookie that carries the session id when the header is absent; null reads no cookie. Set it for
        browser clients.
    """

    header: Annotated[str, Meta(pattern=FIELD_NAME_PATTERN, extra=FIELD_NAME)] = "x-session-id"
    cookie: Annotated[str, Meta(pattern=FIELD_NAME_PATTERN, extra=FIELD_NAME)] | None = None


class KvEventsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much is kept of what the backends say of their caches, where they have `kv_events`.

    max_blocks: Most cache blocks that are followed for each engine; one that holds more is no longer
        followed. A block takes about 200 bytes. Raise it when an engine has more of them: num_gpu_blocks in
        its metric vllm:cache_config_info.
    """

    max_blocks: Annotated[int, Meta(ge=1000, le=100_000_000)] = 500_000


class RoutingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a backend is chosen.

    strategy: How a backend is chosen. prefix_aware sends equal beginnings to the same backend, and needs to
        know nothing; adaptive sends each request where it adds the least work, from what it remembers and
        observes; the others are there to compare with. Change it to measure what it gains on your traffic.
    concurrency_threshold: Requests in flight on a key's home at which the next one overflows to the
        least-loaded backend. Near vLLM's --max-num-seqs is a good start. Lower it when requests wait at a
        busy home while others are idle; raise it when the overflow rate is high and the hit rate is low.
    several_routers: Whether routers on other hosts send to the same backends. Only strategy adaptive wants
        to know: it then expects what it has not seen itself at the home of its key. Leave it false for one
        router, whatever its workers; set it true for two and more.
    """

    strategy: StrategyName = StrategyName.PREFIX_AWARE
    prefix: PrefixSettings = PrefixSettings()
    concurrency_threshold: Annotated[int, Meta(ge=1, le=100_000)] = 64
    several_routers: bool = False
    ring: RingSettings = RingSettings()
    session: SessionSettings = SessionSettings()
    kv_events: KvEventsSettings = KvEventsSettings()


class LimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request may cost before it is refused.

    max_body_bytes: Largest request body, in bytes; a larger one gets 413. Each body is held in memory until
        it is sent. Raise it for many or large images and audio files.
    max_header_bytes: Longest path with query, in bytes, a longer one gets 414; and longest header, a longer
        one gets 431, as does a head of four times as much. Raise it when clients send long tokens or cookies.
    max_in_flight_per_backend: Most requests that a backend gets at a time, for each share of its weight; 0 is
        no limit. A home at its limit overflows; when all are at theirs, requests wait (`queue`). Set it well
        above concurrency_threshold, near what an engine can queue without harm.
    max_in_flight: Most requests on all backends together; 0 is no limit. The next ones wait (`queue`). With
        several workers each counts its own. Set it to protect what stands behind the router as a whole, such
        as a gateway with a quota.
    """

    max_body_bytes: Annotated[int, Meta(ge=1024, le=2**34)] = 67_108_864
    max_header_bytes: Annotated[int, Meta(ge=1024, le=1_048_576)] = 32_768
    max_in_flight_per_backend: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    max_in_flight: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class QueueSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where requests wait for a free backend once a limit on requests in flight is reached.

    max_waiting: Requests that may wait, each with its body in memory; further ones get 429 at once. 0 lets
        nobody wait. With several workers each counts its own. Lower it when memory is short or clients would
        rather ask somebody else.
    timeout_seconds: Seconds that a request may wait, over all its attempts; then it gets 429. It never cuts a
        request that has been sent. Lower it below the timeout of impatient clients, so that they hear why.
    """

    max_waiting: Annotated[int, Meta(ge=0, le=1_000_000)] = 1024
    timeout_seconds: Annotated[float, Meta(ge=0.01, le=3600)] = 30


class TimeoutSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the router waits. There is no total timeout: a long answer is a good answer.

    connect_seconds: Seconds to open a connection to a backend before another backend is tried. Raise it only
        when the network between them is slow.
    first_byte_seconds: Seconds from sending a request to the first byte of its response; 0 waits for ever.
        It holds queueing and prefill, and for a request that does not stream all of the generation. Raise it
        when long answers without streaming end in 504.
    idle_seconds: Seconds between two pieces of a response that has begun; 0 waits for ever. Raise it when
        streams break off during long pauses of the model.
    upstream_keepalive_seconds: Seconds that an unused connection to a backend is kept; 0 closes it after
        each response. It must stay below the backend's own keep-alive, which is 5 in vLLM. Lower it when the
        retries metric shows cause reused_connection.
    client_write_seconds: Seconds that a client may take no byte of a response that waits for it; 0 waits for
        ever. A slow client is fine, one that has stopped reading holds a slot of a backend. Raise it when
        clients pause in the middle of long answers.
    client_keepalive_seconds: Seconds that an unused connection of a client is kept, and that a client
        may take for the head of a request; 0 closes it after each response. Raise it above the idle
        timeout of a load balancer in front of the router.
    shutdown_delay_seconds: Seconds after SIGTERM in which the router still takes new connections, while it
        says on /readyz and /health that it leaves; 0 stops taking them at once. Set it to what your load
        balancer needs to notice, 5 on Kubernetes: a client that is sent here later is refused.
    shutdown_grace_seconds: Seconds that running requests get to finish once no new connections are taken; 0
        cuts them at once. Raise it to your longest usual answer, and the orchestrator's own grace period to
        more than it and shutdown_delay_seconds together.
    """

    connect_seconds: Annotated[float, Meta(ge=0.01, le=300)] = 5
    first_byte_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 600
    idle_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 300
    upstream_keepalive_seconds: Annotated[float, Meta(ge=0, le=3600)] = 4
    client_write_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 300
    client_keepalive_seconds: Annotated[float, Meta(ge=0, le=3600)] = 75
    shutdown_delay_seconds: Annotated[float, Meta(ge=0, le=3600)] = 0
    shutdown_grace_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 30


class RetrySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When another backend is tried. Only ever before the first byte of a response.

    max_attempts: Times that one request may be sent, the first included; 1 never retries. Lower it when
        retries make an outage worse.
    budget_ratio: Retries allowed for each request of the last ten seconds, as a fraction. It counts attempts
        after a reset, a broken answer or a refusal (503, 429); going on from a backend that refuses
        connections is always allowed. Lower it when retries make an outage worse.
    budget_min_per_second: Retries allowed in each second however few requests came, on average over ten
        seconds, so that a router with little traffic can fail over. With several workers each counts its own.
        Set 0 to leave budget_ratio alone in charge.
    """

    max_attempts: Annotated[int, Meta(ge=1, le=10)] = 3
    budget_ratio: Annotated[float, Meta(ge=0, le=10)] = 0.2
    budget_min_per_second: Annotated[float, Meta(ge=0, le=100_000)] = 10


class HealthSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a backend gets no traffic, and when it gets some again. Slow is not dead.

    path: Path that is probed on each backend, after the path prefix of its URL. A 2xx answer is a success.
        Change it when a gateway in front of vLLM answers elsewhere.
    interval_seconds: Seconds between two probes of a backend. Lower it to notice a dead backend sooner when
        there is little traffic; failed requests are noticed anyway.
    timeout_seconds: Seconds that a probe may take. A busy vLLM can need several seconds: keep it at 10 or
        more, or load alone takes backends out.
    probe_failures: Failed probes in a row that eject a backend. Raise it when backends flap.
    request_failures: Failed requests in a row that eject a backend, whatever its probes say. Lower it when a
        backend that is green but broken takes traffic for too long.
    cooldown_seconds: Seconds that an ejected backend gets no traffic before it is tried again. Raise it when
        backends come back only to fail again.
    recovery_successes: Successes in a row, one at a time, that make a backend healthy again. Raise it when
        backends come back only to fail again.
    max_ejected_fraction: Largest share of the fleet that may be ejected at a time, as a fraction; past it,
        backends that answer badly keep their traffic, because the rest could not carry it. Backends that
        refuse connections count, but are never kept. Lower it when the fleet has little spare capacity.
    """

    path: Annotated[str, Meta(pattern=PATH_PATTERN, extra=PATH)] = "/health"
    interval_seconds: Annotated[float, Meta(ge=0.01, le=3600)] = 5
    timeout_seconds: Annotated[float, Meta(ge=0.01, le=600)] = 10
    probe_failures: Annotated[int, Meta(ge=1, le=100)] = 3
    request_failures: Annotated[int, Meta(ge=1, le=1000)] = 5
    cooldown_seconds: Annotated[float, Meta(ge=0.01, le=3600)] = 5
    recovery_successes: Annotated[int, Meta(ge=1, le=100)] = 2
    max_ejected_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.5


class ModelListSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the router learns which backend serves which model.

    refresh_seconds: Seconds between two questions for a backend's /v1/models; 0 never asks, and then any
        backend without a list of its own may get any model. Lower it when adapters are loaded and unloaded
        at run time.
    """

    refresh_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 30


class EngineMetricsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the router reads from the backends' own metrics, to show it next to its own.

    path: Path of a backend's Prometheus metrics, after the path prefix of its URL. Change it when a gateway
        in front of vLLM moves it.
    interval_seconds: Seconds between two readings of a backend's metrics; 0 never reads them, anything else
        is at least 1. Set 0 when Prometheus reads the backends itself.
    """

    path: Annotated[str, Meta(pattern=PATH_PATTERN, extra=PATH)] = "/metrics"
    interval_seconds: Annotated[float, Meta(ge=0, le=3600, extra_json_schema=OFF_OR_AT_LEAST_ONE)] = 15


class LoggingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is logged to standard error. Prompts never are.

    level: The least severe line that is logged. Set debug to see why a backend changed state.
    format: text for people, json (one object a line) for a log collector. Change it when lines are
        collected.
    access: One line for each request: backend, reason, status, times and sizes, never the prompt. Set true
        to follow single requests.
    """

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.TEXT
    access: bool = False


class CaptureSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Writes down how requests share beginnings, for `prefix-router analyze`: hashes and numbers, never text.

    path: Path of the file, relative to the working directory; null captures nothing. Each start of the
    router,
        and each reload that changes one of these, begins a new file: one that exists is left alone, and the
        next gets a number. Its directory must exist. Set it for as long as a typical hour of your traffic
        takes.
    max_bytes: Size at which a file is full, in bytes; nothing more is captured then. A request of 8,000
    tokens
        takes about 1,200. Raise it to see a longer time.
    sample: Part of the conversations that is captured, told by their first prompt. Below 1 the file shows
        less sharing between conversations than there is: lower it only when a file fills too fast.
    """

    path: Annotated[str, Meta(min_length=1, extra=FILE)] | None = None
    max_bytes: Annotated[int, Meta(ge=65_536, le=2**40)] = 1_073_741_824
    sample: Annotated[float, Meta(ge=0.0001, le=1)] = 1.0


class ReloadSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the configuration is read again, besides on SIGHUP and POST /reload.

    watch: Read the configuration file again whenever it has changed: written, replaced, or exchanged as a
        mounted ConfigMap is. It is validated whole and applied whole or not at all, as with POST /reload. Set
        true where nobody sends a signal after a change, as on Kubernetes.
    """

    watch: bool = False


class ResponseHeaderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the router adds to responses.

    decision: Send x-prefix-router-backend and x-prefix-router-reason with each response. Set false when
        clients must not learn the names of backends.
    """

    decision: bool = True


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration of prefix-router.

    workers: Processes that serve clients behind the one port. 1 serves them in the router's own process; more
        are started and watched by it, and share counts, health and metrics; that needs Linux. One process
        uses one core: raise it when that core is busy and the machine has more.
    backends: The vLLM replicas, at least one unless `discovery` finds some. The order does not matter for
        keys.
    clients: Who may use the data port, each with keys of its own; an empty list lets everybody in. Set it
        when not everybody who reaches the port may use the models.
    """

    listen: ListenSettings = ListenSettings()
    admin: AdminSettings = AdminSettings()
    workers: Annotated[int, Meta(ge=1, le=MAX_WORKERS)] = 1
    backends: tuple[BackendSettings, ...] = ()
    clients: tuple[ClientSettings, ...] = ()
    discovery: DiscoverySettings = DiscoverySettings()
    backend_tls: BackendTlsSettings = BackendTlsSettings()
    routing: RoutingSettings = RoutingSettings()
    limits: LimitSettings = LimitSettings()
    queue: QueueSettings = QueueSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    retry: RetrySettings = RetrySettings()
    health: HealthSettings = HealthSettings()
    joining: JoiningSettings = JoiningSettings()
    models: ModelListSettings = ModelListSettings()
    engine_metrics: EngineMetricsSettings = EngineMetricsSettings()
    logging: LoggingSettings = LoggingSettings()
    tracing: TracingSettings = TracingSettings()
    capture: CaptureSettings = CaptureSettings()
    reload: ReloadSettings = ReloadSettings()
    response_headers: ResponseHeaderSettings = ResponseHeaderSettings()
