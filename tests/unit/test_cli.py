from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from prefix_router import __version__, cli
from prefix_router.settings.schema import json_schema

if TYPE_CHECKING:
    from collections.abc import Callable

COMMANDS = (
    "serve", "check-config", "schema", "explain", "simulated-vllm", "demo", "stack", "simulate", "analyze",
    "top", "hash-key", "completion",
)  # fmt: skip


@pytest.fixture
def substitute(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts functions in the place of a module that the command line imports when it needs it."""

    def module(name: str, **functions: Any) -> None:
        stand_in = ModuleType(name)
        vars(stand_in).update(functions)
        monkeypatch.setitem(sys.modules, name, stand_in)

    return module


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "c.yaml"
    file.write_text("backends: [{url: h:1}]\nlisten: {port: 7000}\n")
    return str(file)


@pytest.fixture
def broken_config(tmp_path: Path) -> str:
    file = tmp_path / "broken.yaml"
    file.write_text("backends: [{url: h:1}]\nlisten:\n  port: x\n  prot: 1\n")
    return str(file)


def nothing_may_start(*_: object) -> int:
    raise AssertionError("started from a configuration with mistakes")


class Recorder:
    """A function that remembers how it was called, and returns `status`."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.given: Any = None
        self.more: tuple[Any, ...] = ()
        self.call: dict[str, Any] = {}

    def __call__(self, given: Any, *more: Any, **call: Any) -> int:
        self.given = given
        self.more = more
        self.call = call
        return self.status


def python(*code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *code], capture_output=True, text=True, timeout=50, check=False, **options
    )


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert tuple(command.name for command in cli.COMMANDS) == COMMANDS
    for command in cli.COMMANDS:
        assert command.name in printed


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"prefix-router {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["serve", "--prot", "1"],
        ["serve", "--por", "1"],
        ["serve", "--port"],
        ["serve", "extra"],
        ["check-config"],
        ["schema", "extra"],
        ["explain"],
        ["explain", "--header", "no colon", "r.json"],
        ["explain", "--header", ": value", "r.json"],
    ],
)
def test_wrong_usage_is_status_2_and_says_why(
    arguments: list[str], capsys: pytest.CaptureFixture[str], substitute: Callable[..., None]
) -> None:
    substitute("prefix_router.lifecycle", serve=nothing_may_start)
    substitute("prefix_router.explain", run=nothing_may_start)
    assert cli.main(arguments) == 2
    assert "error: " in capsys.readouterr().err


def test_serve_is_called_with_the_settings_of_file_and_flags(
    substitute: Callable[..., None], config: str
) -> None:
    serve = Recorder(status=7)
    substitute("prefix_router.lifecycle", serve=serve)
    assert cli.main(["serve", "--config", config, "--strategy", "random", "--no-decision-headers"]) == 7
    assert serve.given.listen.port == 7000
    assert serve.given.routing.strategy.value == "random"
    assert not serve.given.response_headers.decision


def test_serve_can_read_its_file_again_and_the_flags_still_win(
    substitute: Callable[..., None], config: str
) -> None:
    serve = Recorder()
    substitute("prefix_router.lifecycle", serve=serve)
    assert cli.main(["serve", "--config", config, "--strategy", "random"]) == 0
    Path(config).write_text("backends: [{url: h:2}]\nrouting: {strategy: round_robin}\n")
    again = serve.more[0]()
    assert [backend.name for backend in again.backends] == ["h:2"]
    assert again.routing.strategy.value == "random"


def test_serve_needs_no_file(substitute: Callable[..., None]) -> None:
    serve = Recorder()
    substitute("prefix_router.lifecycle", serve=serve)
    assert cli.main(["serve", "--backend", "http://h:1", "--worker-urls", "h:2,h:3", "--port", "0"]) == 0
    assert [backend.name for backend in serve.given.backends] == ["h:1", "h:2", "h:3"]
    assert serve.more == (None, None)


