"""A router that listens to what its backends say of their caches."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from prefix_router.app import Router
from prefix_router.event_feed import EventFeed
from prefix_router.proxy.decider import Subject
from prefix_router.settings.load import load_text
from tests.integration.test_decisions import naming
from tests.support.kv_publisher import Publisher, cleared, stored
from tests.support.router import QUIET, ask
from tests.unit.kv_events.conftest import model  # noqa: F401  (a fixture)

pytestmark = pytest.mark.usefixtures("model")

PROMPT = "what b has in its cache and nobody was ever asked here " * 10
BODY = json.dumps({"model": "m", "prompt": PROMPT}).encode()
TOKENS = [1, *PROMPT.encode()]
BLOCKS = len(TOKENS) // 16


@asynccontextmanager
async def routed(model: Path, *, strategy: str = "adaptive") -> AsyncIterator[tuple[Router, Publisher]]:  # noqa: F811
    """A router before backends a, b and c, of which b publishes."""
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(Publisher())
        backends: list[dict[str, Any]] = [
            {"name": name, "url": (await stack.enter_async_context(naming(name))).url} for name in "abc"
        ]
        backends[1] |= {"kv_events": publisher.endpoint, "kv_events_replay": publisher.replay}
        routing = {"strategy": strategy, "prefix": {"tokenizer": str(model / "tokenizer.json")}}
        document = {**QUIET, "backends": backends, "routing": routing}
        text = msgspec.json.encode(document).decode()
        router = Router(await asyncio.to_thread(load_text, text, "test", {}))
        await router.start()
        stack.push_async_callback(router.stop, grace_seconds=0)
        await publisher.subscribed()
        yield router, publisher


async def came_to(router: Router) -> str:
    answer = await ask(router, BODY, path="/v1/completions")
    return answer.body.decode()


async def eventually_comes_to(router: Router, name: str) -> None:
    for _ in range(100):
        feed = router._data._feed  # type: ignore[attr-defined]
        shares = await feed.shares(Subject(api="completions", model="m"), BODY)
        if shares is not None and (shares.get("b", 0) > 0.9) is (name == "b"):
            break
        await asyncio.sleep(0.02)
    assert (await came_to(router) == "b") is (name == "b")


async def test_a_prompt_goes_where_an_engine_says_it_is(model: Path) -> None:  # noqa: F811
    async with routed(model) as (router, publisher):
        held = stored(list(range(1, BLOCKS + 1)), TOKENS[: BLOCKS * 16], block_size=16)
        await publisher.publish(held)
        await eventually_comes_to(router, "b")
        (engine,) = router.status()["kv_events"]
        assert (engine["backend"], engine["connected"], engine["blocks"]) == ("b", True, BLOCKS)


async def test_an_engine_that_lost_it_is_not_believed_to_have_it(model: Path) -> None:  # noqa: F811
    async with routed(model) as (router, publisher):
        held = stored(list(range(1, BLOCKS + 1)), TOKENS[: BLOCKS * 16], block_size=16)
        await publisher.publish(held)
        await eventually_comes_to(router, "b")
        await publisher.publish(cleared())
        feed = router._data._feed  # type: ignore[attr-defined]
        for _ in range(100):
            if await feed.shares(Subject(api="completions", model="m"), BODY) == {"b": 0.0}:
                break
            await asyncio.sleep(0.02)
        assert await feed.shares(Subject(api="completions", model="m"), BODY) == {"b": 0.0}


async def test_other_strategies_do_not_ask(model: Path) -> None:  # noqa: F811
    async with routed(model, strategy="prefix_aware") as (router, _):
        assert not router._data._feed.wanted  # type: ignore[attr-defined]
        await came_to(router)


async def feed_of(*given: Any) -> EventFeed:
    feed = EventFeed(await asyncio.to_thread(settings, *given))
    await feed.start()
    return feed


def settings(model: Path | None = None, endpoint: str | None = None) -> Any:  # noqa: F811
    backend = {"url": "h:1", "kv_events": endpoint}
    prefix = {"tokenizer": str(model / "tokenizer.json")} if model is not None else {}
    document = {"backends": [backend], "routing": {"strategy": "adaptive", "prefix": prefix}}
    return load_text(msgspec.json.encode(document).decode(), "test", {})


async def test_without_a_publisher_there_is_nobody_to_ask() -> None:
    feed = await feed_of()
    assert not feed.wanted
    assert await feed.shares(Subject(api="chat"), b"{}") is None
    await feed.stop()


async def test_a_publisher_that_comes_with_a_reload_needs_a_restart(
    model: Path,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed = await feed_of()
    later = await asyncio.to_thread(settings, model, "tcp://127.0.0.1:5557")
    with caplog.at_level(logging.WARNING):
        feed.update(later)
    assert not feed.wanted
    assert "a restart is needed" in caplog.text


async def test_a_reload_changes_to_whom_it_listens(model: Path) -> None:  # noqa: F811
    async with Publisher() as one, Publisher() as other:
        feed = await feed_of(model, one.endpoint)
        await one.subscribed()
        feed.update(await asyncio.to_thread(settings, model, other.endpoint))
        await other.subscribed()
        await feed.stop()
