from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from prefix_router.settings import rules
from prefix_router.settings.load import load_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BACKEND = "backends: [{url: h:1}]\n"


@pytest.mark.parametrize("text", ["listen: {}", "backends: []"])
def test_at_least_one_backend_is_needed(mistakes: Callable[..., list[str]], text: str) -> None:
    assert mistakes(text) == [
        "x.yaml:1: backends: expected at least one backend, in the file or as --backend URL"
    ]


def test_names_differ_also_when_they_are_defaults(mistakes: Callable[..., list[str]]) -> None:
    text = """\
        backends:
          - {url: h:1, name: a}
          - {url: h:2, name: a}
          - {url: h:3, name: "h:4"}
          - {url: h:4}
        """
    assert mistakes(text) == [
        'x.yaml:3: backends[1].name: expected a name of its own; "a" was given before (line 2)',
        'x.yaml:5: backends[3].name: expected a name of its own; "h:4" was given before (line 4)',
    ]


def test_two_path_prefixes_of_one_host_need_names(mistakes: Callable[..., list[str]]) -> None:
    assert mistakes("backends: [{url: h:1/a}, {url: h:1/b}]") == [
        'x.yaml:1: backends[1].name: expected a name of its own; "h:1" was given before (line 1)'
    ]
    load_text("backends: [{url: h:1/a, name: a}, {url: h:1/b, name: b}]", "x.yaml", {})


def test_the_same_backend_twice_is_a_mistake_however_it_is_written(
    mistakes: Callable[..., list[str]],
) -> None:
    text = """\
        backends:
          - {url: "http://h:80", name: a}
          - {url: "H/v1/", name: b}
        """
    assert mistakes(text) == [
        "x.yaml:3: backends[1].url: expected each backend once; http://h was given before (line 2)"
    ]


@pytest.mark.parametrize(
    ("listen", "admin"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("127.0.0.1", "0.0.0.0"),
        ("0.0.0.0", "0.0.0.0"),
        ("localhost", "127.0.0.1"),
        ("0.0.0.0", "localhost"),
        ("'::'", "'::1'"),
        ("'::1'", "'0:0::1'"),
        ("Router.example", "router.example"),
    ],
)
def test_the_listeners_may_not_share_an_address(
    mistakes: Callable[..., list[str]], listen: str, admin: str
) -> None:
    text = f"{BACKEND}listen: {{host: {listen}, port: 9000}}\nadmin: {{host: {admin}, port: 9000}}\n"
    (mistake,) = mistakes(text)
    assert mistake.startswith("x.yaml:3: admin.port: listen ")
    assert mistake.endswith(" cannot both be bound; expected another port for one of them")


@pytest.mark.parametrize(
    ("listen", "admin"),
    [
        ("{host: 127.0.0.1, port: 9000}", "{host: 127.0.0.2, port: 9000}"),
        ("{host: 0.0.0.0, port: 9000}", "{host: '::1', port: 9000}"),
        ("{host: 127.0.0.1, port: 0}", "{host: 127.0.0.1, port: 0}"),
        ("{host: 127.0.0.1, port: 9000}", "{host: 127.0.0.1, port: 9001}"),
    ],
)
def test_the_listeners_may_share_what_does_not_clash(listen: str, admin: str) -> None:
    load_text(f"{BACKEND}listen: {listen}\nadmin: {admin}\n", "x.yaml", {})


def test_a_clash_with_a_default_is_told_at_the_setting_that_was_written(
    mistakes: Callable[..., list[str]],
) -> None:
    assert mistakes(f"{BACKEND}listen:\n  port: 9090\n") == [
        (
            "x.yaml:3: listen.port: listen 0.0.0.0:9090 and admin 127.0.0.1:9090 cannot both be bound; "
            "expected another port for one of them"
        )
    ]


@pytest.mark.parametrize(
    "text",
    [
        "listen: {port: x}\nadmin: {port: 8000}\n",
        "listen: 5\nadmin: {port: 8000}\n",
        "admin: {port: 8000, host: 5}\n",
    ],
)
def test_a_rule_over_a_wrong_value_is_not_told_as_well(mistakes: Callable[..., list[str]], text: str) -> None:
    (mistake,) = mistakes(BACKEND + text)
    assert "bound" not in mistake


