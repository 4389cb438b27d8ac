from __future__ import annotations

import json
from typing import Any

import pytest

from prefix_router.build import policy_of, probe_options_of
from prefix_router.settings.load import load_text
from prefix_router.settings.model import Settings
from prefix_router.tokenization import HeadTokenizer, TokenizerError


def settings(**sections: Any) -> Settings:
    return load_text(json.dumps({"backends": [{"url": "h:1"}], **sections}), "x.yaml", {})


def test_a_policy_says_what_the_settings_say() -> None:
    policy = policy_of(
        settings(
            routing={"strategy": "random"},
            retry={"max_attempts": 2},
            limits={"max_body_bytes": 2048},
            timeouts={"connect_seconds": 1, "first_byte_seconds": 2, "idle_seconds": 3},
        )
    )
    assert policy.decider.strategy.name == "random"
    assert (policy.max_attempts, policy.limits.max_body_bytes) == (2, 2048)
    timeouts = policy.timeouts
    assert (timeouts.connect_seconds, timeouts.first_byte_seconds, timeouts.idle_seconds) == (1, 2, 3)


def test_a_strategy_with_state_is_carried_on_while_its_name_stays() -> None:
    first = policy_of(settings(routing={"strategy": "round_robin"}))
    second = policy_of(settings(routing={"strategy": "round_robin"}, retry={"max_attempts": 1}), first)
    assert second.decider.strategy is first.decider.strategy
    other = policy_of(settings(routing={"strategy": "random"}), second)
    assert other.decider.strategy.name == "random"
    back = policy_of(settings(routing={"strategy": "round_robin"}), other)
    assert back.decider.strategy is not first.decider.strategy


def test_a_strategy_with_settings_takes_the_new_ones() -> None:
    first = policy_of(settings())
    second = policy_of(settings(routing={"concurrency_threshold": 1}), first)
    assert second.decider.strategy is not first.decider.strategy


def test_a_tokenizer_is_read_once_for_each_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    read: list[str] = []

    def load(path: Any) -> object:
        read.append(path.name)
        if path.name == "bad.json":
            raise TokenizerError("cannot read it")
        return object()

    monkeypatch.setattr("prefix_router.tokenization.load_tokenizer", load)
    for name in ("one.json", "two.json", "bad.json"):
        (tmp_path / name).write_text("{}")

    def using(name: str) -> Settings:
        return settings(routing={"prefix": {"tokenizer": str(tmp_path / name)}})

    first = policy_of(using("one.json"))
    second = policy_of(using("one.json"), first)
    assert isinstance(first.decider.encoder, HeadTokenizer)
    assert second.decider.encoder is first.decider.encoder
    third = policy_of(using("two.json"), second)
    assert third.decider.encoder is not second.decider.encoder
    assert read == ["one.json", "two.json"]
    assert policy_of(settings(), third).decider.encoder is None
    with pytest.raises(TokenizerError):
        policy_of(using("bad.json"), third)


def test_probe_options_say_what_the_settings_say() -> None:
    options = probe_options_of(settings(health={"path": "/up", "interval_seconds": 2}))
    assert (options.health_path, options.health_interval_seconds) == ("/up", 2)
