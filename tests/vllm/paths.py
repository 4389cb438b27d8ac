"""Where the suite finds and puts things. All of it but `KEPT_RESULTS` is ignored by git."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
VLLM_ENVIRONMENT = ROOT / ".venv-vllm"
BUILD = ROOT / "build" / "vllm"
LOGS = BUILD / "logs"
KEPT_RESULTS = ROOT / "benchmarks" / "results"
