"""`prefix-router simulate`: workloads under several strategies and loads, on a simulated fleet."""

from __future__ import annotations

from prefix_router.fleetsim.command.arguments import add_arguments
from prefix_router.fleetsim.command.command import run

__all__ = ["add_arguments", "run"]
