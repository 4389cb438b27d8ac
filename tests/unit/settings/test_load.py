from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from prefix_router.settings.load import MAX_FILE_BYTES, load, load_text
from prefix_router.settings.model import BackendSettings, Settings, StrategyName
from prefix_router.settings.problems import Problem, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVERYTHING_WRONG = """\
listen:
  host: 0.0.0.0
  port: ${PORT:-eight}
  prot: 1
  backlog: "2048"
admin: 5
backends:
  - url: http://user:secret@h:1
    weight: 0
  - http://h:1
  - {name: b}
  - {url: 10.0.0.1:8000/v1, name: 7}
  - {url: 10.0.0.1:8000/}
routing:
  strategy: prefix-aware
  prefix:
    length: 0
    unit: no
    length: 3
    tokenizer: nope.json
  concurrency_threshold: ${NOPE}
  ring: {virtual_nodes: 1.5}
port: 1
engine_metrics: {interval_seconds: 0.5}
models: !mine {}
timeouts: {idle_seconds: .inf}
"""


def test_every_mistake_of_every_kind_is_told_at_once(
    mistakes: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prefix_router.settings.rules.find_spec", lambda name: name)
    found_ports = "discovery.dns.port or discovery.kubernetes.port"
    assert mistakes(EVERYTHING_WRONG) == [
        'x.yaml:3: listen.port: expected a whole number from 0 to 65535, got "eight" from ${PORT}',
        "x.yaml:4: listen.prot: unknown key; did you mean port?",
        (
            'x.yaml:5: listen.backlog: expected a whole number from 1 to 65535, got "2048" '
            "(leave out the quotes)"
        ),
        "x.yaml:6: admin: expected a mapping, got 5",
        "x.yaml:8: backends[0].url: expected no user name or password before the host",
        "x.yaml:9: backends[0].weight: expected a whole number from 1 to 100, got 0",
        'x.yaml:10: backends[1]: expected a mapping with url, got "http://h:1"',
        "x.yaml:11: backends[2].url: missing; expected a URL such as http://10.0.0.1:8000",
        (
            "x.yaml:12: backends[3].name: expected at most 128 letters, digits, - . _ : / [ or ], got 7 "
            "(put it in quotes)"
        ),
        (
            "x.yaml:13: backends[4].url: expected each backend once; http://10.0.0.1:8000 was given before "
            "(line 12)"
        ),
        (
            "x.yaml:15: routing.strategy: expected one of random, round_robin, least_outstanding_requests, "
            'session, prefix_aware, adaptive, got "prefix-aware"; did you mean prefix_aware?'
        ),
        "x.yaml:17: routing.prefix.length: expected a whole number from 1 to 1048576, got 0",
        "x.yaml:18: routing.prefix.unit: expected one of tokens, characters, bytes, got no",
        "x.yaml:19: routing.prefix.length: given twice; the first time on line 17",
        "x.yaml:20: routing.prefix.tokenizer: expected the path of a tokenizer.json, found no file nope.json",
        (
            "x.yaml:21: routing.concurrency_threshold: the environment variable NOPE is not set and has no "
            "default; write ${NOPE:-default}"
        ),
        "x.yaml:22: routing.ring.virtual_nodes: expected a whole number from 1 to 4096, got 1.5",
        f"x.yaml:23: port: unknown key; did you mean listen.port or admin.port or {found_ports}?",
        "x.yaml:24: engine_metrics.interval_seconds: expected 0 (never) or a number from 1 to 3600, got 0.5",
        "x.yaml:25: models: the YAML tag !mine is not supported: write the plain value",
        "x.yaml:26: timeouts.idle_seconds: expected a number from 0 to 86400, got .inf",
    ]


def test_a_right_file_becomes_typed_settings(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "listen: {host: '::', port: 8001}\n"
        "backends:\n"
        "  - {url: '10.0.0.1:8000', weight: 3, models: [llama, lora]}\n"
        "  - {url: '${B_URL}', name: b}\n"
        "routing: {strategy: session, concurrency_threshold: 7}\n"
        "timeouts:\n"
        "  connect_seconds: ${CONNECT:-2}\n"
    )
    settings = load(file, environ={"B_URL": "http://[::1]:8000/v1"})
    assert settings.listen.host == "::"
    assert settings.listen.port == 8001
    assert settings.backends == (
        BackendSettings(url="http://10.0.0.1:8000", name="10.0.0.1:8000", weight=3, models=("llama", "lora")),
        BackendSettings(url="http://[::1]:8000", name="b"),
    )
    assert settings.routing.strategy is StrategyName.SESSION
    assert settings.routing.concurrency_threshold == 7
    assert settings.timeouts.connect_seconds == 2.0
    assert settings.health == Settings().health


def test_the_environment_of_the_process_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFIX_ROUTER_TEST_PORT", "8123")
    file = tmp_path / "c.yaml"
    file.write_text("backends: [{url: h:1}]\nlisten:\n  port: ${PREFIX_ROUTER_TEST_PORT}\n")
    assert load(file).listen.port == 8123


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        (b"", None, "holds no settings; expected at least `backends`"),
        (b"# nothing\n", None, "holds no settings; expected at least `backends`"),
        (b"---\n", None, "holds no settings; expected at least `backends`"),
        (b"\n- url: h:1\n", 2, "expected a mapping of settings, got a list"),
        (b"http://h:1\n", 1, "expected a mapping of settings, got a single value"),
        (b"${NOPE}\n", 1, ("the environment variable NOPE is not set and has no default; "
         "write ${NOPE:-default}")),
        (b"# caf\xe9\n", 1, "expected UTF-8 text, got byte 0xE9"),
        (b"\xef\xbb\xbf# ok\n# caf\xe9\n", 2, "expected UTF-8 text, got byte 0xE9"),
        ("backends: []".encode("utf-16"), 1, "expected UTF-8 text, got byte 0xFF"),
        (b"listen: {port: 1\n", 2, ("not valid YAML: while parsing a flow mapping expected ',' or '}', "
         "but got '<stream end>' (column 1)")),
        (b"#" * (MAX_FILE_BYTES + 1), None, "expected at most 1048576 bytes; this is no configuration file"),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_settings_is_one_mistake(
    tmp_path: Path, data: bytes, line: int | None, message: str
) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(data)
    with pytest.raises(SettingsError) as caught:
        load(file, environ={})
    assert caught.value.problems == (Problem(str(file), line, "", message),)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(b"\xef\xbb\xbfbackends: [{url: h:1}]\n")
    assert load(file).backends[0].name == "h:1"


def test_a_pipe_is_as_good_as_a_file() -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, b"backends: [{url: h:1}]\n")
        os.close(writer)
        assert load(f"/dev/fd/{reader}").backends[0].name == "h:1"
    finally:
        os.close(reader)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none.yaml", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(SettingsError) as caught:
            load(path)
        assert str(caught.value) == f"{path}: cannot be read: {reason}"


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file whose reading fails")
def test_a_file_that_fails_while_it_is_read_is_named() -> None:
    with pytest.raises(SettingsError, match=r"^/proc/self/mem: cannot be read: Input/output error$"):
        load("/proc/self/mem")


def test_the_order_of_keys_does_not_matter() -> None:
    one = load_text("backends: [{url: h:1, name: a}]\nlisten: {port: 1, host: h}\n", "x.yaml", {})
    other = load_text("listen: {host: h, port: 1}\nbackends: [{name: a, url: h:1}]\n", "x.yaml", {})
    assert one == other
