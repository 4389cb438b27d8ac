from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from prefix_router.admin.control import Controls, Reply, control_routes

Client = TestClient[web.Request, web.Application]


class Router:
    """Records what it is told."""

    def __init__(self) -> None:
        self.draining = {"a": False, "10.0.0.1:8000/x": False, "[::1]:8000": False}
        self.reloads = 0

    async def reload(self) -> Reply:
        self.reloads += 1
        return Reply(HTTPStatus.UNPROCESSABLE_ENTITY, {"problems": []})

    def set_draining(self, name: str, draining: bool) -> bool:
        if name not in self.draining:
            return False
        self.draining[name] = draining
        return True

    def controls(self) -> Controls:
        def backend(name: str) -> dict[str, Any]:
            return {"name": name, "draining": self.draining[name]}

        return Controls(self.reload, lambda: {"retry": {"max_attempts": 3}}, self.set_draining, backend)


@pytest.fixture
def router() -> Router:
    return Router()


@pytest.fixture
async def client(router: Router) -> AsyncIterator[Client]:
    application = web.Application()
    application.add_routes(control_routes(router.controls()))
    async with TestClient(TestServer(application)) as made:
        yield made


async def test_a_reload_says_what_came_of_it(client: Client) -> None:
    response = await client.post("/reload")
    assert response.status == 422
    assert await response.json() == {"problems": []}


async def test_the_settings_in_force_can_be_read(client: Client) -> None:
    response = await client.get("/config")
    assert await response.json() == {"retry": {"max_attempts": 3}}


@pytest.mark.parametrize(
    ("written", "name"),
    [("a", "a"), ("10.0.0.1:8000%2Fx", "10.0.0.1:8000/x"), ("%5B::1%5D:8000", "[::1]:8000")],
)
async def test_drain_and_undrain_may_be_repeated_and_answer_with_the_backend(
    client: Client, router: Router, written: str, name: str
) -> None:
    from yarl import URL

    for word, draining in (("drain", True), ("drain", True), ("undrain", False), ("undrain", False)):
        response = await client.post(URL(f"/backends/{written}/{word}", encoded=True))
        assert response.status == 200
        assert await response.json() == {"name": name, "draining": draining}
        assert router.draining[name] is draining


@pytest.mark.parametrize("word", ["drain", "undrain"])
async def test_an_unknown_backend_is_404(client: Client, word: str) -> None:
    response = await client.post(f"/backends/zz/{word}")
    assert response.status == 404
    assert (await response.json())["name"] == "zz"


@pytest.mark.parametrize("path", ["/reload", "/backends/a/drain", "/backends/a/undrain"])
async def test_a_page_of_another_origin_may_change_nothing(client: Client, router: Router, path: str) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        response = await client.post(path, headers={"Origin": origin})
        assert response.status == 403
    assert (router.reloads, router.draining["a"]) == (0, False)
    own = f"http://{client.host}:{client.port}"
    assert (await client.post(path, headers={"Origin": own})).status != 403


@pytest.mark.parametrize("path", ["/reload", "/backends/a/drain"])
async def test_looking_changes_nothing(client: Client, router: Router, path: str) -> None:
    assert (await client.get(path)).status == 405
    assert (router.reloads, router.draining["a"]) == (0, False)
