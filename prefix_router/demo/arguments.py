"""The flags of `prefix-router demo`, and the plan they make."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from prefix_router.engine.cost import DEFAULT_PROFILE, PROFILES
from prefix_router.simulate.workloads import SharedPrefixWorkload

MODEL = "simulated-model"
STRATEGIES = ("random", "prefix_aware")
"""What is compared, in this order: the baseline first."""

OUTPUT_TOKENS = 16
"""Enough to see a stream. Each token costs this machine, not the simulated one, several packets."""

ROUTER_PORT = 8000
ADMIN_PORT = 9090


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What one demo does.

    once: stop after the comparison, instead of staying up with the last strategy.
    port, admin_port: of the router; 0 for any free one.
    time_scale: simulated seconds per second.
    """

    once: bool
    as_json: bool
    replicas: int
    profile: str
    time_scale: float
    port: int
    admin_port: int
    workload: SharedPrefixWorkload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    workload = SharedPrefixWorkload(prefixes=100, requests_per_second=18.0)
    add = parser.add_argument
    add("--once", action="store_true", help="stop after the comparison instead of staying up until Ctrl-C")
    add("--json", action="store_true", help="print JSON and nothing else on standard output")
    add("--replicas", type=_count, default=7, metavar="N", help="stand-in replicas (default: %(default)s)")
    add(
        "--profile",
        choices=sorted(PROFILES),
        default=DEFAULT_PROFILE,
        help="what each replica simulates (default: %(default)s)",
    )
    add(
        "--time-scale",
        type=_number,
        default=2.5,
        metavar="X",
        help="how many times faster than the hardware; on a slow machine a high one adds the machine's own "
        "delays to the result (default: %(default)s)",
    )
    add(
        "--port",
        type=int,
        metavar="N",
        help=f"the router's port, 0 for any free one (default: {ROUTER_PORT}; with --once any free one)",
    )
    add(
        "--admin-port",
        type=int,
        metavar="N",
        help=f"its admin port, 0 for any free one (default: {ADMIN_PORT}; with --once any free one)",
    )
    add(
        "--prefixes",
        type=_count,
        default=workload.prefixes,
        metavar="N",
        help=f"documents of {workload.prefix_tokens} tokens, each asked {workload.uses} times "
        "(default: %(default)s)",
    )
    add(
        "--requests-per-second",
        type=_number,
        default=workload.requests_per_second,
        metavar="X",
        help="mean rate of arrival, in simulated time (default: %(default)s)",
    )
    add("--seed", type=int, default=0, help="of the workload (default: %(default)s)")


def read_arguments(arguments: argparse.Namespace) -> DemoPlan:
    """The plan that parsed flags stand for."""
    once: bool = arguments.once
    return DemoPlan(
        once=once,
        as_json=arguments.json,
        replicas=arguments.replicas,
        profile=arguments.profile,
        time_scale=arguments.time_scale,
        port=_port(arguments.port, ROUTER_PORT, once=once),
        admin_port=_port(arguments.admin_port, ADMIN_PORT, once=once),
        workload=SharedPrefixWorkload(
            prefixes=arguments.prefixes,
            requests_per_second=arguments.requests_per_second,
            output_tokens=OUTPUT_TOKENS,
            model=MODEL,
            seed=arguments.seed,
        ),
    )


def _port(given: int | None, usual: int, *, once: bool) -> int:
    """A run that nobody talks to needs no port that one could remember."""
    if given is not None:
        return given
    return 0 if once else usual


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def _number(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value
