from __future__ import annotations

from pathlib import Path

import pytest

from prefix_router.settings.load import load_text
from prefix_router.settings.model import DEFAULT_VIRTUAL_NODES
from prefix_router.settings.summary import MAX_BACKENDS, summary
from tests.support.certificates import Authority


def of(text: str) -> list[str]:
    return summary(load_text(text, "x.yaml", {})).splitlines()


def test_a_summary_names_listeners_strategy_and_backends() -> None:
    assert of("listen: {host: '::'}\nbackends: [{url: h:1/v1, name: a, weight: 2, models: [m, n]}]\n") == [
        "listen    [::]:8000, admin 127.0.0.1:9090",
        (
            "strategy  prefix_aware: first 1024 tokens, anchor first_user_turn, overflow from 64 in flight, "
            f"{DEFAULT_VIRTUAL_NODES} virtual nodes"
        ),
        "backends  1",
        "          a: http://h:1, weight 2, models m, n",
    ]


@pytest.mark.parametrize(
    ("routing", "line"),
    [
        ("{strategy: random}", "strategy  random"),
        ("{strategy: session}", "strategy  session: header x-session-id"),
        (
            "{strategy: session, session: {header: x-user, cookie: sid}}",
            "strategy  session: header x-user or cookie sid",
        ),
    ],
)
def test_a_strategy_is_shown_with_the_settings_that_it_uses(routing: str, line: str) -> None:
    assert of(f"backends: [{{url: h:1}}]\nrouting: {routing}\n")[1] == line


def test_a_large_fleet_is_counted_and_not_listed_whole() -> None:
    backends = ", ".join(f"{{url: h:{port}}}" for port in range(1, MAX_BACKENDS + 4))
    lines = of(f"backends: [{backends}]\n")
    assert lines[2] == f"backends  {MAX_BACKENDS + 3}"
    assert lines[-1] == "          and 3 more"
    assert len(lines) == 3 + MAX_BACKENDS + 1


def test_workers_are_shown_where_there_are_several() -> None:
    assert of("backends: [{url: h:1}]\nworkers: 4\n")[1] == "workers   4"
    assert not any("workers" in line for line in of("backends: [{url: h:1}]\n"))


def test_what_stands_before_a_listener_and_what_is_not_checked_is_shown(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("a", "a.example")
    tls = f"tls: {{certificate: {files.certificate}, key: {files.key}, client_ca: {files.certificate}}}"
    text = f"backends: [{{url: h:1}}]\nlisten: {{{tls}}}\nadmin: {{token_sha256: {'ab' * 32}}}\n"
    lines = of(text + "backend_tls: {verify: false}\n")
    assert lines[0] == "listen    0.0.0.0:8000 (TLS, client certificates), admin 127.0.0.1:9090 (token)"
    assert "WARNING" in lines[-1]
