from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_router.openai_api.engine_metrics import EngineMetrics, parse_engine_metrics

CURRENT = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 77.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 12288.0
vllm:prefix_cache_queries_created{engine="0",model_name="tiny"} 1.76e+09
vllm:external_prefix_cache_queries_total{engine="0",model_name="tiny"} 99.0
vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 8.192e+03
vllm:prefix_cache_hits_created{engine="0",model_name="tiny"} 1.76e+09
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",mamba_block_size="512"} 1.0
"""


def test_the_figures_of_one_engine() -> None:
    assert parse_engine_metrics(CURRENT) == EngineMetrics(3.0, 2.0, 0.25, 12288.0, 8192.0, 16)


def test_several_engines_add_up_and_their_cache_use_is_the_mean() -> None:
    second = CURRENT.replace(b'engine="0"', b'engine="1"').replace(b"0.25", b"0.75")
    assert parse_engine_metrics(CURRENT + second) == EngineMetrics(6.0, 4.0, 0.5, 24576.0, 16384.0, 16)


OLD_V0 = b"""\
vllm:num_requests_running 1
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:gpu_prefix_cache_queries{model_name="m"} 64
vllm:gpu_prefix_cache_hits{model_name="m"} 32
"""


def test_older_names_are_understood() -> None:
    assert parse_engine_metrics(OLD_V0) == EngineMetrics(1.0, None, 0.5, 64.0, 32.0, None)
    with_total = OLD_V0.replace(b"queries{", b"queries_total{").replace(b"hits{", b"hits_total{")
    assert parse_engine_metrics(with_total) == parse_engine_metrics(OLD_V0)
    without_gpu = OLD_V0.replace(b"gpu_prefix", b"prefix")
    assert parse_engine_metrics(without_gpu) == parse_engine_metrics(OLD_V0)


def test_a_version_that_exports_old_and_new_names_is_not_counted_twice() -> None:
    assert parse_engine_metrics(OLD_V0 + CURRENT) == EngineMetrics(4.0, 2.0, 0.25, 12288.0, 8192.0, 16)


@pytest.mark.parametrize(
    "line",
    [
        b'vllm:num_requests_running{model_name="a \\"b\\" } 9 {c,d="} 3.0',
        b'vllm:num_requests_running{model_name="caf\xc3\xa9"}\t3.0 1760000000000',
        b"vllm:num_requests_running{} 3",
        b"vllm:num_requests_running   3e0\r",
        b'# a comment\nvllm:num_requests_running{engine="0"} 3',
    ],
)
def test_every_legal_way_to_write_a_sample_is_read(line: bytes) -> None:
    assert parse_engine_metrics(line + b"\n").requests_running == 3.0
    assert parse_engine_metrics(b"other 1\n" + line).requests_running == 3.0


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"vllm:num_requests_running",
        b"vllm:num_requests_running{",
        b'vllm:num_requests_running{engine="0} 3',
        b'vllm:num_requests_running{engine="0"\n} 3',
        b"vllm:num_requests_running three",
        b"vllm:num_requests_running NaN",
        b"vllm:num_requests_running +Inf",
        b"vllm:num_requests_running -1",
        b"# HELP vllm:num_requests_running 3",
        b'x{y="vllm:num_requests_running 3"} 4',
        b"vllm:num_requests_running_total 3",
    ],
)
def test_what_is_not_a_sample_of_that_name_is_not_read(line: bytes) -> None:
    assert parse_engine_metrics(line).requests_running is None


@pytest.mark.parametrize(
    "labels",
    [b"", b'{block_size="None"}', b'{block_size="0"}', b'{block_size=""}', b'{hash_block_size="16"}'],
)
def test_an_unusable_block_size_is_none(labels: bytes) -> None:
    assert parse_engine_metrics(b"vllm:cache_config_info" + labels + b" 1").block_size_tokens is None


def test_the_block_size_may_stand_anywhere_among_the_labels() -> None:
    line = b'vllm:cache_config_info{a="b", block_size="128"} 1'
    assert parse_engine_metrics(line).block_size_tokens == 128


PIECES = st.sampled_from(
    [
        b"vllm:num_requests_running",
        b"vllm:cache_config_info",
        b"{",
        b"}",
        b'"',
        b"\\",
        b"\n",
        b" 3",
        b'block_size="',
    ]
)


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=40).map(b"".join)))
def test_garbage_never_raises(text: bytes) -> None:
    parse_engine_metrics(text)
