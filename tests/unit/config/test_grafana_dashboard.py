"""The Grafana dashboards and their provisioning, read. tests/integration/test_monitoring.py runs them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from prefix_router.observe.catalogue import CATALOGUE, PREFIX, Metric
from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendState
from tests.support import dashboard
from tests.support.compose import load_services
from tests.support.tools import ROOT, tool

if TYPE_CHECKING:
    from pathlib import Path

DASHBOARDS = dashboard.load_all()
PROVISIONING = ROOT / "config" / "grafana" / "provisioning"
GRAFANA = load_services()["grafana"]

each_dashboard = pytest.mark.parametrize("page", DASHBOARDS.values(), ids=list(DASHBOARDS))


def provisioned(folder: str, what: str) -> dict[str, Any]:
    [path] = (PROVISIONING / folder).iterdir()
    [only] = yaml.safe_load(path.read_text(encoding="utf-8"))[what]
    return dict(only)


def values_of(key: str, inside: Any) -> Iterator[Any]:
    """Every value under that key, at any depth."""
    if isinstance(inside, dict):
        yield from (value for name, value in inside.items() if name == key)
        inside = list(inside.values())
    if isinstance(inside, list):
        for child in inside:
            yield from values_of(key, child)


def test_every_expression_parses(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": query.executable}
        for number, query in enumerate(dashboard.queries())
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run(
        [tool("promtool"), "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def in_the_catalogue(name: str) -> Metric | None:
    """The router's metric that a name in an expression belongs to."""
    known = {PREFIX + metric.name: metric for metric in CATALOGUE}
    return known.get(name) or known.get(re.sub(r"_(bucket|sum|count)$", "", name))


def test_every_metric_exists_and_has_the_labels_that_are_asked_for() -> None:
    for query in dashboard.queries():
        own = {name: in_the_catalogue(name) for name in query.metrics if name.startswith(PREFIX)}
        assert None not in own.values(), query
        labels = {label for metric in own.values() if metric for label in metric.labels}
        assert query.labels <= labels | {"le", "instance", "job"}, query


def test_every_query_obeys_the_choice_of_routers() -> None:
    for query in dashboard.queries():
        selectors = re.findall(r"\w+\{([^}]*)\}", query.expression)
        assert selectors
        assert all(s.startswith('job=~"$job", instance=~"$instance"') for s in selectors), query


def test_a_query_whose_lines_are_backends_obeys_the_choice_of_backends() -> None:
    for query in dashboard.queries():
        if {"{{backend}}", "{{home}}", "from {{home}}"} & {query.legend}:
            assert re.search(r'(?:backend|home)=~"\$backend"', query.expression), query


def test_no_metric_is_asked_for_without_a_selector() -> None:
    for query in dashboard.queries():
        bare = re.findall(rf"\b{PREFIX}\w+\b(?!\{{)", query.expression)
        assert bare == [], query


@each_dashboard
def test_panels_have_ids_and_titles_of_their_own(page: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in page["panels"]]
    titles = [panel["title"] for panel in page["panels"]]
    assert len(ids) == len(set(ids))
    assert len(titles) == len(set(titles))


@each_dashboard
def test_targets_of_a_panel_have_reference_letters_of_their_own(page: dict[str, Any]) -> None:
    for panel in page["panels"]:
        letters = [target["refId"] for target in panel.get("targets", ())]
        assert len(letters) == len(set(letters)), panel["title"]


@each_dashboard
def test_panels_stay_on_the_page_and_do_not_overlap(page: dict[str, Any]) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in page["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        columns, lines = range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
        for cell in product(columns, lines):
            assert cell not in taken, (panel["title"], taken[cell])
            taken[cell] = panel["title"]


@each_dashboard
def test_every_panel_says_what_it_shows(page: dict[str, Any]) -> None:
    assert all(panel["description"].endswith(".") for panel in page["panels"] if panel["type"] != "row")


@each_dashboard
def test_everything_reads_the_data_source_that_is_provisioned(page: dict[str, Any]) -> None:
    uid = provisioned("datasources", "datasources")["uid"]
    [choice] = [v for v in page["templating"]["list"] if v["type"] == "datasource"]
    assert choice["current"]["value"] == uid
    sources = list(values_of("datasource", page))
    assert sources
    assert all(source == {"type": "prometheus", "uid": f"${{{choice['name']}}}"} for source in sources)


def test_the_data_source_is_the_prometheus_of_compose_at_its_scrape_interval() -> None:
    source = provisioned("datasources", "datasources")
    prometheus = load_services()["prometheus"]
    assert source["url"] == f"http://{prometheus.name}:{prometheus.listens_on[0]}"
    config = yaml.safe_load((ROOT / "config" / "prometheus.yml").read_text(encoding="utf-8"))
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]


def test_dashboards_are_loaded_from_where_compose_mounts_them() -> None:
    mounts = {mount.target: mount.source for mount in GRAFANA.mounts}
    folder = provisioned("dashboards", "providers")["options"]["path"]
    assert mounts[folder] == dashboard.FOLDER
    home = GRAFANA.environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{folder}/fleet.json"
    for kind in ("datasources", "dashboards"):
        assert mounts[f"/etc/grafana/provisioning/{kind}"] == PROVISIONING / kind


def test_every_reason_has_one_colour_wherever_it_is_drawn() -> None:
    drawn = [
        panel
        for page in DASHBOARDS.values()
        for panel in page["panels"]
        if any(target["legendFormat"] == "{{reason}}" for target in panel.get("targets", ()))
    ]
    assert drawn
    for panel in drawn:
        named = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
        assert {reason.value for reason in Reason} <= named, panel["title"]


@pytest.mark.parametrize("name", ["fleet", "scale-out"])
def test_every_health_state_has_a_name_and_a_number_in_the_health_panel(name: str) -> None:
    [panel] = [panel for panel in DASHBOARDS[name]["panels"] if panel["type"] == "state-timeline"]
    [mapping] = panel["fieldConfig"]["defaults"]["mappings"]
    names = {number: shown["text"] for number, shown in mapping["options"].items()}
    [target] = panel["targets"]
    asked = dict(re.findall(r'(\d) \* prefix_router_backend_state\{[^}]*state="(\w+)"', target["expr"]))
    assert names == asked
    assert set(names.values()) == {state.value for state in BackendState}


def test_there_are_three_pages_that_lead_to_each_other() -> None:
    assert set(DASHBOARDS) == {"fleet", "routing", "scale-out"}
    assert len({page["uid"] for page in DASHBOARDS.values()}) == len(DASHBOARDS)
    for page in DASHBOARDS.values():
        [link] = page["links"]
        assert set(link["tags"]) <= set(page["tags"])
        assert link["includeVars"]
        assert link["keepTime"]


@each_dashboard
def test_every_variable_is_used_and_asks_for_what_exists(page: dict[str, Any]) -> None:
    text = str(page["panels"])
    for variable in page["templating"]["list"]:
        assert f"${variable['name']}" in text or f"${{{variable['name']}}}" in text, variable["name"]
        if variable["type"] == "query":
            [metric, label] = re.findall(
                r"label_values\((\w+)[^,]*(?:\{.*\})?, (\w+)\)", variable["definition"]
            )[0]
            assert in_the_catalogue(metric) is not None
            assert label == variable["name"]


@each_dashboard
def test_reloads_and_changes_of_health_are_marked(page: dict[str, Any]) -> None:
    marked = " ".join(mark["expr"] for mark in page["annotations"]["list"])
    for name in (
        "config_last_reload_success_timestamp_seconds",
        "config_reloads_total",
        "health_transitions_total",
    ):
        assert PREFIX + name in marked