def test_a_wrong_backend_is_not_also_a_missing_one(mistakes: Callable[..., list[str]]) -> None:
    assert mistakes("backends: [{url: 'ftp://h'}]") == [
        "x.yaml:1: backends[0].url: expected http:// or https:// before the host"
    ]


def tokenizer(prefix: str) -> str:
    return f"{BACKEND}routing:\n  prefix: {{{prefix}}}\n"


def test_a_tokenizer_must_be_a_file(
    mistakes: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rules, "find_spec", lambda name: name)
    (tmp_path / "tokenizer.json").write_text("{}")
    load_text(tokenizer(f"tokenizer: {tmp_path}/tokenizer.json"), "x.yaml", {})
    for wrong in (f"{tmp_path}/none.json", str(tmp_path)):
        assert mistakes(tokenizer(f"tokenizer: {wrong}")) == [
            (
                "x.yaml:3: routing.prefix.tokenizer: expected the path of a tokenizer.json, "
                f"found no file {wrong}"
            )
        ]


def test_tracing_needs_its_extra(mistakes: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{BACKEND}tracing: {{endpoint: 'http://c:4318'}}"
    load_text(text, "x.yaml", {})

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)  # as when not even `opentelemetry` is there

    for find_spec in (lambda _: None, missing):
        monkeypatch.setattr(rules, "find_spec", find_spec)
        (mistake,) = mistakes(text)
        assert mistake.startswith("x.yaml:2: tracing.endpoint: needs an extra")
        assert mistake.endswith(": pip install prefix_router[tracing]")
    load_text(f"{BACKEND}tracing: {{sample_ratio: 0.5}}", "x.yaml", {})


@pytest.mark.parametrize("wrong", ["c:4318", "grpc://c:4317", "http://me:hush@c", "http://c/?q=1", "http://"])
def test_a_collector_has_a_plain_url(mistakes: Callable[..., list[str]], wrong: str) -> None:
    (mistake,) = mistakes(f"{BACKEND}tracing: {{endpoint: '{wrong}'}}")
    assert "expected null or a URL such as http://127.0.0.1:4318, without login or query" in mistake


def test_a_capture_needs_a_directory(mistakes: Callable[..., list[str]], tmp_path: Path) -> None:
    load_text(f"{BACKEND}capture: {{path: {tmp_path}/traffic.jsonl}}", "x.yaml", {})
    for wrong in (f"{tmp_path}/missing/traffic.jsonl", tmp_path):
        assert mistakes(f"{BACKEND}capture: {{path: {wrong}}}") == [
            f"x.yaml:2: capture.path: expected a file in a directory that exists, got {wrong}"
        ]


def test_a_tokenizer_needs_its_extra(
    mistakes: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rules, "find_spec", lambda name: None if name == "tokenizers" else name)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert mistakes(tokenizer(f"tokenizer: {tmp_path}/tokenizer.json")) == [
        (
            "x.yaml:3: routing.prefix.tokenizer: needs an extra that is not installed: "
            "pip install prefix_router[tokenizer]"
        )
    ]


@pytest.mark.parametrize("unit", ["characters", "bytes"])
def test_a_tokenizer_counts_nothing_but_tokens(
    mistakes: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unit: str
) -> None:
    monkeypatch.setattr(rules, "find_spec", lambda name: name)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert mistakes(tokenizer(f"unit: {unit}, tokenizer: {tmp_path}/tokenizer.json")) == [
        f"x.yaml:3: routing.prefix.tokenizer: expected null with unit {unit}: a tokenizer counts tokens"
    ]


@pytest.mark.parametrize("seconds", ["0.5", "0.001"])
def test_engine_metrics_are_not_read_more_often_than_each_second(
    mistakes: Callable[..., list[str]], seconds: str
) -> None:
    assert mistakes(f"{BACKEND}engine_metrics: {{interval_seconds: {seconds}}}") == [
        (
            "x.yaml:2: engine_metrics.interval_seconds: expected 0 (never) or a number from 1 to 3600, "
            f"got {seconds}"
        )
    ]


@pytest.mark.parametrize("seconds", [0, 1, 1.5])
def test_engine_metrics_may_be_off(seconds: float) -> None:
    text = f"{BACKEND}engine_metrics: {{interval_seconds: {seconds}}}"
    assert load_text(text, "x.yaml", {}).engine_metrics.interval_seconds == seconds


