"""config/alerts.yml: promtool accepts it, each alert comes when it should, the runbook says what to do."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml

from prefix_router.openai_api.errors import ErrorCode
from tests.support import alerts
from tests.support.tools import ROOT, tool

TESTS = ROOT / "config" / "alerts_test.yml"
RUNBOOK = ROOT / "docs" / "runbook.md"
RULES = alerts.load()

each_alert = pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])


def promtool(*arguments: str) -> None:
    done = subprocess.run([tool("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", str(alerts.PATH))


def test_each_alert_comes_when_it_should_and_not_otherwise() -> None:
    promtool("test", "rules", str(TESTS))


@each_alert
def test_there_is_a_case_in_which_the_alert_fires(rule: dict[str, Any]) -> None:
    cases = yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]
    expressions = [test for case in cases for test in case.get("promql_expr_test", ())]
    fired = {
        sample["labels"].replace(" ", "") for test in expressions for sample in test["exp_samples"]
    }  # fmt: skip
    fired |= {
        f'{{alertname="{test["alertname"]}",severity="{alert["exp_labels"]["severity"]}"}}'
        for case in cases
        for test in case.get("alert_rule_test", ())
        for alert in test["exp_alerts"]
    }
    assert f'{{alertname="{rule["alert"]}",severity="{rule["labels"]["severity"]}"}}' in fired


@each_alert
def test_an_alert_says_what_is_wrong_and_how_urgent_it_is(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["description"].endswith(".")


@each_alert
def test_the_runbook_has_a_section_for_the_alert(rule: dict[str, Any]) -> None:
    path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert ROOT / path == RUNBOOK
    headings = re.findall(r"^### (\w+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor == rule["alert"].lower()
    assert rule["alert"] in headings


def test_the_runbook_has_no_section_for_an_alert_that_is_gone_and_keeps_the_order() -> None:
    headings = re.findall(r"^### (\w+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == [rule["alert"] for rule in RULES]


def test_every_section_of_the_runbook_answers_the_same_four_questions() -> None:
    sections = re.split(r"^### ", RUNBOOK.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    for section in sections:
        rows = re.findall(r"^\| ([a-z ]+) \|", section, re.MULTILINE)
        assert rows == ["you see", "it means", "check", "do"], section


def test_every_error_code_that_is_asked_for_exists() -> None:
    codes = {code.value for code in ErrorCode}
    asked = [
        code
        for rule in RULES
        for alternatives in re.findall(r'code=~"([^"]+)"', rule["expr"])
        for code in alternatives.split("|")
    ]
    assert asked
    assert set(asked) <= codes
