"""From settings to the values and parts that they describe, for the server and for offline commands alike.

Nothing here starts or changes anything, so all of it may run in a thread, and a failure leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prefix_router.observe.capture import CaptureOptions
from prefix_router.observe.tracing import TracingOptions
from prefix_router.openai_api.forwarded import TrustedProxies
from prefix_router.proxy.clients import Clients
from prefix_router.proxy.cors import Cors
from prefix_router.proxy.decider import Decider
from prefix_router.proxy.policy import RequestLimits, RequestPolicy
from prefix_router.proxy.probes import ProbeOptions, WarmUp
from prefix_router.proxy.replies import Replies
from prefix_router.proxy.tracing import Tracing
from prefix_router.routing.admission import AdmissionLimits
from prefix_router.routing.depth import Depth
from prefix_router.routing.fleet import Backend, BackendName
from prefix_router.routing.health import HealthPolicy
from prefix_router.routing.key import PrefixAnchor, PrefixRule, PrefixUnit
from prefix_router.routing.retry_budget import RetryAllowance
from prefix_router.routing.strategies import build_strategy
from prefix_router.settings.model import PrefixDepth, Settings, StrategyName
from prefix_router.settings.tls import BackendTlsSettings, ListenerTlsSettings
from prefix_router.tls import BackendFiles, ListenerFiles, Tls, TlsFileError, backend_tls, listener_tls
from prefix_router.upstream.pool import Timeouts


def backends_of(settings: Settings) -> list[Backend]:
    """Return the configured backends, in configuration order."""
    return [
        Backend(
            BackendName(backend.name),
            backend.url,
            backend.weight,
            None if backend.models is None else frozenset(backend.models),
            settings.limits.max_in_flight_per_backend * backend.weight or None,
            backend.server_name,
            backend.authorization,
        )
        for backend in settings.backends
    ]


def decider_of(settings: Settings, previous: Decider | None = None) -> Decider:
    """Return what reads requests and decides. Raises TokenizerError for an unusable tokenizer file.

    previous: the decider in use so far. Its strategy and its counts of keys are carried on where they have a
    state to keep, and its tokenizer where that is from the same path: reading one takes long.
    """
    routing = settings.routing
    encoder = None
    if routing.prefix.tokenizer is not None:
        from prefix_router.tokenization import HeadTokenizer

        encoder = previous.encoder if previous is not None else None
        if not isinstance(encoder, HeadTokenizer) or encoder.path != routing.prefix.tokenizer:
            encoder = HeadTokenizer(routing.prefix.tokenizer)
    prefix = routing.prefix
    depth = None
    if routing.strategy is StrategyName.ADAPTIVE or prefix.depth is PrefixDepth.AUTO:
        depth = (None if previous is None else previous.depth) or Depth()
    return Decider(
        build_strategy(
            routing.strategy.value,
            concurrency_threshold=routing.concurrency_threshold,
            previous=None if previous is None else previous.strategy,
            several_routers=routing.several_routers,
        ),
        PrefixRule(prefix.length, PrefixUnit(prefix.unit.value), PrefixAnchor(prefix.anchor.value)),
        encoder,
        depth=depth,
        chains=settings.capture.path is not None,
        seen=None if previous is None else previous.seen,
        session_header=routing.session.header,
        session_cookie=routing.session.cookie,
    )


def policy_of(settings: Settings, previous: RequestPolicy | None = None) -> RequestPolicy:
    """Return what requests go by. `previous`: the policy in use so far.

    Raises TokenizerError, and TlsFileError with the name of a setting.
    """
    timeouts, proxies = settings.timeouts, settings.listen.trusted_proxies
    return RequestPolicy(
        decider=decider_of(settings, None if previous is None else previous.decider),
        replies=Replies(decision_headers=settings.response_headers.decision),
        limits=RequestLimits(
            settings.limits.max_body_bytes, timeouts.idle_seconds, timeouts.client_write_seconds
        ),
        timeouts=Timeouts(
            timeouts.connect_seconds,
            timeouts.first_byte_seconds,
            timeouts.idle_seconds,
            timeouts.upstream_keepalive_seconds,
        ),
        max_attempts=settings.retry.max_attempts,
        records_chains=settings.capture.path is not None,
        admission=AdmissionLimits(
            settings.limits.max_in_flight, settings.queue.max_waiting, settings.queue.timeout_seconds
        ),
        retry_allowance=RetryAllowance(settings.retry.budget_ratio, settings.retry.budget_min_per_second),
        tracing=tracing_of(settings),
        proxies=None if proxies is None else TrustedProxies(proxies),
        cors=cors_of(settings),
        drops_credentials=bool(settings.clients),
        clients=clients_of(settings),
        listener_tls=listener_tls_of(
            "listen.tls", settings.listen.tls, None if previous is None else previous.listener_tls
        ),
        backend_tls=backend_tls_of(settings, None if previous is None else previous.backend_tls),
    )


def clients_of(settings: Settings) -> Clients | None:
    """Return who may send requests, None for everybody."""
    if not settings.clients:
        return None
    return Clients(
        tuple(
            (bytes.fromhex(digest), client.name)
            for client in settings.clients
            for digest in client.key_sha256
        )
    )


def cors_of(settings: Settings) -> Cors | None:
    """Return which pages may call from a browser; None when backends say that."""
    cors = settings.listen.cors
    if not cors.allow_origins:
        return None
    return Cors(frozenset(cors.allow_origins), cors.allow_headers, cors.expose_headers, cors.max_age_seconds)


def listener_tls_of(path: str, section: ListenerTlsSettings, previous: Tls | None = None) -> Tls | None:
    """Return what a listener speaks, None for plain HTTP. path: of the section. Raises TlsFileError."""
    files = None
    if section.certificate is not None and section.key is not None:
        files = ListenerFiles(section.certificate, section.key, section.client_ca)
    with _named_after(path):
        return listener_tls(files, previous)


def backend_tls_of(settings: Settings, previous: Tls | None = None) -> Tls | None:
    """Return what is spoken to backends, None where nothing but the defaults is needed. Raises TlsFileError.

    Reading the system's authorities takes a while: not for a fleet that speaks plain HTTP.
    """
    section = settings.backend_tls
    in_use = any(backend.url.startswith("https://") for backend in settings.backends)
    if not in_use and section == BackendTlsSettings():
        return None
    with _named_after("backend_tls"):
        return backend_tls(
            BackendFiles(section.ca, section.certificate, section.key, section.verify), previous
        )


@contextmanager
def _named_after(path: str) -> Iterator[None]:
    """Complete the name of the setting in a TlsFileError."""
    try:
        yield
    except TlsFileError as error:
        raise TlsFileError(f"{path}.{error.name}", str(error)) from None


def tracing_of(settings: Settings) -> Tracing | None:
    """Return how requests are traced, None for not at all."""
    tracing = settings.tracing
    return None if tracing.endpoint is None else Tracing(tracing.sample_ratio)


def tracing_options_of(settings: Settings) -> TracingOptions | None:
    """Return where spans are sent, None for nowhere."""
    tracing = settings.tracing
    if tracing.endpoint is None:
        return None
    scheme = "http" if settings.listen.tls.certificate is None else "https"
    return TracingOptions(tracing.endpoint, tracing.service_name, tracing.authorization, scheme)


def capture_options_of(settings: Settings) -> CaptureOptions | None:
    """Return what is captured of the traffic, None for nothing."""
    capture = settings.capture
    return None if capture.path is None else CaptureOptions(capture.path, capture.max_bytes, capture.sample)


def health_policy_of(settings: Settings) -> HealthPolicy:
    """Return how much evidence moves a backend."""
    health = settings.health
    return HealthPolicy(
        health.probe_failures,
        health.request_failures,
        health.cooldown_seconds,
        health.recovery_successes,
        health.max_ejected_fraction,
    )


def probe_options_of(settings: Settings) -> ProbeOptions:
    """Return what backends are asked, and how often."""
    health = settings.health
    return ProbeOptions(
        health.path,
        health.interval_seconds,
        health.timeout_seconds,
        settings.models.refresh_seconds,
        settings.engine_metrics.path,
        settings.engine_metrics.interval_seconds,
        WarmUp(settings.joining.warm_up.value),
        settings.joining.timeout_seconds,
    )
