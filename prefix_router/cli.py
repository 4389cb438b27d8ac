"""The command line: parses arguments and calls one function for each command, nothing else.

Only the named command's module is imported, and only once it is named: `serve` must start fast and stay
small, and the stand-in engine has no use for the settings. A configuration with mistakes, like a wrong
argument, is exit status 2 with every mistake on standard error, and nothing has been started by then.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from prefix_router import __version__
from prefix_router.settings.problems import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prefix_router.settings.model import Settings

EXIT_USAGE = 2
EXIT_BROKEN_PIPE = 1
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `add_arguments` and `run` import what they need when they are called."""

    name: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class UsageError(Exception):
    """An argument that is well formed but cannot be used."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. `argv` is without the program's name."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has left, as `| head` does. Python would complain at exit, once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    return status


def _dispatch(arguments: Sequence[str]) -> int:
    try:
        parsed = build_parser(_named(arguments)).parse_args(arguments)
    except SystemExit as end:  # argparse has printed help, version or usage
        return end.code if isinstance(end.code, int) else EXIT_USAGE
    command: Command = parsed.command
    try:
        return command.run(parsed)
    except SettingsError as error:
        count = len(error.problems)
        print(error, file=sys.stderr)
        print(f"prefix-router: {count} mistake{'s' if count > 1 else ''}", file=sys.stderr)
    except UsageError as error:
        print(f"prefix-router {command.name}: {error}", file=sys.stderr)
    return EXIT_USAGE


def _named(arguments: Sequence[str]) -> str | None:
    """The name of the command: the first word, since no option before it takes a value."""
    return next((word for word in arguments if not word.startswith("-")), None)


def build_parser(named: str | None, *, every: bool = False) -> argparse.ArgumentParser:
    """A parser that lists all commands but knows the arguments of the `named` one only, or of `every` one."""
    parser = argparse.ArgumentParser(
        prog="prefix-router",
        description="Prefix-aware HTTP router for vLLM fleets.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"prefix-router {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        child = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if every or command.name == named:
            child.set_defaults(command=command)
            command.add_arguments(child)
            _describe(child, command)
    return parser


def _describe(parser: argparse.ArgumentParser, command: Command) -> None:
    """Make of its help what a manual page would say, after what the command says at its end itself."""
    from prefix_router.manual import MANUALS

    manual = MANUALS[command.name]
    parser.description = f"{command.summary}\n\n{textwrap.fill(manual.about, 90)}"
    parser.epilog = "\n\n".join(filter(None, (parser.epilog, manual.epilog())))


def _add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    from prefix_router.settings.flags import add_flags

    parser.add_argument("--config", metavar="FILE", help="YAML file; without it, flags and defaults hold")
    add_flags(parser)


def _settings(arguments: argparse.Namespace) -> Settings:
    from prefix_router.settings.flags import given_flags
    from prefix_router.settings.load import load

    return load(arguments.config, flags=given_flags(arguments))


def _serve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [--config FILE] [--backend URL]... [flags]"
    _add_settings_arguments(parser)


def _serve(arguments: argparse.Namespace) -> int:
    from prefix_router.discovery.file_watch import SeenFile

    file = None if arguments.config is None else SeenFile.now(Path(arguments.config))
    settings = _settings(arguments)
    from prefix_router.lifecycle import serve

    return serve(settings, None if file is None else partial(_settings, arguments), file)


def _check_config_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE")


def _check_config(arguments: argparse.Namespace) -> int:
    from prefix_router.settings.load import load
    from prefix_router.settings.summary import summary

    settings = load(arguments.file)
    print(f"{arguments.file}: ok")
    print(summary(settings))
    return 0


def _schema(_arguments: argparse.Namespace) -> int:
    from prefix_router.settings.schema import json_schema_text

    print(json_schema_text(), end="")
    return 0


def _explain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s [--config FILE] [--json] [--path PATH] [--header 'NAME: VALUE']... [flags] REQUEST"
    )
    parser.add_argument(
        "request", metavar="REQUEST", help="file with the request body, or - for standard input"
    )
    parser.add_argument("--path", help="path of the request; guessed from the body by default")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        type=_header,
        metavar="'NAME: VALUE'",
        help="a header of the request; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_settings_arguments(parser)


def _explain(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    body = _request_body(arguments.request)
    from prefix_router.explain import run

    return run(settings, body=body, path=arguments.path, headers=arguments.header, as_json=arguments.json)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError(f"expected 'NAME: VALUE', got {text!r}")
    return name.strip(), value.strip()


def _request_body(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from None


def _simulated_vllm_arguments(parser: argparse.ArgumentParser) -> None:
    from prefix_router.simulate.server import add_arguments

    add_arguments(parser)


def _simulated_vllm(arguments: argparse.Namespace) -> int:
    from prefix_router.simulate.server import run

    return run(arguments)


def _demo_arguments(parser: argparse.ArgumentParser) -> None:
    from prefix_router.demo import add_arguments

    add_arguments(parser)


def _demo(arguments: argparse.Namespace) -> int:
    from prefix_router.demo import run

    return run(arguments)


def _stack_arguments(parser: argparse.ArgumentParser) -> None:
    from prefix_router.demo.stack import add_arguments

    add_arguments(parser)


def _stack(arguments: argparse.Namespace) -> int:
    from prefix_router.demo.stack import run

    return run(arguments)


def _simulate_arguments(parser: argparse.ArgumentParser) -> None:
    from prefix_router.fleetsim.command import add_arguments

    add_arguments(parser)


def _simulate(arguments: argparse.Namespace) -> int:
    from prefix_router.fleetsim.command import run

    return run(arguments)


def _analyze_arguments(parser: argparse.ArgumentParser) -> None:
    from prefix_router.analyze.arguments import add_arguments

    add_arguments(parser)


def _analyze(arguments: argparse.Namespace) -> int:
    from prefix_router.analyze.command import run

    return run(arguments)


def _hash_key_arguments(parser: argparse.ArgumentParser) -> None:
    from prefix_router.hash_key import add_arguments

    add_arguments(parser)


def _hash_key(arguments: argparse.Namespace) -> int:
    from prefix_router.hash_key import run

    return run(arguments)


def _completion_arguments(parser: argparse.ArgumentParser) -> None:
    from prefix_router.completion import add_arguments

    add_arguments(parser)


def _completion(arguments: argparse.Namespace) -> int:
    from prefix_router.completion import run

    return run(build_parser(None, every=True), arguments.shell)


def _top_arguments(parser: argparse.ArgumentParser) -> None:
    from prefix_router.top.command import add_arguments

    add_arguments(parser)


def _top(arguments: argparse.Namespace) -> int:
    from prefix_router.top.command import run

    return run(arguments)


def _no_arguments(_parser: argparse.ArgumentParser) -> None:
    """For a command that takes none."""


COMMANDS = (
    Command("serve", "Run the router.", _serve_arguments, _serve),
    Command(
        "check-config",
        "Check a configuration file and list every mistake in it.",
        _check_config_arguments,
        _check_config,
    ),
    Command("schema", "Print the JSON Schema of the configuration file.", _no_arguments, _schema),
    Command(
        "explain",
        "Say which backend a request would go to, why, and which text was hashed.",
        _explain_arguments,
        _explain,
    ),
    Command(
        "simulated-vllm",
        "Run a stand-in vLLM replica: the same HTTP API, no model, no GPU.",
        _simulated_vllm_arguments,
        _simulated_vllm,
    ),
    Command(
        "demo",
        "Compare random with prefix-aware routing on stand-in replicas.",
        _demo_arguments,
        _demo,
    ),
    Command(
        "stack",
        "Run a router, stand-in replicas and Prometheus, to look at.",
        _stack_arguments,
        _stack,
    ),
    Command(
        "simulate",
        "Compare routing strategies on a simulated fleet.",
        _simulate_arguments,
        _simulate,
    ),
    Command(
        "analyze",
        "Say what prefix-aware routing would do for recorded traffic, and what to set.",
        _analyze_arguments,
        _analyze,
    ),
    Command("top", "Watch a running router in the terminal.", _top_arguments, _top),
    Command(
        "hash-key",
        "Print the hash of a key, for the configuration; --generate makes a new key.",
        _hash_key_arguments,
        _hash_key,
    ),
    Command(
        "completion",
        "Print the completion script of a shell.",
        _completion_arguments,
        _completion,
    ),
)


if __name__ == "__main__":
    sys.exit(main())
