"""The flags of `prefix-router analyze`, and the question that they ask."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from prefix_router.analyze.study import DEFAULT_LOADS, Question
from prefix_router.engine.cost import DEFAULT_PROFILE, PROFILES
from prefix_router.fleetsim.command import values

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add = parser.add_argument
    add(
        "files",
        nargs="+",
        metavar="FILE",
        help="request bodies, one a line, or what a router captured (capture.path); - is standard input",
    )
    add(
        "--path",
        help="where plain bodies were sent, such as /v1/completions (default: told by their fields)",
    )
    add(
        "--load",
        type=values.loads,
        metavar="X,...",
        help="arrivals, as shares of what the fleet could just take with ideal caches; the first one is "
        "recommended for (default: as recorded; "
        f"{','.join(f'{load:g}' for load in DEFAULT_LOADS)} where no times were)",
    )
    add("--replicas", type=values.count, default=7, metavar="N", help="engines (default: %(default)s)")
    add(
        "--profile",
        choices=sorted(PROFILES),
        default=DEFAULT_PROFILE,
        help="what each engine simulates (default: %(default)s)",
    )
    add(
        "--concurrency-threshold",
        type=values.count,
        default=64,
        metavar="N",
        help="of the strategies that are compared (default: %(default)s)",
    )
    add(
        "--requests",
        type=values.count,
        default=6000,
        metavar="N",
        help="requests that are simulated, the first ones; sharing is of all (default: %(default)s)",
    )
    add(
        "--output-tokens",
        type=values.count,
        default=256,
        metavar="N",
        help="length of an answer that was not recorded (default: %(default)s)",
    )
    add("--seed", type=int, default=1, metavar="N", help="of everything random (default: %(default)s)")
    add(
        "--jobs",
        type=values.count,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes that simulate at the same time (default: one for each processor)",
    )
    add("--json", type=values.new_file, metavar="FILE", help="write all results as JSON")
    add("--report", type=values.new_file, metavar="FILE.html", help="write a report to be read in a browser")


def read_arguments(arguments: argparse.Namespace) -> Question:
    """The question that parsed flags stand for."""
    return Question(
        files=tuple(arguments.files),
        path=arguments.path,
        loads=arguments.load,
        replicas=arguments.replicas,
        profile=arguments.profile,
        requests=arguments.requests,
        output_tokens=arguments.output_tokens,
        concurrency_threshold=arguments.concurrency_threshold,
        seed=arguments.seed,
        jobs=arguments.jobs,
    )