def test_nothing_is_started_from_a_configuration_with_mistakes(
    substitute: Callable[..., None], broken_config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    substitute("prefix_router.lifecycle", serve=nothing_may_start)
    assert cli.main(["serve", "--config", broken_config, "--admin-port", "-1"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines() == [
        f'{broken_config}:3: listen.port: expected a whole number from 0 to 65535, got "x"',
        f"{broken_config}:4: listen.prot: unknown key; did you mean port?",
        'command line: --admin-port: expected a whole number from 0 to 65535, got "-1"',
        "prefix-router: 3 mistakes",
    ]


def test_check_config_says_ok_and_what_was_read(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check-config", config]) == 0
    first, *summary = capsys.readouterr().out.splitlines()
    assert first == f"{config}: ok"
    assert summary[0] == "listen    0.0.0.0:7000, admin 127.0.0.1:9090"


def test_check_config_lists_every_mistake(broken_config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check-config", broken_config]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_check_config_names_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check-config", "none.yaml"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "none.yaml: cannot be read: No such file or directory",
        "prefix-router: 1 mistake",
    ]


def test_schema_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


@pytest.fixture
def explained(substitute: Callable[..., None]) -> Recorder:
    explained = Recorder()
    substitute("prefix_router.explain", run=explained)
    return explained


def test_explain_is_called_with_the_request(explained: Recorder, config: str, tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_bytes(b'{"prompt": "a"}')
    arguments = [
        "--config",
        config,
        "--port",
        "7001",
        "--header",
        "X-Session-Id: a: b ",
        "--header",
        "x-empty:",
    ]
    assert cli.main(["explain", *arguments, "--json", str(request)]) == 0
    assert explained.given.listen.port == 7001
    assert explained.call == {
        "body": b'{"prompt": "a"}',
        "path": None,
        "headers": [("X-Session-Id", "a: b"), ("x-empty", "")],
        "as_json": True,
    }


def test_explain_reads_standard_input_and_takes_a_path(
    explained: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    body = tmp_path / "body"
    body.write_bytes(b'{"input": "a"}')
    with body.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert cli.main(["explain", "--backend", "h:1", "--path", "/v1/embeddings", "-"]) == 0
    assert explained.call["body"] == b'{"input": "a"}'
    assert explained.call["path"] == "/v1/embeddings"
    assert explained.call["headers"] == []
    assert explained.call["as_json"] is False


def test_explain_names_a_request_that_cannot_be_read(
    explained: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", "--backend", "h:1", "none.json"]) == 2
    assert explained.call == {}
    assert capsys.readouterr().err == (
        "prefix-router explain: none.json cannot be read: No such file or directory\n"
    )


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("simulated-vllm", "prefix_router.simulate.server"),
        ("demo", "prefix_router.demo"),
        ("stack", "prefix_router.demo.stack"),
        ("top", "prefix_router.top.command"),
        ("simulate", "prefix_router.fleetsim.command"),
    ],
)
def test_a_command_with_arguments_of_its_own_is_handed_them(
    substitute: Callable[..., None], command: str, module: str
) -> None:
    run = Recorder(status=3)
    substitute(module, add_arguments=lambda parser: parser.add_argument("--mine", type=int), run=run)
    assert cli.main([command, "--mine", "5"]) == 3
    assert run.given.mine == 5


def test_only_the_named_command_is_imported() -> None:
    rooms = (
        "app",
        "lifecycle",
        "demo",
        "explain",
        "simulate",
        "fleetsim",
        "analyze",
        "engine",
        "proxy",
        "observe",
        "settings.model",
    )
    code = (
        "import sys; from prefix_router.cli import main; main(['--help']); main(['--version']);"
        f"print([m for m in sys.modules if m.removeprefix('prefix_router.').startswith({rooms!r})])"
    )
    result = python("-c", code)
    assert result.stdout.splitlines()[-1] == "[]", result.stderr


def test_settings_load_nothing_heavy() -> None:
    heavy = ("aiohttp", "prometheus_client", "uvloop", "tokenizers", "uhashring", "asyncio", "difflib")
    code = (
        "import sys; import prefix_router.settings.load as l; import prefix_router.settings.flags as f;"
        "l.load(None, flags=(f.Given('--backend', 'backends', 'h:1'),));"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    result = python("-c", code)
    assert result.stdout == "[]\n", result.stderr


def test_an_interrupt_is_status_130_without_a_traceback(
    substitute: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    substitute("prefix_router.lifecycle", serve=interrupted)
    assert cli.main(["serve", "--backend", "h:1"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("arguments", [["schema"], ["--help"]])
def test_a_reader_that_leaves_is_no_traceback(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "prefix_router", *arguments],
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=50,
            check=False,
        )
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (1, b"")


def test_the_module_is_the_command(config: str) -> None:
    result = python("-m", "prefix_router", "check-config", config)
    assert result.returncode == 0
    assert result.stdout.startswith(f"{config}: ok\n")
