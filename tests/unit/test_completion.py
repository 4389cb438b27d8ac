"""The completion script, asked by a real shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from prefix_router import cli
from prefix_router.completion import SHELLS


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", "bash"]) == 0
    return capsys.readouterr().out


def completed(script: str, folder: Path, *words: str) -> set[str]:
    """What bash offers for the last word."""
    file = folder / "completion.bash"
    file.write_text(script, encoding="utf-8")
    line = " ".join(("prefix-router", *words))
    ask = f"""
        source {file}
        COMP_WORDS=(prefix-router {" ".join(f"'{word}'" for word in words)})
        COMP_CWORD={len(words)}
        COMP_LINE='{line}'
        COMP_POINT=${{#COMP_LINE}}
        $(complete -p prefix-router | sed 's/.*-F \\([^ ]*\\).*/\\1/') prefix-router '{words[-1]}' ''
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", ask], capture_output=True, text=True, check=True, cwd=folder, timeout=30
    )
    return {line.strip() for line in done.stdout.splitlines() if line.strip()}


def test_bash_offers_the_commands(script: str, tmp_path: Path) -> None:
    assert {"serve", "simulate", "simulated-vllm"} <= completed(script, tmp_path, "s")


def test_bash_offers_the_flags_of_a_command_and_its_choices(script: str, tmp_path: Path) -> None:
    assert {"--config", "--concurrency-threshold"} <= completed(script, tmp_path, "serve", "--con")
    assert "--replicas" not in completed(script, tmp_path, "serve", "--")
    assert "prefix_aware" in completed(script, tmp_path, "serve", "--strategy", "pre")


def test_bash_offers_files_where_a_file_is_wanted(script: str, tmp_path: Path) -> None:
    (tmp_path / "router.yaml").touch()
    assert "router.yaml" in completed(script, tmp_path, "check-config", "rou")
    assert "router.yaml" in completed(script, tmp_path, "serve", "--config", "rou")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    assert "prefix-router" in capsys.readouterr().out


def test_another_shell_is_a_wrong_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "dos"]) == 2
    assert "bash" in capsys.readouterr().err
