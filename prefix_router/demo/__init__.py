"""`prefix-router demo`: what random and prefix-aware routing make of a workload, on a fleet of stand-ins."""

from __future__ import annotations

from prefix_router.demo.arguments import add_arguments
from prefix_router.demo.command import run

__all__ = ["add_arguments", "run"]
