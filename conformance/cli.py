"""The command line: `python -m conformance`.

    python -m conformance --start prefix_router
    python -m conformance --start vllm-router --only 'A*,C3' --json result.json
    python -m conformance --target http://127.0.0.1:8000 --backend-ports 9101,9102,9103

With `--target` the suite's backends come first: start the router against the addresses it prints. The exit
status is 0 when nothing failed, 1 when a case failed or broke, 2 when nothing could be run.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from conformance.launchers import LAUNCHERS
from conformance.launchers.base import Launcher, StartError
from conformance.launchers.external import External, stated_profile
from conformance.model import Case, CaseResult, Priority, Verdict
from conformance.registry import all_cases, select
from conformance.report import as_json, as_line, as_markdown, summary
from conformance.runner import Runner


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    options = _parser().parse_args(arguments)
    cases = select(all_cases(), options.only, options.priority)
    if options.list:
        for case in cases:
            print(f"{case.id:<4} {case.priority.value}  {case.title}: {case.expectation}")
        return 0
    if not cases:
        print("conformance: no case matches", file=sys.stderr)
        return 2
    if options.start:
        launcher: Launcher = LAUNCHERS[options.start]()
    else:
        launcher = External(
            *_address(options.target),
            admin=_address(options.admin) if options.admin else None,
            pid=options.pid,
            settings=options.settings,
        )
    try:
        results = asyncio.run(_run(launcher, options.backend_ports, cases))
    except (StartError, OSError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    version = launcher.version()
    print(f"\n{launcher.name} {version}: {summary(results)}")
    if options.json:
        options.json.write_text(as_json(results, launcher.name, version), encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(as_markdown(results, launcher.name, version), encoding="utf-8")
    return exit_status(results)


def exit_status(results: Sequence[CaseResult]) -> int:
    """Return 1 when a case failed or broke, else 0."""
    return int(any(result.verdict in (Verdict.FAIL, Verdict.ERROR) for result in results))


async def _run(launcher: Launcher, ports: Sequence[int], cases: Sequence[Case]) -> list[CaseResult]:
    runner = Runner(launcher, ports)
    if isinstance(launcher, External):
        await runner.start_backends()
        urls = " ".join(backend.url for backend in runner.backends)
        print(f"backends are up: {urls}\nwaiting for the router {launcher.version()}", flush=True)
    return await runner.run(cases, lambda result: print(as_line(result), flush=True))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m conformance", description="Try a router in front of vLLM, over real sockets."
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--target", metavar="URL", help="a router that runs already")
    which.add_argument("--start", choices=sorted(LAUNCHERS), help="a router that the suite starts and stops")
    which.add_argument("--list", action="store_true", help="show the cases and do nothing")
    parser.add_argument("--admin", metavar="URL", help="prefix_router's admin interface of the target")
    parser.add_argument("--pid", type=int, help="process id of the target, to read its memory")
    parser.add_argument(
        "--settings",
        type=stated_profile,
        metavar="NAME=VALUE,...",
        help="what the target was started with, in the words of conformance/profile.py",
    )
    parser.add_argument(
        "--backend-ports",
        type=_ports,
        default=(0, 0, 0),
        metavar="PORT,PORT,PORT",
        help="where the suite's backends listen; free ports by default",
    )
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=[], metavar="PATTERN,...", help="such as A1,B*"
    )
    parser.add_argument("--priority", type=_priorities, default=[], metavar="P0,P1", help="only these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the results as Markdown")
    return parser


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url if "//" in url else f"//{url}")
    return parts.hostname or "127.0.0.1", parts.port or 80


def _ports(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _priorities(text: str) -> list[Priority]:
    return [Priority(part) for part in text.split(",")]
