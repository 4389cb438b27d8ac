"""docker-compose.yml, run: the default services' own commands and health checks, as processes on free ports.

Prometheus is a real one, and answers each query of the Grafana dashboard. Grafana itself cannot be had
without its image; of it only the health check is run, against a server that answers like it.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support import dashboard
from tests.support.compose import load_services
from tests.support.compose_processes import ComposeProcesses
from tests.support.prometheus_api import PrometheusApi

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message
    from pathlib import Path

SERVICES = {name: service for name, service in load_services().items() if not service.profiles}
ENGINES = sorted(name for name in SERVICES if name.startswith("simulated-vllm"))
RUN = [*ENGINES, "router", "prometheus"]

CLIENTS, ADMIN = (port.inside for port in SERVICES["router"].published)
[ENGINE_PORT] = SERVICES[ENGINES[0]].listens_on
[PROMETHEUS_PORT] = SERVICES["prometheus"].listens_on

PROMPTS = [
    f"Document {number}. " + "All that follows is shared by who asks about it. " * 60 for number in range(3)
]

TROUBLE = {
    "Overflow, failover, retries",
    "Health transitions",
    "Broken off",
    "Router restarts",
}
"""Panels that may have nothing to show when nothing goes wrong."""


def more_often(text: str) -> str:
    """config/prometheus.yml without the look-ups of what profiles add, and with a scrape each second."""
    config = yaml.safe_load(text)
    config["global"] |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
    for job in config["scrape_configs"]:
        del job["dns_sd_configs"]
    return yaml.safe_dump(config)


def for_every_panel(text: str) -> str:
    """The router's configuration, with engines read each second and a strategy that expects something."""
    for before, after in (
        ("engine_metrics: {interval_seconds: 5}", "engine_metrics: {interval_seconds: 1}"),
        ("strategy: ${PREFIX_ROUTER_STRATEGY:-prefix_aware}", "strategy: adaptive"),
    ):
        assert before in text
        text = text.replace(before, after)
    return text


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeProcesses]:
    processes = ComposeProcesses(
        SERVICES.values(),
        tmp_path_factory.mktemp("compose"),
        adapt={"prometheus": more_often, "router": for_every_panel},
    )
    try:
        processes.start(*RUN)
        for name in RUN:
            processes.wait_until_healthy(name)
        yield processes
    finally:
        statuses = processes.stop_all()
    # Compose sends SIGTERM: whoever does not end cleanly on it is cut off in the middle of its streams.
    assert statuses == dict.fromkeys(RUN, 0)


@pytest.fixture(scope="module")
def prometheus(fleet: ComposeProcesses) -> PrometheusApi:
    return PrometheusApi(fleet.url("prometheus", PROMETHEUS_PORT))


def get(url: str) -> tuple[str, Message]:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode(), response.headers


