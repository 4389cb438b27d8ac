"""Configuration, processes, and what it writes or sends for others to read."""

from __future__ import annotations

from prefix_router.observe.catalogue.metric import Group, Kind, Metric

ROUTER = Group(
    "The router itself",
    (
        Metric(
            "config_reloads_total",
            Kind.COUNTER,
            ("result",),
            "reloads",
            "Attempts to read and apply the configuration again: `success`, `failure`.",
            "You want to know whether a reload has arrived.",
        ),
        Metric(
            "admin_refused_requests_total",
            Kind.COUNTER,
            ("cause",),
            "requests",
            "Requests that the admin listener did not serve: under a name that is not allowed (`host`), "
            "without a token (`token_missing`), with a wrong one (`token_wrong`), or not looked at after "
            "too many wrong ones (`token_limit`).",
            "Somebody is told 401 or 421; or somebody guesses: [security.md](security.md#admin-token).",
        ),
        Metric(
            "certificate_expiry_timestamp_seconds",
            Kind.GAUGE,
            ("use",),
            "seconds",
            "Unix time at which the certificate in use ends: `listen.tls`, `admin.tls`, `backend_tls`.",
            "Alert two weeks before: renew the file, then reload ([security.md](security.md#renewing)).",
        ),
        Metric(
            "config_last_reload_success",
            Kind.GAUGE,
            (),
            "0 or 1",
            "1 when the last configuration that was read is in force, 0 when it was refused.",
            "Alert on 0: the file on disk is not what runs, and the next restart would fail.",
        ),
        Metric(
            "config_last_reload_success_timestamp_seconds",
            Kind.GAUGE,
            (),
            "seconds",
            "Unix time at which the configuration in force was applied; the start counts.",
            "Behaviour changed, and you want to know whether the configuration did.",
        ),
        Metric(
            "discovery_up",
            Kind.GAUGE,
            ("source",),
            "0 or 1",
            "1 while a source of backends (`file`, `dns`, `kubernetes`) answers, 0 while what it last named "
            "is kept, or nothing is known of it yet.",
            "Alert on 0: changes of the fleet are not seen ([discovery.md](discovery.md)).",
        ),
        Metric(
            "discovery_backends",
            Kind.GAUGE,
            ("source",),
            "backends",
            "Backends that a source last named, those included that another source named before it.",
            "The fleet is not as large as you think: which source does not know them?",
        ),
        Metric(
            "discovery_failures_total",
            Kind.COUNTER,
            ("source",),
            "answers",
            "Times that a source of backends gave no usable answer; from 0 again when a reload removes it.",
            "It grows: the log and `/status` say what is wrong.",
        ),
        Metric(
            "discovery_last_success_timestamp_seconds",
            Kind.GAUGE,
            ("source",),
            "seconds",
            "Unix time at which a source of backends was last heard.",
            "It stands still for longer than half an hour: nobody knows whether the fleet is still true.",
        ),
        Metric(
            "workers",
            Kind.GAUGE,
            (),
            "processes",
            "Processes that take connections on the data port.",
            "Below the setting `workers` for more than a moment: one of them keeps dying; see the log.",
        ),
        Metric(
            "worker_restarts_total",
            Kind.COUNTER,
            (),
            "processes",
            "Workers that died and were replaced; their requests were lost.",
            "Anything above 0: out of memory, or a defect. The log says how each one ended.",
        ),
        Metric(
            "capture_dropped_total",
            Kind.COUNTER,
            (),
            "requests",
            "Requests that a capture (`capture.path`) should have and has not: its writer was behind, its "
            "file is full or cannot be written.",
            "You analyze a capture: what is missing looks like traffic that shares less.",
        ),
        Metric(
            "trace_spans_sent_total",
            Kind.COUNTER,
            (),
            "spans",
            "Spans that the collector (`tracing.endpoint`) has taken.",
            "You look for traces, and want to know whether any were sent.",
        ),
        Metric(
            "trace_spans_dropped_total",
            Kind.COUNTER,
            (),
            "spans",
            "Spans that were lost: the collector did not take them, or too many requests waited for it.",
            "Traces have holes: the log says what the collector says; lower `tracing.sample_ratio`.",
        ),
        Metric(
            "build_info",
            Kind.GAUGE,
            ("version",),
            "1",
            "Always 1; the version is the label.",
            "You want to know which version runs where.",
        ),
    ),
)
