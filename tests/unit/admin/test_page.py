from __future__ import annotations

import re
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from prefix_router.admin.page import HEADERS, PAGE_FILES, PageSources, page_routes

Client = TestClient[web.Request, web.Application]

FOLDER = files("prefix_router.admin").joinpath("page_files")


@pytest.fixture
def asked() -> list[Any]:
    return []


@pytest.fixture
async def client(asked: list[Any]) -> AsyncIterator[Client]:
    async def collect() -> None:
        asked.append("collect")

    def history(since: float, epoch: str | None) -> dict[str, Any]:
        asked.append((since, epoch))
        return {"fleet": {}}

    def keys(limit: int) -> dict[str, Any]:
        asked.append(limit)
        return {"keys": []}

    application = web.Application()
    application.add_routes(page_routes(PageSources(collect, history, keys)))
    async with TestClient(TestServer(application)) as made:
        yield made


def test_every_file_is_in_the_package_and_served() -> None:
    assert {entry.name for entry in FOLDER.iterdir() if entry.is_file()} == PAGE_FILES.keys()


@pytest.mark.parametrize("path", ["/", *(f"/page/{name}" for name in PAGE_FILES)])
async def test_a_file_is_served_with_its_type_and_a_strict_policy(client: Client, path: str) -> None:
    response = await client.get(path)
    assert response.status == 200
    assert response.content_type == PAGE_FILES[path.removeprefix("/page/").removeprefix("/") or "index.html"]
    for name, value in HEADERS.items():
        assert response.headers[name] == value


def test_the_policy_allows_nothing_from_elsewhere_and_nothing_inline() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize("name", ["nothing.js", "..%2f__init__.py", "__init__.py"])
async def test_nothing_else_is_served(client: Client, name: str) -> None:
    assert (await client.get(f"/page/{name}")).status == 404


@pytest.mark.parametrize("name", sorted(PAGE_FILES))
def test_no_markup_is_made_of_text_and_nothing_is_fetched_from_elsewhere(name: str) -> None:
    text = FOLDER.joinpath(name).read_text()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text
    )
    assert not re.search(r"\bon\w+=|style=|<script>|<style", text)
    addresses = set(re.findall(r"https?://[\w./-]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://host"}


async def test_a_history_is_asked_for_what_is_new(client: Client, asked: list[Any]) -> None:
    response = await client.get("/history?since=120&epoch=e")
    assert await response.json() == {"fleet": {}}
    assert asked == ["collect", (120.0, "e")]


@pytest.mark.parametrize("since", ["x", "-1", "nan", "inf"])
async def test_a_since_that_is_none_is_refused(client: Client, asked: list[Any], since: str) -> None:
    response = await client.get("/history", params={"since": since})
    assert response.status == 400
    assert "since" in (await response.json())["error"]
    assert asked == []


async def test_keys_are_limited(client: Client, asked: list[Any]) -> None:
    assert (await client.get("/keys")).status == 200
    assert (await client.get("/keys?limit=256")).status == 200
    assert asked == ["collect", 20, "collect", 256]


@pytest.mark.parametrize("limit", ["0", "257", "-1", "x", "²", "99999999999"])
async def test_a_limit_out_of_range_is_refused(client: Client, limit: str) -> None:
    assert (await client.get("/keys", params={"limit": limit})).status == 400
