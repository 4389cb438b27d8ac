"""docker-compose.yml, read: what no engine is needed for. tests/integration/test_compose.py runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest
import yaml

from prefix_router.settings.load import load
from prefix_router.settings.model import LogLevel, StrategyName
from tests.support.compose import COMPOSE_FILE, DOCKERFILE, Service, is_ours, load_services
from tests.support.tools import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from prefix_router.settings.model import Settings

SERVICES = load_services()
REAL_ENGINES = [service for service in SERVICES.values() if "/vllm-openai" in service.image]
each_service = pytest.mark.parametrize("service", SERVICES.values(), ids=lambda service: service.name)


def seconds(text: str) -> int:
    value, unit = re.fullmatch(r"(\d+)([sm])", text).groups()  # type: ignore[union-attr]
    return int(value) * {"s": 1, "m": 60}[unit]


def router_file(router: Service) -> Path:
    [mount] = router.mounts
    assert mount.source is not None
    return mount.source


def router_settings(router: Service) -> Settings:
    return load(router_file(router), environ=router.environment)


def test_the_file_conforms_to_the_compose_specification() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*check, str(COMPOSE_FILE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_by_default_it_starts_the_router_three_stand_ins_and_the_monitoring() -> None:
    stand_ins = {f"simulated-vllm-{number}" for number in range(3)}
    default = {name for name, service in SERVICES.items() if not service.profiles}
    assert default == {"router", "prometheus", "grafana"} | stand_ins
    assert all(SERVICES[name].command[0] == "simulated-vllm" for name in stand_ins)


@pytest.mark.parametrize(("profile", "image"), [("vllm-cpu", "vllm-openai-cpu"), ("gpu", "vllm-openai")])
def test_each_profile_adds_a_router_and_two_real_replicas(profile: str, image: str) -> None:
    added = [service for service in SERVICES.values() if profile in service.profiles]
    replicas = [service for service in added if not is_ours(service)]
    assert [re.split("[/:]", replica.image)[1] for replica in replicas] == [image, image]
    [router] = [service for service in added if is_ours(service)]
    assert set(router.depends_on) == {replica.name for replica in replicas}


def test_each_gpu_replica_reserves_a_gpu_of_its_own() -> None:
    resources = [service.definition.get("deploy", {}).get("resources") for service in SERVICES.values()]
    devices = [device for found in resources if found for device in found["reservations"]["devices"]]
    assert [device["device_ids"] for device in devices] == [["0"], ["1"]]
    assert all(device["capabilities"] == ["gpu"] for device in devices)


@each_service
def test_every_image_has_a_pinned_tag(service: Service) -> None:
    tag = service.image.rpartition(":")[2]
    assert tag.startswith("local") if is_ours(service) else re.fullmatch(r"v?\d+\.\d+\.\d+", tag)


def test_each_image_of_ours_is_built_by_exactly_one_service_and_never_fetched() -> None:
    ours = [service for service in SERVICES.values() if is_ours(service)]
    builders = [service.image for service in ours if "build" in service.definition]
    assert sorted(builders) == sorted({service.image for service in ours})
    for service in ours:
        assert service.definition["pull_policy"] == ("build" if "build" in service.definition else "never")


@each_service
def test_every_mounted_path_is_in_the_checkout_and_read_only(service: Service) -> None:
    for mount in service.mounts:
        if mount.source is not None:
            assert mount.source.exists(), mount
            assert mount.read_only, mount


def test_every_named_volume_is_declared_and_used() -> None:
    declared = set(yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))["volumes"])
    assert declared == {mount.volume for service in SERVICES.values() for mount in service.mounts} - {None}


@each_service
def test_a_path_in_a_command_or_variable_is_inside_a_mount(service: Service) -> None:
    values = [text.rpartition("=")[2] for text in [*service.command, *service.environment.values()]]
    for path in (PurePosixPath(value) for value in values if value.startswith("/")):
        assert any(path.is_relative_to(mount.target) for mount in service.mounts), path


@each_service
def test_every_service_says_when_it_is_healthy(service: Service) -> None:
    check = service.definition["healthcheck"]
    urls = re.findall(r"http://127\.0\.0\.1:(\d+)/", " ".join(service.healthcheck))
    assert [int(port) in service.listens_on for port in urls] == [True]
    assert check["retries"] >= 3
    assert seconds(check["start_period"]) > seconds(check["interval"])


@each_service
def test_a_health_check_gives_up_before_it_is_killed_so_that_its_log_says_why(service: Service) -> None:
    for own_timeout in re.findall(r"timeout=(\d+)", " ".join(service.healthcheck)):
        assert int(own_timeout) < seconds(service.definition["healthcheck"]["timeout"])


@each_service
def test_what_a_service_waits_for_exists_is_started_with_it_and_is_waited_for_until_healthy(
    service: Service,
) -> None:
    for name, condition in service.depends_on.items():
        assert condition == "service_healthy"
        assert "healthcheck" in SERVICES[name].definition
        assert set(SERVICES[name].profiles) <= set(service.profiles)


def test_no_two_services_publish_the_same_port() -> None:
    ports = [port.outside for service in SERVICES.values() for port in service.published]
    assert len(ports) == len(set(ports))


@each_service
def test_everything_is_published_on_loopback_unless_asked_otherwise(service: Service) -> None:
    assert {port.host for port in service.published} <= {"127.0.0.1"}


def test_only_the_routers_client_ports_can_be_opened_to_the_network() -> None:
    lines = [
        line for line in COMPOSE_FILE.read_text(encoding="utf-8").splitlines() if "PUBLISH_ADDRESS:-" in line
    ]
    assert [line.rpartition(":")[2] for line in lines] == ['8000"'] * 3


@each_service
def test_every_service_restarts_rotates_its_logs_and_cannot_gain_privileges(service: Service) -> None:
    assert service.definition["restart"] == "unless-stopped"
    assert service.definition["logging"] == {"driver": "local"}
    assert service.definition["security_opt"] == ["no-new-privileges:true"]


@each_service
def test_all_but_the_real_engines_run_read_only_and_without_capabilities(service: Service) -> None:
    is_engine = service in REAL_ENGINES
    assert service.definition.get("read_only", False) is not is_engine
    assert service.definition.get("cap_drop") == (None if is_engine else ["ALL"])


ROUTERS = [service for service in SERVICES.values() if service.command[:1] == ("serve",)]
each_router = pytest.mark.parametrize("router", ROUTERS, ids=lambda service: service.name)


@each_router
def test_a_router_reads_the_file_that_is_mounted_for_it(router: Service) -> None:
    assert router.command == ("serve", "--config", router.mounts[0].target)


@each_router
def test_a_router_listens_where_it_is_published_and_routes_to_what_it_waits_for(router: Service) -> None:
    settings = router_settings(router)
    assert (settings.listen.host, settings.listen.port) == ("0.0.0.0", router.published[0].inside)
    assert (settings.admin.host, settings.admin.port) == ("0.0.0.0", router.published[1].inside)
    backends = {backend.name: backend.url for backend in settings.backends}
    assert backends == {name: f"http://{name}:{SERVICES[name].listens_on[0]}" for name in router.depends_on}


@each_router
def test_every_variable_of_a_router_file_is_passed_into_its_container(router: Service) -> None:
    used = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", router_file(router).read_text(encoding="utf-8")))
    assert used == router.environment


@each_router
def test_the_variables_change_what_they_are_named_after(router: Service) -> None:
    chosen = {
        "PREFIX_ROUTER_STRATEGY": "random",
        "PREFIX_ROUTER_CONCURRENCY_THRESHOLD": "7",
        "PREFIX_ROUTER_LOG_LEVEL": "debug",
    }
    assert chosen.keys() == router.environment.keys()
    settings = load(router_file(router), environ=chosen)
    assert settings.routing.strategy is StrategyName.RANDOM
    assert settings.routing.concurrency_threshold == 7
    assert settings.logging.level is LogLevel.DEBUG


@each_router
def test_a_stopping_router_gets_more_time_than_it_gives_its_streams(router: Service) -> None:
    grace_seconds = router_settings(router).timeouts.shutdown_grace_seconds
    assert seconds(router.definition["stop_grace_period"]) > grace_seconds


def test_the_real_engines_report_cached_tokens_and_listen_for_other_containers() -> None:
    assert len(REAL_ENGINES) == 4
    for replica in REAL_ENGINES:
        assert {"--enable-prompt-tokens-details", "--host=0.0.0.0", "--port=8000"} <= set(replica.command)
        assert replica.listens_on == (8000,)


def test_what_the_documentation_says_of_variables_is_what_the_file_does() -> None:
    documented = (ROOT / "docs" / "compose.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([A-Z0-9_]+)` \| `?([^|`]*?)`? \|", documented, flags=re.MULTILINE))
    used = dict(re.findall(r"\$\{([A-Z0-9_]+):-([^}]*)\}", COMPOSE_FILE.read_text(encoding="utf-8")))
    assert rows == used


def test_the_image_of_the_routers_is_built_from_the_dockerfile_of_the_checkout() -> None:
    assert {service.definition["build"] for service in ROUTERS} == {"."}
    assert DOCKERFILE.parent == COMPOSE_FILE.parent
