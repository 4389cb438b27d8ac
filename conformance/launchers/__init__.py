"""Routers that the suite can start, or use as they are."""

from __future__ import annotations

from conformance.launchers.base import Launcher
from conformance.launchers.prefix_router import PrefixRouter
from conformance.launchers.smg import Smg
from conformance.launchers.vllm_router import VllmRouter

LAUNCHERS: dict[str, type[Launcher]] = {
    launcher.name: launcher for launcher in (PrefixRouter, VllmRouter, Smg)
}
"""By the name that `--start` takes."""
