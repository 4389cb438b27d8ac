from __future__ import annotations

import argparse

import pytest

from prefix_router.simulate.settings import StandInSettings, add_arguments, read_arguments


def parse(*flags: str) -> StandInSettings:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    return read_arguments(parser.parse_args(flags))


def test_no_flags_mean_the_defaults() -> None:
    assert parse() == StandInSettings()


def test_every_flag_reaches_its_setting() -> None:
    settings = parse(
        *("--model", "base", "--model", "adapter", "--profile", "llama-3.1-8b-h100"),
        *("--time-scale", "2.5", "--block-size", "128", "--kv-tokens", "9999", "--max-model-len", "512"),
        *("--max-num-queued-reqs", "3", "--output-tokens", "5", "--seed", "6", "--startup-delay", "7"),
        *("--runner", "pooling", "--enable-auto-tool-choice", "--api-key", "one", "--api-key", "two"),
    )
    assert settings == StandInSettings(
        models=("base", "adapter"),
        profile="llama-3.1-8b-h100",
        time_scale=2.5,
        block_size=128,
        kv_tokens=9999,
        max_model_len=512,
        max_num_queued_reqs=3,
        output_tokens=5,
        seed=6,
        startup_delay_seconds=7.0,
        runner="pooling",
        enable_auto_tool_choice=True,
        api_keys=("one", "two"),
    )


@pytest.mark.parametrize(
    "flags",
    [
        ("--time-scale", "0"),
        ("--time-scale", "x"),
        ("--kv-tokens", "0"),
        ("--profile", "none"),
        ("--seed", "x"),
    ],
)
def test_a_flag_that_makes_no_sense_is_refused(flags: tuple[str, str]) -> None:
    with pytest.raises(argparse.ArgumentError):
        parse(*flags)


def test_the_context_is_what_model_and_cache_allow() -> None:
    assert StandInSettings().context_tokens == 131_072
    assert StandInSettings(max_model_len=4096).context_tokens == 4096
    assert StandInSettings(kv_tokens=1000, block_size=16).context_tokens == 992


def test_a_context_without_room_for_an_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot hold a prompt and an answer"):
        StandInSettings(kv_tokens=15, block_size=16)


def test_a_stand_in_without_a_model_is_refused() -> None:
    with pytest.raises(ValueError, match="model name"):
        StandInSettings(models=())
