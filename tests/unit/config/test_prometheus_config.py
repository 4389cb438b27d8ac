"""config/prometheus.yml: valid to promtool, and pointed at what docker-compose.yml runs."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from tests.support.compose import Service, is_ours, load_services
from tests.support.tools import ROOT, tool

PATH = ROOT / "config" / "prometheus.yml"
CONFIG = yaml.safe_load(PATH.read_text(encoding="utf-8"))
SERVICES = load_services()
JOBS = {job["job_name"]: job for job in CONFIG["scrape_configs"]}


def is_router(service: Service) -> bool:
    return service.command[:1] == ("serve",)


def is_engine(service: Service) -> bool:
    return service.command[:1] == ("simulated-vllm",) or "/vllm-openai" in service.image


def metrics_port(service: Service) -> int:
    """The admin port of a router, the only port of an engine."""
    return service.listens_on[-1]


def static_targets(job: dict[str, Any]) -> set[str]:
    return {target for group in job["static_configs"] for target in group["targets"]}


def targets_by_name(job: dict[str, Any]) -> set[str]:
    return {f"{name}:{found['port']}" for found in job["dns_sd_configs"] for name in found["names"]}


def test_promtool_accepts_the_file() -> None:
    done = subprocess.run(
        [tool("promtool"), "check", "config", str(PATH)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("job", "belongs"), [("prefix-router", is_router), ("vllm", is_engine)])
def test_what_always_runs_is_named_and_what_a_profile_adds_is_looked_up(job: str, belongs: Any) -> None:
    expected = [service for service in SERVICES.values() if belongs(service)]
    always = {f"{service.name}:{metrics_port(service)}" for service in expected if not service.profiles}
    added = {f"{service.name}:{metrics_port(service)}" for service in expected if service.profiles}
    assert static_targets(JOBS[job]) == always
    assert targets_by_name(JOBS[job]) == added


def test_every_service_of_ours_and_every_engine_is_scraped() -> None:
    assert all(is_router(service) or is_engine(service) for service in SERVICES.values() if is_ours(service))


def test_a_target_that_was_looked_up_is_shown_by_its_name() -> None:
    for job in JOBS.values():
        [relabel] = job["relabel_configs"]
        assert relabel["source_labels"] == ["__meta_dns_name", "__address__"]
        assert relabel["target_label"] == "instance"


def test_a_scrape_gives_up_before_the_next_one() -> None:
    interval, timeout = (CONFIG["global"][f"scrape_{what}"] for what in ("interval", "timeout"))
    assert float(timeout.removesuffix("s")) < float(interval.removesuffix("s"))
