"""docker-compose.yml, run: the default services' own commands and health checks, as processes on free ports.

Prometheus is a real one; test_monitoring.py runs the queries of the dashboards. Grafana itself cannot
be had without its image; only its health check is run, against a server that answers like it.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support import alerts
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


def more_often(text: str) -> str:
    """config/prometheus.yml without the look-ups of what profiles add, and with a scrape each second."""
    config = yaml.safe_load(text)
    if "global" not in config:
        return text  # the alerts
    config["global"] |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
    for job in config["scrape_configs"]:
        del job["dns_sd_configs"]
    return yaml.safe_dump(config)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeProcesses]:
    processes = ComposeProcesses(
        SERVICES.values(),
        tmp_path_factory.mktemp("compose"),
        adapt={"prometheus": more_often},
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


def test_prometheus_has_read_the_alerts(fleet: ComposeProcesses, prometheus: PrometheusApi) -> None:
    prometheus.wait_until("count(prefix_router_build_info)")
    assert set(prometheus.rules()) == {rule["alert"] for rule in alerts.load()}


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
