"""The section `tracing` of the settings."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from prefix_router.settings.patterns import (
    COLLECTOR_CREDENTIAL,
    CREDENTIAL_PATTERN,
    OTLP_ENDPOINT,
    OTLP_ENDPOINT_PATTERN,
    SERVICE_NAME,
    SERVICE_NAME_PATTERN,
)


class TracingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sends a span of each request to an OpenTelemetry collector: names, numbers and times, never text.

    endpoint: Where the collector takes OTLP over HTTP, /v1/traces is added; null traces nothing. Needs the
        extra prefix_router[tracing]. Set it to see requests on their way through clients, router and
        engines; docs/tracing.md says how.
    authorization: What is sent to the collector as Authorization; null sends none. Other headers come from
        the environment, as OTEL_EXPORTER_OTLP_HEADERS. Set it when the collector asks for a login. It is
        shown nowhere.
    sample_ratio: Part of the traces that begin at the router which is recorded. A request that comes with a
        trace of its own (traceparent) is recorded exactly when its sender says so. Lower it when there are
        more spans than the collector can keep.
    service_name: What the router is called in traces. Change it when several routers must be told apart.
    """

    endpoint: Annotated[str, Meta(pattern=OTLP_ENDPOINT_PATTERN, extra=OTLP_ENDPOINT)] | None = None
    authorization: Annotated[str, Meta(pattern=CREDENTIAL_PATTERN, extra=COLLECTOR_CREDENTIAL)] | None = None
    sample_ratio: Annotated[float, Meta(ge=0, le=1)] = 1.0
    service_name: Annotated[str, Meta(pattern=SERVICE_NAME_PATTERN, extra=SERVICE_NAME)] = "prefix-router"
