"""What watching a stream costs, per event, by what the events are and how their bytes arrive.

A relay spends some tens of microseconds per chunk on the sockets; the observer has to disappear beside that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks.micro.case import Case, Run, again, each
from prefix_router.openai_api.sse import SseObserver

_EVENTS = 64
_FED = 512
_WHOLE = 20
_DONE = b"data: [DONE]\n\n"
_USAGE = {"prompt_tokens": 1000, "completion_tokens": 7, "total_tokens": 1007}


def cases() -> list[Case]:
    token, anthropic, responses = chat_event(" token"), anthropic_event(" token"), responses_event(" token")
    one_by_one = {
        "token chunk": token,
        "Anthropic token chunk": anthropic,
        "responses token chunk": responses,
        "token chunk that names a mark": chat_event(' "error'),
        "token chunk with usage": chat_event(" token", usage=_USAGE),
    }
    many = token * _FED
    cuts = {"64 KiB chunks": 65536, "1,460 byte chunks": 1460, "events cut in two": len(token) // 2 + 1}
    return [
        Case("before first content: role-only chunk", _EVENTS, before_content),
        *(
            Case(f"after first content: {name}", _FED, partial(watching, event, [event] * _FED))
            for name, event in one_by_one.items()
        ),
        *(
            Case(f"after first content: {name}", _FED, partial(watching, token, cut(many, size)))
            for name, size in cuts.items()
        ),
        Case("whole stream of 1 token: role, token, usage, [DONE]", _WHOLE, partial(streaming, 1)),
        Case(f"whole stream of {_EVENTS} tokens", _WHOLE, partial(streaming, _EVENTS)),
    ]


def before_content() -> Run:
    chunks = [chat_event("", role="assistant")] * _EVENTS

    def run() -> None:
        observer = SseObserver()
        for chunk in chunks:
            observer.feed(chunk)

    return run


def watching(first: bytes, chunks: Sequence[bytes]) -> Run:
    """Return a run that feeds whole events to an observer that has seen the first content."""
    observer = SseObserver()
    observer.feed(first)
    assert observer.first_content
    return each(observer.feed, chunks)


def streaming(tokens: int) -> Run:
    """Return a run that watches whole streams, from the role to `[DONE]`, usage in an event of its own."""
    role, token, usage = chat_event("", role="assistant"), chat_event(" token"), chat_event("", usage=_USAGE)
    chunks = [role, *[token] * tokens, usage, _DONE]

    def watch() -> None:
        observer = SseObserver()
        for chunk in chunks:
            observer.feed(chunk)
        observer.finish()

    return again(watch, _WHOLE)


def cut(stream: bytes, size: int) -> list[bytes]:
    return [stream[start : start + size] for start in range(0, len(stream), size)]


def chat_event(text: str, usage: dict[str, int] | None = None, **delta: str) -> bytes:
    body: dict[str, Any] = {
        "id": "chatcmpl-0b1c7d54f0f94f1f8b8f7c1f1d3f6a52",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": "meta-llama/Llama-3.1-70B-Instruct",
        "choices": [
            {"index": 0, "delta": {**delta, "content": text}, "logprobs": None, "finish_reason": None}
        ],
    }
    if usage is not None:
        body["usage"] = usage
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def anthropic_event(text: str) -> bytes:
    delta = {"type": "text_delta", "text": text}
    body = {"index": 0, "type": "content_block_delta", "delta": delta}
    return b"event: content_block_delta\ndata: " + json.dumps(body).encode() + b"\n\n"


def responses_event(text: str) -> bytes:
    body = {
        "type": "response.output_text.delta",
        "sequence_number": 17,
        "item_id": "msg_5f2b7f0d2b6e4f1c9d0e",
        "output_index": 0,
        "content_index": 0,
        "delta": text,
        "logprobs": [],
    }
    return b"event: response.output_text.delta\ndata: " + json.dumps(body).encode() + b"\n\n"
