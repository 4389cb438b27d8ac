"""Workloads whose requests begin with texts that others begin with too, or with nothing of the kind."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from statistics import median

import pytest

from prefix_router.fleetsim.capacity import ideal_work
from prefix_router.fleetsim.request import SimulatedRequest
from prefix_router.fleetsim.workloads.catalogue import generate, parse_workload
from prefix_router.fleetsim.workloads.reuse import uses_in_order


def requests_of(text: str, count: int, seed: int = 1) -> list[SimulatedRequest]:
    return generate(parse_workload(text), count, seed)


def beginnings(requests: list[SimulatedRequest], tokens: int) -> Counter[tuple[int, ...]]:
    return Counter(request.blocks[: tokens // 16] for request in requests)


def mean_rate(requests: list[SimulatedRequest]) -> float:
    return len(requests) / requests[-1].arrival_seconds


def test_each_prefix_of_sagemaker_is_used_five_times_within_a_while() -> None:
    requests = requests_of("sagemaker", 1000)
    prefixes = beginnings(requests, 8000)
    assert list(prefixes.values()) == [5] * 200
    places: dict[tuple[int, ...], list[int]] = {}
    for number, request in enumerate(requests):
        places.setdefault(request.blocks[:500], []).append(number)
    # A hundred prefixes are in use at a time, which is five hundred requests.
    assert max(own[-1] - own[0] for own in places.values()) < 600
    assert max(own[-1] - own[0] for own in places.values()) > 300


def test_an_ideal_cache_finds_four_fifths_of_the_prefixes_of_sagemaker() -> None:
    assert ideal_work(requests_of("sagemaker", 1000)).hit_rate == pytest.approx(0.8 * 8000 / 8100, abs=1e-3)


def test_questions_of_sagemaker_have_nothing_in_common() -> None:
    requests = requests_of("sagemaker", 200)
    tails = [block for request in requests for block in request.blocks[500:]]
    assert len(set(tails)) == len(tails)
    assert len({request.session for request in requests}) == 200


@pytest.mark.parametrize("name", ["sagemaker", "documents", "hot_prefix", "unique"])
def test_independent_requests_come_about_once_a_second_and_at_random(name: str) -> None:
    requests = requests_of(name, 2000)
    assert 0.9 < mean_rate(requests) < 1.1
    gaps = [later.arrival_seconds - earlier.arrival_seconds for earlier, later in pairwise(requests)]
    # Half of the gaps of a Poisson process are below 0.69 of the mean.
    assert 0.6 < median(gaps) < 0.8


def test_documents_all_begin_with_one_system_prompt() -> None:
    requests = requests_of("documents", 500)
    assert len(beginnings(requests, 2000)) == 1
    assert list(beginnings(requests, 8000).values()) == [5] * 100


@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_the_hot_prefix_has_its_share(share: float) -> None:
    requests = requests_of(f"hot_prefix:share={share}", 2000)
    (_, hot), *others = beginnings(requests, 4000).most_common()
    assert share - 0.04 < hot / 2000 < share + 0.04
    assert all(uses <= 5 for _, uses in others)
    assert bool(others) == (share < 1)


def test_unique_prompts_share_nothing_and_vary_in_length() -> None:
    requests = requests_of("unique", 2000)
    assert ideal_work(requests).hit_rate == 0
    lengths = [request.prompt_tokens for request in requests]
    assert 900 < median(lengths) < 1100
    assert min(lengths) < 300
    assert max(lengths) > 4000
    assert max(request.prompt_tokens for request in requests_of("unique:most_tokens=1500", 500)) == 1500


def test_the_order_of_uses_begins_with_text_0_and_uses_each_as_often_as_told() -> None:
    order = uses_in_order(23, 5, 3, Random(1))
    assert sorted(Counter(order).values()) == [3, 5, 5, 5, 5]
    assert list(dict.fromkeys(order)) == [0, 1, 2, 3, 4]


def test_with_one_active_text_hardly_any_come_between_its_uses() -> None:
    order = uses_in_order(500, 5, 1, Random(1))
    assert max(abs(number // 5 - text) for number, text in enumerate(order)) <= 2


def test_a_mix_has_its_parts_at_all_times() -> None:
    requests = requests_of("mix", 2000)
    for half in (requests[:1000], requests[1000:]):
        lengths = Counter(request.prompt_tokens for request in half)
        assert 150 < lengths[8100] < 250  # sagemaker: two tenths
        assert 250 < lengths[8050] < 350  # documents: three tenths


def test_the_parts_of_a_mix_share_nothing_with_each_other() -> None:
    requests = requests_of("mix", 500)
    documents = {block for request in requests if request.prompt_tokens == 8050 for block in request.blocks}
    others = {block for request in requests if request.prompt_tokens != 8050 for block in request.blocks}
    assert documents
    assert not documents & others
    sessions = Counter(request.session for request in requests if request.prompt_tokens in (8050, 8100))
    assert set(sessions.values()) == {1}


def test_a_part_of_a_mix_can_be_left_out() -> None:
    requests = requests_of("mix:chat=0,unique=0,documents=0", 50)
    assert {request.prompt_tokens for request in requests} == {8100}
