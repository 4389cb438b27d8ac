from __future__ import annotations

from collections import Counter

import pytest

from prefix_router.simulate.prompts import render_chat
from prefix_router.simulate.tokens import count
from prefix_router.simulate.workloads import SharedPrefixWorkload

SMALL = SharedPrefixWorkload(prefixes=6, uses=5, prefix_tokens=200, question_tokens=20, seed=3)


def test_each_document_is_asked_about_as_often_as_told_with_different_questions() -> None:
    bodies = [arrival.body for arrival in SMALL.arrivals()]
    documents = Counter(body["messages"][0]["content"] for body in bodies)
    questions = Counter(body["messages"][1]["content"] for body in bodies)
    assert list(documents.values()) == [5] * 6
    assert list(questions.values()) == [1] * 30
    assert SMALL.requests == 30


def test_documents_differ_from_their_beginning_on() -> None:
    documents = {arrival.body["messages"][0]["content"] for arrival in SMALL.arrivals()}
    assert len({document[:16] for document in documents}) == 6


def test_a_prompt_is_as_long_as_told() -> None:
    body = next(SharedPrefixWorkload(prefixes=1).arrivals()).body
    assert count(render_chat(body)) == pytest.approx(8100, abs=20)


def test_the_same_seed_gives_the_same_workload_and_another_seed_another() -> None:
    again = SharedPrefixWorkload(prefixes=6, uses=5, prefix_tokens=200, question_tokens=20, seed=3)
    other = SharedPrefixWorkload(prefixes=6, uses=5, prefix_tokens=200, question_tokens=20, seed=4)
    assert list(again.arrivals()) == list(SMALL.arrivals())
    assert next(other.arrivals()) != next(SMALL.arrivals())


def test_requests_arrive_in_order_at_the_rate_told() -> None:
    workload = SharedPrefixWorkload(400, prefix_tokens=1, question_tokens=1, requests_per_second=50)
    seconds = [arrival.seconds for arrival in workload.arrivals()]
    assert seconds == sorted(seconds)
    assert seconds[-1] == pytest.approx(2000 / 50, rel=0.1)


def test_requests_carry_what_they_are_told_to() -> None:
    body = next(SharedPrefixWorkload(1, output_tokens=9, model="m", stream=False).arrivals()).body
    assert (body["max_tokens"], body["model"], body["stream"]) == (9, "m", False)
    assert "model" not in next(SharedPrefixWorkload(1).arrivals()).body


def test_the_ideal_misses_the_first_question_and_every_ending() -> None:
    workload = SharedPrefixWorkload(1, uses=5, prefix_tokens=800, question_tokens=200)
    assert workload.ideal_hit_rate == pytest.approx(0.8 * 0.8)
