"""The flags of `prefix-router simulate`, and the comparison that they ask for."""

from __future__ import annotations

import argparse
import os

from prefix_router.engine.cost import DEFAULT_PROFILE, PROFILES
from prefix_router.fleetsim.command import values
from prefix_router.fleetsim.command.comparison import Comparison
from prefix_router.fleetsim.command.contender import parse_contender
from prefix_router.fleetsim.command.events import parse_events
from prefix_router.fleetsim.command.sources import GeneratedSource
from prefix_router.fleetsim.policies import KEYED_NAMES, POLICY_NAMES
from prefix_router.fleetsim.workloads.catalogue import WORKLOADS
from prefix_router.routing.strategies import STRATEGY_NAMES

DEFAULT_STRATEGIES = ("random", *(name for name in STRATEGY_NAMES if name != "random"))
"""The router's own, with the usual baseline in front."""

DEFAULT_LOADS = (0.5, 0.8, 1.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    width = max(map(len, WORKLOADS))
    parser.epilog = "\n".join(
        [
            "workloads:",
            *(f"  {name:<{width}}  {kind.summary}" for name, kind in WORKLOADS.items()),
            "",
            f"strategies: {', '.join(POLICY_NAMES)}",
            f"with a depth of their own ({', '.join(KEYED_NAMES)}): NAME:auto, NAME:4096 (tokens)",
        ]
    )
    _add_traffic_arguments(parser)
    _add_fleet_arguments(parser)
    add = parser.add_argument
    add(
        "--jobs",
        type=values.count,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes that simulate at the same time (default: one for each processor)",
    )
    add("--json", type=values.new_file, metavar="FILE", help="write the results as JSON")
    add("--report", type=values.new_file, metavar="FILE.html", help="write a report to be read in a browser")


def _add_traffic_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--workload",
        dest="sources",
        action="append",
        type=values.workload,
        metavar="NAME[:PARAMETER=VALUE,...]",
        help="a workload, as listed below; may be repeated (default: sagemaker)",
    )
    add(
        "--trace",
        dest="sources",
        action="append",
        type=values.trace,
        metavar="FILE",
        help="recorded traffic: Mooncake, coding agents (kv-cache-tester), Azure; may be repeated",
    )
    add(
        "--arrivals",
        type=values.arrivals,
        metavar="azure:FILE",
        help="take the arrival times of an Azure trace instead of the workload's own",
    )
    add(
        "--load",
        type=values.loads,
        default=DEFAULT_LOADS,
        metavar="X,...",
        help="arrivals, as shares of what the fleet could just take with ideal caches "
        f"(default: {','.join(f'{load:g}' for load in DEFAULT_LOADS)})",
    )
    add(
        "--requests",
        type=values.count,
        default=12_000,
        metavar="N",
        help="requests of each workload (default: %(default)s)",
    )
    add(
        "--most-prompt-tokens",
        type=values.count,
        metavar="N",
        help="leave out longer prompts, as a model with a shorter context would refuse them",
    )
    add("--seed", type=int, default=1, metavar="N", help="of everything random (default: %(default)s)")


def _add_fleet_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--strategies",
        dest="contenders",
        type=values.contenders,
        default=tuple(map(parse_contender, DEFAULT_STRATEGIES)),
        metavar="A,B:auto,B:4096,...",
        help="what to compare, the baseline first (default: all of the router's own)",
    )
    add(
        "--replicas",
        type=values.count,
        default=7,
        metavar="N",
        help="engines at the start (default: %(default)s)",
    )
    add(
        "--profile",
        choices=sorted(PROFILES),
        default=DEFAULT_PROFILE,
        help="what each engine simulates (default: %(default)s)",
    )
    add(
        "--routers",
        type=values.count,
        default=1,
        metavar="N",
        help="independent routers, each of which sees its part of the traffic only (default: %(default)s)",
    )
    add(
        "--events",
        default="",
        metavar="CHANGE@SECONDS:REPLICA,...",
        help="join@60, leave@90:2, restart@120:0: what happens to replicas (0 and up) in simulated time",
    )
    add(
        "--prefix-tokens",
        type=values.count,
        default=1024,
        metavar="N",
        help="length of a prefix key where the strategy says none (default: %(default)s)",
    )
    add(
        "--concurrency-threshold",
        type=values.count,
        default=64,
        metavar="N",
        help="requests in flight at which prefix_aware looks elsewhere (default: %(default)s)",
    )


def read_arguments(arguments: argparse.Namespace) -> Comparison:
    """The comparison that parsed flags stand for. Raises EventError."""
    return Comparison(
        sources=tuple(arguments.sources or [GeneratedSource("sagemaker")]),
        contenders=arguments.contenders,
        loads=arguments.load,
        replicas=arguments.replicas,
        profile=arguments.profile,
        routers=arguments.routers,
        requests=arguments.requests,
        seed=arguments.seed,
        events=parse_events(arguments.events, arguments.replicas),
        prefix_tokens=arguments.prefix_tokens,
        concurrency_threshold=arguments.concurrency_threshold,
        arrivals=arguments.arrivals,
        most_prompt_tokens=arguments.most_prompt_tokens,
        jobs=arguments.jobs,
        json_file=arguments.json,
        report_file=arguments.report,
    )