def ask(fleet: ComposeProcesses, content: str, **fields: Any) -> Message:
    """Send one chat completion, read all of the answer, and return the response headers."""
    body = {
        "model": json.loads(get(fleet.url("router", CLIENTS, "/v1/models"))[0])["data"][0]["id"],
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 4,
        **fields,
    }
    request = urllib.request.Request(
        fleet.url("router", CLIENTS, "/v1/chat/completions"),
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.read()
        headers: Message = response.headers
        return headers


def ask_everything(fleet: ComposeProcesses) -> None:
    """Send what makes each panel of a healthy fleet move."""
    for prompt in PROMPTS:
        ask(fleet, prompt + " Why?", stream=True, stream_options={"include_usage": True})
        ask(fleet, prompt + " How?")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        ask(fleet, "Hello", model="no-such-model")


def requests_counted(fleet: ComposeProcesses) -> float:
    families = text_string_to_metric_families(get(fleet.url("router", ADMIN, "/metrics"))[0])
    samples = (sample for family in families for sample in family.samples)
    return sum(sample.value for sample in samples if sample.name == "prefix_router_requests_total")


def test_requests_with_one_beginning_reach_one_replica(fleet: ComposeProcesses) -> None:
    homes = {ask(fleet, PROMPTS[0])["x-prefix-router-backend"] for _ in range(3)}
    assert len(homes) == 1
    assert homes <= set(SERVICES["router"].depends_on)


def test_the_admin_listener_answers_where_compose_publishes_it(fleet: ComposeProcesses) -> None:
    status = json.loads(get(fleet.url("router", ADMIN, "/status"))[0])
    assert sorted(backend["name"] for backend in status["backends"]) == ENGINES


@pytest.mark.parametrize(
    ("name", "port", "metric"),
    [("router", ADMIN, "prefix_router_build_info"), (ENGINES[0], ENGINE_PORT, "vllm:num_requests_running")],
)
def test_metrics_are_in_a_form_that_prometheus_3_accepts(
    fleet: ComposeProcesses, name: str, port: int, metric: str
) -> None:
    # Prometheus 3 refuses a scrape without a content type that it knows; version 2 guesses.
    text, headers = get(fleet.url(name, port, "/metrics"))
    assert headers.get_content_type() == "text/plain"
    assert headers.get_param("version") in ("0.0.4", "1.0.0")
    assert metric in {
        sample.name for family in text_string_to_metric_families(text) for sample in family.samples
    }


def test_prometheus_reads_the_router_and_every_replica(
    fleet: ComposeProcesses, prometheus: PrometheusApi
) -> None:
    expected = {fleet.url(name, ENGINE_PORT, "/metrics") for name in ENGINES}
    expected.add(fleet.url("router", ADMIN, "/metrics"))
    prometheus.wait_until(f"count(up == 1) == {len(expected)}")
    assert prometheus.health_of_targets() == dict.fromkeys(expected, "up")


def test_the_router_exports_every_metric_of_the_dashboard(fleet: ComposeProcesses) -> None:
    exported = get(fleet.url("router", ADMIN, "/metrics"))[0]
    used = set().union(*(query.metrics for query in dashboard.queries()))
    families = {family.name for family in text_string_to_metric_families(exported)}
    endings = ("", "_total", "_bucket", "_sum", "_count")
    assert used - {name + ending for name in families for ending in endings} == set()


def test_every_query_of_the_dashboard_runs_and_shows_a_healthy_fleet(
    fleet: ComposeProcesses, prometheus: PrometheusApi
) -> None:
    # A rate needs two readings of a counter that moved between them.
    counted = "sum(prefix_router_requests_total)"
    engines = "sum(prefix_router_engine_prefix_cache_queried_tokens_total)"
    ask_everything(fleet)
    prometheus.wait_until(f"{counted} >= {requests_counted(fleet)} and {engines} > 0")
    [tokens] = prometheus.query(engines)
    ask_everything(fleet)
    prometheus.wait_until(f"{counted} >= {requests_counted(fleet)} and {engines} > {tokens}")

    shown: dict[str, list[float]] = {}
    for query in dashboard.queries():
        shown.setdefault(query.panel, []).extend(prometheus.query(query.executable))
    assert {panel for panel, values in shown.items() if not values} <= TROUBLE
    assert shown["Backends out of traffic"] == [0]
    assert shown["Health"] == [5] * len(ENGINES)
    assert sum(shown["Share per backend"]) == pytest.approx(1)
    assert 0 < shown["Hit rate"][0] < 1
    assert 0 < max(shown["Hit rate by shared prefix"]) < 1
    expected, observed = shown["Cached tokens, expected and observed"]
    assert expected > 0
    assert observed > 0


@pytest.mark.parametrize("name", [*RUN, "grafana"])
def test_a_health_check_fails_while_nothing_listens(name: str, tmp_path: Path) -> None:
    nothing_started = ComposeProcesses(SERVICES.values(), tmp_path)
    assert not nothing_started.is_healthy(name)


def test_the_health_check_of_grafana_asks_for_what_grafana_answers(tmp_path: Path) -> None:
    class Grafana(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/api/health" else 404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    processes = ComposeProcesses(SERVICES.values(), tmp_path)
    port = int(processes.url("grafana", 3000).rpartition(":")[2])
    with HTTPServer(("127.0.0.1", port), Grafana) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert processes.is_healthy("grafana")
        finally:
            server.shutdown()
            thread.join()
