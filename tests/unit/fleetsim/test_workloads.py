"""What holds for every workload."""

from __future__ import annotations

import pytest

from prefix_router.fleetsim.request import SimulatedRequest, check
from prefix_router.fleetsim.workloads.catalogue import (
    WORKLOADS,
    WorkloadError,
    generate,
    parameters,
    parse_workload,
)

every_workload = pytest.mark.parametrize("name", WORKLOADS)


def requests_of(text: str, count: int = 300, seed: int = 1) -> list[SimulatedRequest]:
    return generate(parse_workload(text), count, seed)


def test_the_workloads_are_those_that_are_documented() -> None:
    assert list(WORKLOADS) == [
        *("sagemaker", "short_chats", "documents", "hot_prefix", "chat", "agents", "unique", "mix")
    ]


@every_workload
def test_there_are_as_many_requests_as_asked_for(name: str) -> None:
    assert [len(requests_of(name, count)) for count in (1, 7, 300)] == [1, 7, 300]


@every_workload
def test_requests_contradict_nothing_and_come_in_order_of_arrival(name: str) -> None:
    requests = requests_of(name)
    for request in requests:
        check(request)
    times = [request.arrival_seconds for request in requests]
    assert times == sorted(times)


@every_workload
def test_one_seed_always_gives_the_same_requests_and_another_seed_others(name: str) -> None:
    assert requests_of(name) == requests_of(name)
    assert requests_of(name, seed=2) != requests_of(name)


@every_workload
def test_an_equal_id_means_an_equal_beginning(name: str) -> None:
    before: dict[int, tuple[int, ...]] = {}
    for request in requests_of(name, 100):
        full = request.blocks[: request.prompt_tokens // 16] + request.output_blocks
        for number, block in enumerate(full):
            assert (
                before.setdefault(block, full[max(number - 1, 0) : number])
                == full[max(number - 1, 0) : number]
            )


@every_workload
def test_the_first_user_turn_ends_within_the_prompt(name: str) -> None:
    for request in requests_of(name):
        assert request.user_turn_tokens is not None
        assert 0 < request.user_turn_tokens <= request.prompt_tokens


@every_workload
def test_parameters_are_numbers_with_defaults_and_are_explained(name: str) -> None:
    kind = WORKLOADS[name]
    assert parameters(kind)
    for parameter, default in parameters(kind).items():
        assert isinstance(default, int | float)
        assert f"{parameter}" in (kind.__doc__ or "")
    assert kind.summary


def test_parameters_can_be_given_on_the_command_line() -> None:
    requests = requests_of("sagemaker:prefix_tokens=160,tail_tokens=16,output_tokens=3")
    assert {(request.prompt_tokens, request.output_tokens) for request in requests} == {(176, 3)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "there is no workload 'nonsense'; there are sagemaker, short_chats"),
        ("", "there is no workload ''"),
        ("sagemaker:colour=3", "sagemaker has no parameter 'colour'; it has prefix_tokens, uses"),
        ("sagemaker:uses", "uses of sagemaker must be a whole number, got ''"),
        ("sagemaker:uses=2.5", "uses of sagemaker must be a whole number, got '2.5'"),
        ("sagemaker:uses=0", "sagemaker: uses must be at least 1, got 0"),
        ("hot_prefix:share=many", "share of hot_prefix must be a number, got 'many'"),
        ("hot_prefix:share=1.5", "hot_prefix: share must be from 0 to 1, got 1.5"),
        ("hot_prefix:share=nan", "hot_prefix: share must be from 0 to 1, got nan"),
        ("documents:question_tokens=0", "question_tokens must be at least 1"),
        ("unique:most_tokens=0", "most_tokens must be at least 1"),
        ("chat:turns=0.5", "turns must be at least 1, got 0.5"),
        ("chat:turns=nan", "turns must be at least 1, got nan"),
        ("short_chats:system_tokens=2000", "system_tokens must be below most_tokens"),
        ("agents:context_tokens=20000", "context_tokens must be at least twice the preamble"),
        ("agents:subagent_share=-1", "subagent_share must be from 0 to 1"),
        ("chat:pause_sigma=1000", "pause_sigma must be from 0 to 5, got 1000"),
        ("unique:prompt_sigma=-1", "prompt_sigma must be from 0 to 5, got -1"),
        ("mix:chat=nan", "the parts of a mix cannot be negative"),
        ("mix:chat=-1", "the parts of a mix cannot be negative, nor all of them 0"),
        ("mix:chat=0,documents=0,sagemaker=0,unique=0", "nor all of them 0"),
    ],
)
def test_what_cannot_be_is_said(text: str, message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        parse_workload(text)
    assert message in str(error.value)
