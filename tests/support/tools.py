"""Programs that the tests of the deployment files run, as `scripts/install_tools.sh` provides them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

TOOLS = ROOT / ".tools" / "bin"


def tool(name: str) -> str:
    """Return the path of a program.

    Without it the test fails, because the script can install it; only where it cannot (no apt-get, so no
    Debian, and not CI) is the test skipped.
    """
    found = shutil.which(name, path=str(TOOLS))
    if found is None:
        message = f"{name} is missing: run scripts/install_tools.sh"
        if shutil.which("apt-get") is None and "CI" not in os.environ:
            pytest.skip(message)
        pytest.fail(message)
    return found
