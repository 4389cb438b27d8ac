"""config/systemd: checked by systemd's own verifier, and held against what the program does."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prefix_router.cli import build_parser
from tests.support.tools import ROOT

UNIT = ROOT / "config" / "systemd" / "prefix-router.service"
PROGRAM = "/opt/prefix-router/bin/prefix-router"


def systemd_analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        assert "CI" not in os.environ, "systemd-analyze is missing"
        pytest.skip("systemd-analyze is missing: this is no machine with systemd")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text(encoding="utf-8"))
    return unit["Service"]


def test_the_verifier_has_no_complaint(tmp_path: Path) -> None:
    # It wants to see the programs: the unit's own are not installed here.
    text = UNIT.read_text(encoding="utf-8").replace(PROGRAM, sys.executable)
    copy = tmp_path / UNIT.name
    copy.write_text(text, encoding="utf-8")
    done = systemd_analyze("verify", "--man=no", str(copy))
    assert (done.returncode, done.stderr) == (0, "")


def test_it_is_shut_in_as_far_as_a_network_service_can_be() -> None:
    done = systemd_analyze("security", "--offline=true", "--threshold=20", str(UNIT))
    assert done.returncode == 0, done.stdout[-500:]


@pytest.mark.parametrize("line", ["ExecStart", "ExecStartPre"])
def test_its_commands_are_commands_of_the_program(line: str) -> None:
    program, command, *arguments = shlex.split(service()[line])
    assert program == PROGRAM
    parsed = build_parser(command).parse_args([command, *arguments])
    folder = f"/etc/{service()['ConfigurationDirectory']}"
    assert f"{folder}/prefix-router.yaml" in vars(parsed).values()


def test_it_hears_what_the_router_says_of_itself() -> None:
    """`tests/integration/test_lifecycle.py` shows that the router says it."""
    assert service()["Type"] == "notify"
    assert service()["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert int(service()["WatchdogSec"]) > 0
