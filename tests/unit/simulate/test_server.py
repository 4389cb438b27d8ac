from __future__ import annotations

import argparse
import socket

import pytest

from prefix_router.simulate.server import SimulatedVllm, add_arguments, run
from prefix_router.simulate.settings import StandInSettings


def parse(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(flags)


def test_a_port_in_use_is_a_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(parse("--port", str(port))) == 1
    message = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}" in message
    assert "Traceback" not in message


def test_settings_that_contradict_each_other_are_a_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(parse("--kv-tokens", "8")) == 2
    assert "cannot hold a prompt and an answer" in capsys.readouterr().err


async def test_two_stand_ins_live_side_by_side_and_know_their_urls() -> None:
    async with SimulatedVllm() as one, SimulatedVllm() as other:
        assert one.url != other.url
        assert one.url.startswith("http://127.0.0.1:")
        assert not one.url.endswith(":0")


async def test_an_ipv6_address_stands_in_brackets() -> None:
    async with SimulatedVllm(host="::1") as stand_in:
        assert stand_in.url.startswith("http://[::1]:")


async def test_settings_reach_the_engine() -> None:
    settings = StandInSettings(profile="llama-3.1-8b-h100", block_size=128, kv_tokens=1280)
    engine = SimulatedVllm(settings).engine
    assert engine.profile.name == "llama-3.1-8b-h100"
    assert engine.limits.block_size == 128
    assert engine.total_blocks == 10
