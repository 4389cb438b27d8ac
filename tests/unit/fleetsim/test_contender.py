"""Strategies as they are written on the command line."""

from __future__ import annotations

import pytest

from prefix_router import cli
from prefix_router.fleetsim.command.contender import Contender, ContenderError, parse_contender
from prefix_router.fleetsim.policies import KEYED_NAMES, POLICY_NAMES


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_a_name_alone_leaves_the_depth_to_the_comparison(name: str) -> None:
    assert parse_contender(name) == Contender(name, name)


@pytest.mark.parametrize("name", KEYED_NAMES)
def test_a_depth_can_follow_and_stays_in_the_label(name: str) -> None:
    assert parse_contender(f"{name}:auto") == Contender(f"{name}:auto", name, depth_auto=True)
    assert parse_contender(f"{name}:4096") == Contender(f"{name}:4096", name, prefix_tokens=4096)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dice", "there is no strategy 'dice'; there are prefix_aware, "),
        ("", "there is no strategy ''"),
        ("adaptive:auto", "adaptive has no depth to set; prefix_aware, plain_ring, bounded_ring have"),
        ("random:256", "random has no depth to set"),
        ("prefix_aware:", "auto or a number of tokens, not ''"),
        ("prefix_aware:0", "auto or a number of tokens, not '0'"),
        ("prefix_aware:-1", "auto or a number of tokens, not '-1'"),
        ("prefix_aware:1.5", "auto or a number of tokens, not '1.5'"),
        ("prefix_aware:²", "auto or a number of tokens, not '²'"),
    ],
)
def test_what_stands_for_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(ContenderError, match=message):
        parse_contender(text)


def test_the_help_says_how_a_depth_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", "--help"]) == 0
    assert "(prefix_aware, plain_ring, bounded_ring): NAME:auto, NAME:4096" in capsys.readouterr().out
