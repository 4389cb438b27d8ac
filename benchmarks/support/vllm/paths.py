"""Where real vLLM is found, and where what it leaves is put. All but `KEPT_RESULTS` is ignored by git."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[3]
VLLM_ENVIRONMENT = ROOT / ".venv-vllm"
BUILD = ROOT / "build" / "vllm"
LOGS = BUILD / "logs"
KEPT_RESULTS = ROOT / "benchmarks" / "results"
