from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from prefix_router.settings.fields import leaves
from prefix_router.settings.load import load_text
from prefix_router.settings.model import Settings
from prefix_router.settings.reload import RELOADABLE, Change, ReloadReport, compare

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"

NEEDS_RESTART = {
    "listen.host",
    "listen.port",
    "listen.backlog",
    "admin.host",
    "admin.port",
    "logging.format",
    "workers",
}


def settings(**sections: Any) -> Settings:
    document = {"backends": [{"url": "http://h:1", "name": "a"}], **sections}
    return load_text(json.dumps(document), "x.yaml", {})


def lines(changes: tuple[Change, ...]) -> list[str]:
    return [str(change) for change in changes]


def test_for_each_setting_it_was_decided_whether_it_can_change_at_run_time() -> None:
    paths = {leaf.path for leaf in leaves()}
    assert paths >= RELOADABLE
    assert paths - RELOADABLE == NEEDS_RESTART, "teach Router.reload the new setting, or list it above"


def test_the_document_for_operators_names_what_needs_a_restart() -> None:
    text = OPERATIONS.read_text()
    listed = text.partition("<!-- needs restart -->")[2].partition("<!-- end -->")[0]
    assert set(re.findall(r"`([\w.]+)`", listed)) == {leaf.path for leaf in leaves()} - RELOADABLE


def test_equal_settings_change_nothing() -> None:
    in_force, report = compare(settings(), settings())
    assert in_force == settings()
    assert report == ReloadReport()


def test_each_value_that_differs_is_told_with_path_and_both_values() -> None:
    wanted = settings(
        routing={"strategy": "round_robin", "concurrency_threshold": 8, "session": {"cookie": "sid"}},
        logging={"access": True},
    )
    in_force, report = compare(settings(), wanted)
    assert in_force == wanted
    assert lines(report.applied) == [
        "routing.strategy: prefix_aware → round_robin",
        "routing.concurrency_threshold: 64 → 8",
        "routing.session.cookie: null → sid",
        "logging.access: false → true",
    ]
    assert report.needs_restart == ()


def test_backends_are_compared_by_name_whatever_their_order() -> None:
    before = settings(backends=[{"url": "h:1", "name": "a"}, {"url": "h:2", "name": "b"}, {"url": "h:3"}])
    after = settings(
        backends=[{"url": "h:9", "name": "b", "weight": 2}, {"url": "h:4", "models": ["m"]}, {"url": "h:3"}]
    )
    _, report = compare(before, after)
    left, url, weight, joined = lines(report.applied)
    assert left.startswith("backends[a]: {url: http://h:1, name: a, weight: 1, models: null")
    assert left.endswith("} → (none)")
    assert url == "backends[b].url: http://h:2 → http://h:9"
    assert weight == "backends[b].weight: 1 → 2"
    assert joined.startswith("backends[h:4]: (none) → {url: http://h:4, name: h:4, weight: 1, models: [m]")
    reordered = msgspec.structs.replace(before, backends=before.backends[::-1])
    in_force, report = compare(before, reordered)
    assert report == ReloadReport()
    assert in_force == reordered


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("listen", {"port": 81}),
        ("listen", {"host": "127.0.0.1"}),
        ("listen", {"backlog": 7}),
        ("admin", {"port": 82}),
        ("admin", {"host": "::1"}),
        ("logging", {"format": "json"}),
    ],
)
def test_what_needs_a_restart_is_told_and_keeps_its_value(section: str, value: dict[str, Any]) -> None:
    wanted = settings(**{section: value, "retry": {"max_attempts": 1}})
    in_force, report = compare(settings(), wanted)
    assert in_force == settings(retry={"max_attempts": 1})
    assert lines(report.applied) == ["retry.max_attempts: 3 → 1"]
    assert [change.path for change in report.needs_restart] == [f"{section}.{name}" for name in value]
    again, report = compare(in_force, wanted)
    assert again == in_force
    assert (report.applied, len(report.needs_restart)) == ((), 1)


def test_the_document_holds_plain_values_and_leaves_out_the_absent_side() -> None:
    wanted = settings(backends=[{"url": "h:2", "name": "b"}], logging={"level": "debug"}, listen={"port": 81})
    _, report = compare(settings(), wanted)
    document = report.document()
    assert json.loads(msgspec.json.encode(document)) == document
    assert document == {
        "applied": [
            {"path": "backends[a]", "old": msgspec.to_builtins(settings().backends[0])},
            {"path": "backends[b]", "new": msgspec.to_builtins(wanted.backends[0])},
            {"path": "logging.level", "old": "info", "new": "debug"},
        ],
        "needs_restart": [{"path": "listen.port", "old": 8000, "new": 81}],
    }
