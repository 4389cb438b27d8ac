from __future__ import annotations

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from prefix_router.simulate.errors import NotFoundError
from prefix_router.simulate.wire import answer_errors, json_response, require_key

REQUEST = make_mocked_request("GET", "/")


async def answer_to(error: Exception) -> web.StreamResponse:
    async def handler(request: web.Request) -> web.StreamResponse:
        raise error

    return await answer_errors(REQUEST, handler)


def body_of(response: web.StreamResponse) -> object:
    assert isinstance(response, web.Response)
    assert response.content_type == "application/json"
    assert isinstance(response.body, bytes)
    return json.loads(response.body)


def test_data_becomes_json_with_a_status() -> None:
    response = json_response({"a": [1, None]}, 418)
    assert (response.status, body_of(response)) == (418, {"a": [1, None]})


async def test_an_api_error_becomes_its_answer() -> None:
    response = await answer_to(NotFoundError("no such model", "model"))
    assert response.status == 404
    assert body_of(response) == NotFoundError("no such model", "model").body()


async def test_an_unknown_path_is_answered_as_vllms_framework_does() -> None:
    response = await answer_to(web.HTTPNotFound())
    assert (response.status, body_of(response)) == (404, {"detail": "Not Found"})


async def test_a_wrong_method_is_told_the_right_ones() -> None:
    response = await answer_to(web.HTTPMethodNotAllowed("GET", ["POST"]))
    assert (response.status, response.headers["Allow"]) == (405, "POST")
    assert body_of(response) == {"detail": "Method Not Allowed"}


async def test_anything_else_is_left_to_the_server() -> None:
    with pytest.raises(ZeroDivisionError):
        await answer_to(ZeroDivisionError())


async def test_an_error_of_the_messages_api_is_worded_as_anthropic_does() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        raise NotFoundError("no such model", "model")

    response = await answer_errors(make_mocked_request("POST", "/v1/messages"), handler)
    error = {"type": "NotFoundError", "message": "no such model"}
    assert body_of(response) == {"type": "error", "error": error}


@pytest.mark.parametrize(
    ("path", "authorization", "status"),
    [
        ("/v1/models", "Bearer secret", 200),
        ("/v1/models", "bearer other", 200),
        ("/v1/models", "Bearer wrong", 401),
        ("/v1/models", "Basic secret", 401),
        ("/v1/models", "", 401),
        ("/health", "", 200),
    ],
)
async def test_a_key_is_asked_for_below_v1_only(path: str, authorization: str, status: int) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return json_response({})

    guard = require_key(("secret", "other"))
    request = make_mocked_request("GET", path, headers={"Authorization": authorization})
    assert (await guard(request, handler)).status == status
