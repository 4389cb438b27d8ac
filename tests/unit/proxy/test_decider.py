from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from multidict import CIMultiDict

from prefix_router.openai_api.condense import LARGE_BYTES
from prefix_router.proxy.blocks import Blocks
from prefix_router.proxy.decider import Decider, Subject
from prefix_router.routing.decision import Query
from prefix_router.routing.depth import Depth
from prefix_router.routing.key import PrefixRule, PrefixUnit
from prefix_router.routing.strategies import build_strategy
from tests.support.fleets import fleet_of, member


def decider(strategy: str = "prefix_aware", unit: PrefixUnit = PrefixUnit.TOKENS, **options: Any) -> Decider:
    return Decider(build_strategy(strategy, concurrency_threshold=8), PrefixRule(64, unit), **options)


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


def chat(more: str) -> bytes:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": more}]
    return json.dumps({"messages": turns, "stream": True, "model": "m"}).encode()


@pytest.mark.parametrize("unit", PrefixUnit)
async def test_a_body_is_the_same_to_the_router_however_large_it_is_and_however_it_is_kept(
    unit: PrefixUnit,
) -> None:
    subject = decider(unit=unit)
    small, large = chat("x" * 100), chat("x" * 3 * LARGE_BYTES)
    headers = CIMultiDict({"Content-Type": "application/json"})
    blocks = Blocks()
    blocks.append(large)
    asked = ("POST", "/v1/chat/completions", headers)
    expected = subject.read(*asked, small)
    assert (expected.model, expected.stream, expected.key is not None) == ("m", True, True)
    assert subject.read(*asked, large) == expected
    for body in (small, large, blocks):
        assert await subject.read_by_turns(*asked, body) == expected


async def test_others_run_while_a_large_body_is_read() -> None:
    ran = []

    async def others() -> None:
        for _ in range(5):
            ran.append("another")
            await asyncio.sleep(0)

    body = chat("令" * 3_000_000)
    assert len(body) > 15_000_000
    async with asyncio.TaskGroup() as group:
        group.create_task(others())
        await decider().read_by_turns("POST", "/v1/chat/completions", CIMultiDict(), body)
        ran.append("the large one")
    assert ran == ["another"] * 5 + ["the large one"]


async def test_a_large_body_of_a_safe_method_and_one_that_is_passed_on_are_not_read() -> None:
    blocks = Blocks()
    blocks.append(chat("x" * LARGE_BYTES))
    for method, body in (("GET", blocks), ("POST", None)):
        subject = await decider().read_by_turns(method, "/v1/chat/completions", CIMultiDict(), body)
        assert subject == Subject(repeatable=method == "GET")


def chat_after(system: str, question: str = "and now?") -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return {"model": "m", "messages": messages}


def query_of(reader: Decider, body: Any, *, count: bool = True) -> Query:
    return reader.query(
        read(reader, body), fleet_of([member("a"), member("b")]), draw=1, now=2.0, count=count
    )


def test_a_key_of_fixed_depth_needs_no_chain() -> None:
    reader = decider()
    subject = read(reader, chat_after("x" * 1000))
    asked = reader.query(subject, fleet_of([member("a"), member("b")]), draw=1, now=2.0)
    assert asked.chain is None
    assert (asked.key, asked.draw, asked.now) == (subject.key, 1, 2.0)


def test_a_chain_can_be_wanted_beside_a_fixed_key() -> None:
    plain, both = read(decider(), chat_after("x" * 1000)), read(decider(chains=True), chat_after("x" * 1000))
    assert both.key == plain.key
    assert both.chain is not None
    assert both.chain.tokens > 250


def test_with_depth_a_shared_beginning_stops_being_the_key() -> None:
    reader = decider(depth=Depth())
    keys = {query_of(reader, chat_after("system " * 200, f"question {number}")).key for number in range(200)}
    last = query_of(reader, chat_after("system " * 200, "question 1"))
    assert len(keys) > 100
    assert last.popular_tokens >= 256
    assert last.key_tokens > last.popular_tokens


def test_asking_what_if_counts_nothing() -> None:
    reader = decider(depth=Depth())
    for number in range(300):
        query_of(reader, chat_after("system " * 200, f"question {number}"), count=False)
    assert query_of(reader, chat_after("system " * 200)).popular_tokens == 0


def test_a_large_body_has_the_chain_of_its_whole_prompt() -> None:
    reader = decider(depth=Depth())
    body = chat_after("word " * LARGE_BYTES)
    data = json.dumps(body).encode()
    assert len(data) > LARGE_BYTES

    async def both() -> tuple[Subject, Subject]:
        by_turns = await reader.read_by_turns("POST", "/v1/chat/completions", CIMultiDict(), data)
        return by_turns, reader.read("POST", "/v1/chat/completions", CIMultiDict(), data)

    by_turns, at_once = asyncio.run(both())
    assert by_turns.chain == at_once.chain
    assert by_turns.chain is not None
    assert by_turns.chain.tokens >= LARGE_BYTES * 5 // 4


def test_what_came_before_is_carried_on() -> None:
    first = decider(chains=True)
    chain = read(first, chat_after("x" * 1000)).chain
    assert chain is not None
    first.seen.shared_tokens(chain)
    assert decider(chains=True, seen=first.seen).seen.shared_tokens(chain) >= 192