def test_several_workers_need_a_system_on_which_they_can_share_memory(
    mistakes: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_text(f"{BACKEND}workers: 2", "x.yaml", {}).workers == 2
    monkeypatch.delattr("os.memfd_create")
    assert load_text(f"{BACKEND}workers: 1", "x.yaml", {}).workers == 1
    assert mistakes(f"{BACKEND}workers: 2") == [
        "x.yaml:2: workers: expected 1: several processes share memory in a way that needs Linux"
    ]


def events(backend: str, tokenizer: object = "null") -> str:
    return f"backends: [{backend}]\nrouting: {{prefix: {{tokenizer: {tokenizer}}}}}\n"


@pytest.fixture
def tokenizer_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A tokenizer where all extras are installed."""
    monkeypatch.setattr(rules, "find_spec", lambda name: name)
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    return path


@pytest.mark.parametrize(
    "backend",
    [
        "{url: h:1, kv_events: tcp://h:5557}",
        "{url: h:1, kv_events: tcp://h:5557, kv_events_replay: tcp://h:5558}",
        "{url: h:1, kv_events: 'tcp://[::1]:5557', kv_events_replay: tcp://h:5657, kv_events_ranks: 100}",
        "{url: h:1, kv_events: tcp://h:5557}, {url: i:1, kv_events: tcp://i:5557}",
    ],
)
def test_kv_events_with_all_they_need(tokenizer_file: Path, backend: str) -> None:
    load_text(events(backend, tokenizer_file), "x.yaml", {})


def test_kv_events_need_a_tokenizer(mistakes: Callable[..., list[str]], tokenizer_file: Path) -> None:
    assert mistakes(events("{url: h:1, kv_events: tcp://h:5557}")) == [
        (
            "x.yaml:1: backends[0].kv_events: needs routing.prefix.tokenizer, which makes tokens of prompts "
            "as the model does"
        )
    ]


@pytest.mark.parametrize("missing", ["zmq", "jinja2"])
def test_kv_events_need_their_extra(
    mistakes: Callable[..., list[str]], tokenizer_file: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(rules, "find_spec", lambda name: None if name == missing else name)
    assert mistakes(events("{url: h:1, kv_events: tcp://h:5557}", tokenizer_file)) == [
        (
            "x.yaml:1: backends[0].kv_events: needs an extra that is not installed: "
            "pip install prefix_router[events]"
        )
    ]


@pytest.mark.parametrize(
    "address", ["tcp://*:5557", "h:5557", "tcp://h", "tcp://h:0", "ipc:///tmp/x", "5557"]
)
def test_an_address_of_kv_events_names_a_host(mistakes: Callable[..., list[str]], address: str) -> None:
    (mistake,) = mistakes(events(f"{{url: h:1, kv_events: '{address}'}}"))
    assert mistake.startswith(
        "x.yaml:1: backends[0].kv_events: expected null or an address such as tcp://10.0.0.1:5557, "
        "with a host in it, not a *, got "
    )


@pytest.mark.parametrize(
    ("backend", "mistake"),
    [
        (
            "{url: h:1, kv_events_replay: tcp://h:5558}",
            "backends[0].kv_events_replay: expected null without kv_events: there is nothing to have again",
        ),
        (
            "{url: h:1, kv_events: tcp://h:65530, kv_events_ranks: 8}",
            "backends[0].kv_events: expected ports up to 65535, got 65537 for the last of kv_events_ranks",
        ),
        (
            "{url: h:1, kv_events: tcp://h:5557, kv_events_replay: tcp://h:5558, kv_events_ranks: 2}",
            (
                "backends[0].kv_events_replay: expected a port of its own, 5558 is that of "
                "backends[0].kv_events (line 1)"
            ),
        ),
        (
            "{url: h:1, kv_events: tcp://h:5557}, {url: h:2, kv_events: tcp://H:5557}",
            (
                "backends[1].kv_events: expected a port of its own, 5557 is that of "
                "backends[0].kv_events (line 1)"
            ),
        ),
    ],
)
def test_kv_events_that_cannot_be_had(
    mistakes: Callable[..., list[str]], tokenizer_file: Path, backend: str, mistake: str
) -> None:
    assert mistakes(events(backend, tokenizer_file)) == [f"x.yaml:1: {mistake}"]
