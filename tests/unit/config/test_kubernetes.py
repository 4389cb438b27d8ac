"""config/kubernetes: rendered by kubectl, held against Kubernetes' own schemas, and against each other.

No cluster is needed. `kubectl kustomize` renders what `kubectl apply -k` would send; the schemas are those
that Kubernetes publishes with each version.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from prefix_router.settings.load import load
from prefix_router.settings.model import Settings
from tests.support.compose import dockerfile_instruction
from tests.support.tools import ROOT, tool

KUBERNETES = ROOT / "config" / "kubernetes"
BASE = "base"
MONITORING = "overlays/monitoring"
EXAMPLE = "overlays/example"
ALL = [BASE, MONITORING, EXAMPLE]

Manifest = dict[str, Any]


@cache
def rendered(kustomization: str) -> list[Manifest]:
    done = subprocess.run(
        [tool("kubectl"), "kustomize", KUBERNETES / kustomization],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no deprecated field
    return list(yaml.safe_load_all(done.stdout))


def one(kustomization: str, kind: str, name: str = "prefix-router") -> Manifest:
    [found] = [
        manifest
        for manifest in rendered(kustomization)
        if manifest["kind"] == kind and manifest["metadata"]["name"] == name
    ]
    return found


def pod(kustomization: str, name: str = "prefix-router") -> Manifest:
    template: Manifest = one(kustomization, "Deployment", name)["spec"]["template"]
    return template


def container(kustomization: str, name: str = "prefix-router") -> Manifest:
    [only] = pod(kustomization, name)["spec"]["containers"]
    return dict(only)


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return bool(selector) and selector.items() <= labels.items()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    file = tmp_path_factory.mktemp("kubernetes") / "prefix-router.yaml"
    file.write_text(one(BASE, "ConfigMap")["data"]["prefix-router.yaml"], encoding="utf-8")
    return load(str(file))


@pytest.mark.parametrize("kustomization", ALL)
@pytest.mark.parametrize("version", ["1.25", "1.33"])
def test_what_is_rendered_fits_the_schemas_of_kubernetes(kustomization: str, version: str) -> None:
    for manifest in rendered(kustomization):
        if manifest["kind"] != "ServiceMonitor":  # a custom resource: see below
            kubernetes_validate.validate(manifest, version, strict=True)


def test_a_mistake_in_a_manifest_would_be_seen() -> None:
    manifest = {**one(BASE, "Deployment"), "spec": {"replicas": "two"}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, "1.33", strict=True)


@pytest.mark.parametrize("kustomization", ALL)
def test_every_selector_selects_the_pods_that_are_meant(kustomization: str) -> None:
    labels = pod(kustomization)["metadata"]["labels"]
    deployment = one(kustomization, "Deployment")["spec"]
    assert selects(deployment["selector"]["matchLabels"], labels)
    assert selects(one(kustomization, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"], labels)
    [spread] = pod(kustomization)["spec"]["topologySpreadConstraints"]
    assert selects(spread["labelSelector"]["matchLabels"], labels)
    for name in ("prefix-router", "prefix-router-admin"):
        assert selects(one(kustomization, "Service", name)["spec"]["selector"], labels)


def test_services_and_probes_name_ports_that_the_router_listens_on(settings: Settings) -> None:
    ports = {port["name"]: port["containerPort"] for port in container(BASE)["ports"]}
    assert ports == {"http": settings.listen.port, "admin": settings.admin.port}
    for name in ("prefix-router", "prefix-router-admin"):
        for port in one(BASE, "Service", name)["spec"]["ports"]:
            assert port["targetPort"] in ports
    probes = {
        name: container(BASE)[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert {name: (get["path"], get["port"]) for name, get in probes.items()} == {
        "startupProbe": ("/livez", "admin"),
        "livenessProbe": ("/livez", "admin"),
        "readinessProbe": ("/readyz", "admin"),
    }


def test_probes_and_clients_reach_it_from_outside_the_pod(settings: Settings) -> None:
    assert settings.listen.host == settings.admin.host == "0.0.0.0"


def test_the_configuration_is_mounted_where_the_command_reads_it() -> None:
    router = container(BASE)
    [mount] = router["volumeMounts"]
    [volume] = pod(BASE)["spec"]["volumes"]
    assert mount["name"] == volume["name"]
    assert "subPath" not in mount  # such a file would never change
    assert volume["configMap"]["name"] == one(BASE, "ConfigMap")["metadata"]["name"]
    [file] = one(BASE, "ConfigMap")["data"]
    assert router["args"] == ["serve", "--config", f"{mount['mountPath']}/{file}"]


def test_a_pod_gets_the_time_that_the_router_needs_to_drain(settings: Settings) -> None:
    timeouts = settings.timeouts
    needed = timeouts.shutdown_delay_seconds + timeouts.shutdown_grace_seconds
    assert timeouts.shutdown_delay_seconds >= 5  # until the Service has forgotten the pod
    assert pod(BASE)["spec"]["terminationGracePeriodSeconds"] > needed + 10


@pytest.mark.parametrize(("kustomization", "name"), [(BASE, "prefix-router"), (EXAMPLE, "vllm")])
def test_pods_run_without_root_and_write_nothing(kustomization: str, name: str) -> None:
    assert pod(kustomization, name)["spec"]["securityContext"]["runAsNonRoot"] is True
    security = container(kustomization, name)["securityContext"]
    assert security == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_user_is_that_of_the_image() -> None:
    context = pod(BASE)["spec"]["securityContext"]
    assert f"{context['runAsUser']}:{context['runAsGroup']}" == dockerfile_instruction("USER")


def test_the_router_may_do_what_discovery_needs_and_nothing_more() -> None:
    [rule] = one(BASE, "Role")["rules"]
    assert rule == {
        "apiGroups": ["discovery.k8s.io"],
        "resources": ["endpointslices"],
        "verbs": ["get", "list", "watch"],
    }
    account = one(BASE, "ServiceAccount")["metadata"]["name"]
    binding = one(BASE, "RoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert binding["roleRef"]["name"] == one(BASE, "Role")["metadata"]["name"]
    assert pod(BASE)["spec"]["serviceAccountName"] == account


def test_no_node_that_is_drained_takes_the_last_router() -> None:
    replicas = one(BASE, "Deployment")["spec"]["replicas"]
    assert 0 < one(BASE, "PodDisruptionBudget")["spec"]["maxUnavailable"] < replicas


def test_the_router_finds_the_stand_ins_of_the_example(settings: Settings) -> None:
    found = settings.discovery.kubernetes
    service = one(EXAMPLE, "Service", "vllm")
    assert found.service == service["metadata"]["name"]
    [port] = service["spec"]["ports"]
    assert str(found.port) == port["name"]
    assert selects(service["spec"]["selector"], pod(EXAMPLE, "vllm")["metadata"]["labels"])
    assert port["targetPort"] in {entry["name"] for entry in container(EXAMPLE, "vllm")["ports"]}


def test_prometheus_finds_the_admin_port() -> None:
    monitor = one(MONITORING, "ServiceMonitor")["spec"]
    service = one(MONITORING, "Service", "prefix-router-admin")
    assert selects(monitor["selector"]["matchLabels"], service["metadata"]["labels"])
    [endpoint] = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["path"] == "/metrics"
    other = one(MONITORING, "Service")
    assert not selects(monitor["selector"]["matchLabels"], other["metadata"]["labels"])


def test_every_file_is_used() -> None:
    used: set[Path] = set()
    for file in KUBERNETES.rglob("kustomization.yaml"):
        used.add(file)
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        used |= {file.parent / name for name in document["resources"]}
        for generator in document.get("configMapGenerator", []):
            used |= {file.parent / name for name in generator["files"]}
    assert set(KUBERNETES.rglob("*.yaml")) == {path for path in used if path.is_file()}
