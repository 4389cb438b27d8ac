from __future__ import annotations

import json

import pytest

from prefix_router.openai_api.errors import ErrorCode, anthropic_error_type, error_body, error_type


def test_the_openai_shape_has_message_type_param_and_code() -> None:
    body = error_body(404, "no model `x`", "model_not_found", param="model")
    assert json.loads(body) == {
        "error": {
            "message": "no model `x`",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }


def test_the_anthropic_shape_has_type_and_message() -> None:
    body = error_body(404, "no model `x`", "model_not_found", param="model", anthropic=True)
    inner = {"type": "not_found_error", "message": "no model `x`"}
    assert json.loads(body) == {"type": "error", "error": inner}


@pytest.mark.parametrize("anthropic", [False, True])
def test_a_type_that_is_given_wins(anthropic: bool) -> None:
    body = json.loads(error_body(400, "m", "c", "my_type", anthropic=anthropic))
    assert body["error"]["type"] == "my_type"


@pytest.mark.parametrize("message", ['"quoted"\n', "caf\u00e9", "\ud800 lone surrogate", "\x00"])
def test_whatever_a_message_quotes_the_body_is_json(message: str) -> None:
    text = json.loads(error_body(400, message, "bad_request"))["error"]["message"]
    assert text == message.replace("\ud800", "?")


@pytest.mark.parametrize(
    ("status", "openai", "anthropic"),
    [
        (400, "invalid_request_error", "invalid_request_error"),
        (413, "invalid_request_error", "request_too_large"),
        (429, "rate_limit_error", "rate_limit_error"),
        (431, "invalid_request_error", "invalid_request_error"),
        (500, "server_error", "api_error"),
        (502, "server_error", "api_error"),
        (503, "service_unavailable_error", "overloaded_error"),
        (504, "server_error", "timeout_error"),
    ],
)
def test_the_type_follows_the_status(status: int, openai: str, anthropic: str) -> None:
    assert error_type(status) == openai
    assert anthropic_error_type(status) == anthropic


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("bad_request", 400),
        ("invalid_affinity_id", 400),
        ("model_not_found", 404),
        ("request_timeout", 408),
        ("request_too_large", 413),
        ("queue_full", 429),
        ("queue_timeout", 429),
        ("header_too_large", 431),
        ("internal_error", 500),
        ("not_implemented", 501),
        ("backend_unreachable", 502),
        ("backend_bad_response", 502),
        ("no_backend_available", 503),
        ("no_backend_configured", 503),
        ("draining", 503),
        ("backend_timeout", 504),
    ],
)
def test_every_code_has_its_status(code: str, status: int) -> None:
    assert ErrorCode(code).status == status


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_makes_a_body_of_its_own_in_both_shapes(code: ErrorCode) -> None:
    error = json.loads(code.body("why", "model"))["error"]
    assert error == {"message": "why", "type": code.type, "param": "model", "code": code.value}
    anthropic = json.loads(code.body("why", anthropic=True))["error"]
    assert anthropic == {"type": anthropic_error_type(code.status), "message": "why"}
