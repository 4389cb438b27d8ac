"""What `--help` says of a command: all of it is there, and its examples can be typed."""

from __future__ import annotations

import shlex

import pytest

from prefix_router import cli
from prefix_router.manual import MANUALS

COMMANDS = [command.name for command in cli.COMMANDS]


def test_every_command_has_its_page_and_no_page_is_left_over() -> None:
    assert set(MANUALS) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_when_to_use_it_shows_examples_and_exit_statuses(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command, "--help"]) == 0
    printed = capsys.readouterr().out
    assert MANUALS[command].about[:40] in printed
    for line, what in MANUALS[command].examples:
        assert line in printed
        assert what in printed
    assert "exit status:\n  0 " in printed


@pytest.mark.parametrize("line", [line for manual in MANUALS.values() for line, _ in manual.examples])
def test_an_example_is_taken_by_the_program(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, command, *arguments = shlex.split(line)
    assert program == "prefix-router"
    try:
        cli.build_parser(command).parse_args([command, *arguments])
    except SystemExit:
        pytest.fail(capsys.readouterr().err)
