"""Ports, processors and file limits of the machine that the programs run on."""

from __future__ import annotations

import os
import platform
import resource
import socket


def free_port() -> int:
    """Return a TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def raise_file_limit(wanted: int) -> None:
    """Allow this process `wanted` open files, as far as the hard limit lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))


def step_aside() -> None:
    """Keep this process and its children on the last processor, at lower priority: the router comes first."""
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) > 1:
        os.sched_setaffinity(0, processors[-1:])
    os.nice(5)


def description() -> str:
    """Return what the numbers were measured on, in a line."""
    return (
        f"{os.cpu_count()} CPUs, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    )
