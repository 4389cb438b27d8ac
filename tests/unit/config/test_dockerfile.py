"""The Dockerfile: linted, and held against what the rest of the repository expects of the image."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.support.compose import DOCKERFILE, dockerfile_instruction, load_services
from tests.support.tools import ROOT

TEXT = DOCKERFILE.read_text(encoding="utf-8")


def copied_from_the_checkout() -> list[str]:
    lines = re.findall(r"^COPY (?!--from)(.*)$", TEXT, flags=re.MULTILINE)
    return [source.rstrip("/") for line in lines for source in line.split()[:-1]]


def test_the_linter_has_no_complaint() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, "--no-color", "--failure-threshold", "style", DOCKERFILE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_both_stages_use_one_pinned_python_that_the_project_supports() -> None:
    [image] = re.findall(r"^ARG PYTHON_IMAGE=(.*)$", TEXT, flags=re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", TEXT, flags=re.MULTILINE)) == {"${PYTHON_IMAGE}"}
    [version] = re.findall(r"^python:(\d+\.\d+)\.\d+-slim-\w+$", image)
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"Programming Language :: Python :: {version}"' in pyproject


def test_all_that_is_copied_is_in_the_checkout_and_in_the_build_context() -> None:
    ignore_file = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line.removeprefix("!") for line in ignore_file if line.startswith("!")}
    assert "*" in ignore_file
    assert {source.rstrip("*") for source in copied_from_the_checkout()} == kept
    assert all((ROOT / source).exists() for source in copied_from_the_checkout() if not source.endswith("*"))


def test_the_container_runs_as_a_numbered_user_that_is_not_root() -> None:
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", dockerfile_instruction("USER"))


def test_by_default_it_serves_the_configuration_that_compose_mounts() -> None:
    assert json.loads(dockerfile_instruction("ENTRYPOINT")) == ["prefix-router"]
    assert tuple(json.loads(dockerfile_instruction("CMD"))) == load_services()["router"].command


def test_its_ports_and_health_check_are_those_of_the_router_in_compose() -> None:
    router = load_services()["router"]
    assert dockerfile_instruction("EXPOSE").split() == [str(port) for port in router.listens_on]
    check = json.loads(dockerfile_instruction("HEALTHCHECK").partition("CMD ")[2])
    assert tuple(check) == router.healthcheck
