"""`prefix-router demo`: a fleet of stand-ins, a workload, and what random and prefix-aware routing make of it."""

from __future__ import annotations

from prefix_router.demo.arguments import add_arguments
from prefix_router.demo.command import run

__all__ = ["add_arguments", "run"]
