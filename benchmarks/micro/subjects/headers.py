"""The header filter, with what a usual client and vLLM send."""

from __future__ import annotations

from functools import partial

from benchmarks.micro.case import Case, again
from prefix_router.openai_api.headers import request_head, response_lines

_TIMES = 200

REQUEST = (
    (b"Host", b"router.internal:8000"),
    (b"Accept-Encoding", b"gzip, deflate"),
    (b"Connection", b"keep-alive"),
    (b"Accept", b"application/json"),
    (b"Content-Type", b"application/json"),
    (b"User-Agent", b"OpenAI/Python 2.8.0"),
    (b"X-Stainless-Lang", b"python"),
    (b"X-Stainless-Package-Version", b"2.8.0"),
    (b"X-Stainless-Runtime", b"CPython"),
    (b"X-Stainless-Retry-Count", b"0"),
    (b"Authorization", b"Bearer sk-0b1c7d54f0f94f1f8b8f7c1f1d3f6a52"),
    (b"Content-Length", b"39012"),
)

RESPONSE = (
    (b"date", b"Fri, 10 Oct 2025 08:53:20 GMT"),
    (b"server", b"uvicorn"),
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-request-id", b"0b1c7d54f0f94f1f8b8f7c1f1d3f6a52"),
    (b"cache-control", b"no-cache"),
    (b"transfer-encoding", b"chunked"),
)


def cases() -> list[Case]:
    head = partial(
        request_head,
        b"POST",
        b"/v1/chat/completions",
        REQUEST,
        host=b"10.0.0.1:8000",
        body_length=39012,
        request_id=b"0b1c7d54f0f94f1f8b8f7c1f1d3f6a52",
        client_address=b"192.0.2.7",
        client_host=b"router.internal:8000",
    )
    return [
        Case(f"request_head, {len(REQUEST)} headers", _TIMES, lambda: again(head, _TIMES)),
        Case(
            f"response_lines, {len(RESPONSE)} headers",
            _TIMES,
            lambda: again(partial(response_lines, RESPONSE), _TIMES),
        ),
    ]
