from __future__ import annotations

import json

import pytest

from benchmarks.validation.comparison import SHOWN_MISMATCHES, compare
from benchmarks.validation.sequence import Kind
from benchmarks.validation.served import Predicted, Served


def served(number: int, cached: int, backend: str | None = None, kind: Kind = Kind.NEW) -> Served:
    return Served(number, kind, (5,) * 100, (6,), cached, backend)


def test_requests_that_agree_are_counted_by_kind() -> None:
    compared = compare(
        [served(0, 0), served(1, 64, kind=Kind.REPEAT), served(2, 32, kind=Kind.REPEAT)],
        [Predicted(0), Predicted(64), Predicted(32)],
    )
    assert (compared.requests, compared.matches, compared.with_hits) == (3, 3, 2)
    assert (compared.prompt_tokens, compared.cached_tokens) == (300, 96)
    assert compared.by_kind == {"new": (1, 1), "repeat": (2, 2)}
    assert compared.mismatches == ()


def test_other_cached_tokens_are_a_mismatch() -> None:
    compared = compare([served(0, 64), served(1, 64)], [Predicted(64), Predicted(32)])
    assert compared.matches == 1
    [mismatch] = compared.mismatches
    assert (mismatch.number, mismatch.vllm_cached_tokens, mismatch.model_cached_tokens) == (1, 64, 32)
    assert compared.by_kind == {"new": (1, 2)}


def test_another_replica_is_a_mismatch_even_with_equal_tokens() -> None:
    compared = compare([served(0, 0, "a"), served(1, 0, "a")], [Predicted(0, "a"), Predicted(0, "b")])
    [mismatch] = compared.mismatches
    assert (mismatch.vllm_backend, mismatch.model_backend) == ("a", "b")


def test_a_request_that_one_side_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        compare([served(0, 0), served(1, 0)], [Predicted(0)])


def test_the_document_is_json_and_bounded() -> None:
    many = 3 * SHOWN_MISMATCHES
    compared = compare([served(number, 32) for number in range(many)], [Predicted(0)] * many)
    document = json.loads(json.dumps(compared.document()))
    assert document["matches"] == 0
    assert len(document["mismatches"]) == SHOWN_MISMATCHES
    assert document["mismatches"][0]["vllm_cached_tokens"] == 32
