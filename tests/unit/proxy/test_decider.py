from __future__ import annotations

import json
from typing import Any

import pytest
from multidict import CIMultiDict

from prefix_router.proxy.decider import Decider, Subject
from prefix_router.routing.key import PrefixRule
from prefix_router.routing.strategies import build_strategy


def decider(strategy: str = "prefix_aware", **options: Any) -> Decider:
    return Decider(build_strategy(strategy, concurrency_threshold=8), PrefixRule(64), **options)


def read(subject: Decider, body: Any, path: str = "/v1/chat/completions", **headers: str) -> Subject:
    fields = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    return subject.read("POST", path, fields, json.dumps(body).encode())


def test_a_request_is_read_once_into_all_that_a_decision_needs() -> None:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}
    subject = read(decider(), body)
    assert (subject.api, subject.model, subject.stream, subject.repeatable) == ("chat", "m", True, True)
    assert subject.key is not None
    assert subject.continues is None


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_safe_method_may_be_repeated_and_has_no_key(method: str) -> None:
    subject = decider().read(method, "/x", CIMultiDict(), b"")
    assert subject.repeatable
    assert subject.key is None


def test_an_unknown_post_may_not_be_repeated() -> None:
    assert not read(decider(), {}, "/v1/load_lora_adapter").repeatable


def test_a_body_that_is_passed_on_unread_has_no_key_and_is_not_repeated() -> None:
    subject = decider().read("POST", "/v1/audio/transcriptions", CIMultiDict(), None)
    assert (subject.key, subject.repeatable) == (None, False)


@pytest.mark.parametrize(
    ("path", "body", "continues"),
    [
        ("/v1/responses", {"input": "x", "previous_response_id": "resp_1"}, "resp_1"),
        ("/v1/responses/resp_2/cancel", {}, "resp_2"),
        ("/v1/responses", {"input": "x"}, None),
        ("/v1/chat/completions", {"messages": [], "previous_response_id": 3}, None),
    ],
)
def test_what_is_continued_is_found_in_body_or_path(path: str, body: Any, continues: str | None) -> None:
    assert read(decider(), body, path).continues == continues


def test_a_response_is_looked_at_where_it_was_made() -> None:
    assert decider().read("GET", "/v1/responses/resp_3", CIMultiDict(), b"").continues == "resp_3"


@pytest.mark.parametrize(
    ("headers", "session"),
    [
        ({"X_Sid": "s1"}, "s1"),
        ({"Cookie": "a=b; sid=c1"}, "c1"),
        ({"X_Sid": "s1", "Cookie": "sid=c1"}, "s1"),
        ({"Cookie": "a=b"}, None),
        ({"Cookie": "[=;;\x01"}, None),
        ({}, None),
    ],
)
def test_the_session_comes_from_header_or_cookie(headers: dict[str, str], session: str | None) -> None:
    reader = decider("session", session_header="x-sid", session_cookie="sid")
    assert read(reader, {}, **headers).session == session


def test_other_strategies_read_no_session() -> None:
    assert read(decider(session_header="x-sid"), {}, X_Sid="s1").session is None
