"""The API endpoints that a router must carry, each with a request and a canonical answer.

The answers are what a client of that API expects, so that a router that looks into them finds what it looks
for; the cases compare bytes and never need to understand them.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

MODEL = "conformance-model"


class Endpoint(Enum):
    """The kinds of endpoint."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    EMBEDDINGS = "embeddings"

    @property
    def path(self) -> str:
        """Where it lives."""
        return _PATHS[self]

    @property
    def streams(self) -> bool:
        """Whether it knows `stream: true`."""
        return self is not Endpoint.EMBEDDINGS

    def request(self, text: str = "hello", *, stream: bool = False, **fields: Any) -> bytes:
        """Return a request body whose prompt is `text`."""
        document: dict[str, Any] = {"model": MODEL}
        if self in (Endpoint.CHAT, Endpoint.MESSAGES):
            document["messages"] = [{"role": "user", "content": text}]
        elif self is Endpoint.COMPLETIONS:
            document["prompt"] = text
        else:
            document["input"] = text
        if self is Endpoint.MESSAGES:
            document["max_tokens"] = 16
        if stream:
            document["stream"] = True
        return json.dumps({**document, **fields}).encode()

    def answer(self, text: str = "fine") -> bytes:
        """Return the JSON body of a whole answer."""
        return json.dumps(_answer(self, text)).encode()

    def events(self, text: str = "fine") -> list[bytes]:
        """Return a streamed answer, one server-sent event each."""
        if self in (Endpoint.CHAT, Endpoint.COMPLETIONS):
            return [b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in _chunks(self, text)] + [
                b"data: [DONE]\n\n"
            ]
        return [
            b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode())
            for event in (_response_events(text) if self is Endpoint.RESPONSES else _message_events(text))
        ]

    def error(self, status: int, message: str = "no") -> bytes:
        """Return an error body in the shape of the API."""
        if self is Endpoint.MESSAGES:
            return json.dumps({"type": "error", "error": {"type": "api_error", "message": message}}).encode()
        return json.dumps(
            {"error": {"message": message, "type": "server_error", "param": None, "code": status}}
        ).encode()


_PATHS = {
    Endpoint.CHAT: "/v1/chat/completions",
    Endpoint.COMPLETIONS: "/v1/completions",
    Endpoint.RESPONSES: "/v1/responses",
    Endpoint.MESSAGES: "/v1/messages",
    Endpoint.EMBEDDINGS: "/v1/embeddings",
}


def endpoint_of(path: str) -> Endpoint | None:
    """Return the endpoint at `path` (query aside), None for another path."""
    bare = path.partition("?")[0]
    return next((endpoint for endpoint in Endpoint if endpoint.path == bare), None)


def _usage() -> dict[str, Any]:
    return {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def _answer(endpoint: Endpoint, text: str) -> dict[str, Any]:
    if endpoint is Endpoint.CHAT:
        message = {"role": "assistant", "content": text}
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop"}
        return _openai("chatcmpl-1", "chat.completion", [choice]) | {"usage": _usage()}
    if endpoint is Endpoint.COMPLETIONS:
        choice = {"index": 0, "text": text, "finish_reason": "stop"}
        return _openai("cmpl-1", "text_completion", [choice]) | {"usage": _usage()}
    if endpoint is Endpoint.RESPONSES:
        return _response("completed", text)
    if endpoint is Endpoint.MESSAGES:
        return _message(text, "end_turn")
    vector = {"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}
    return {"object": "list", "model": MODEL, "data": [vector], "usage": _usage()}


def _openai(name: str, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": name, "object": kind, "created": 1, "model": MODEL, "choices": choices}


def _chunks(endpoint: Endpoint, text: str) -> list[dict[str, Any]]:
    chat = endpoint is Endpoint.CHAT
    name, kind = ("chatcmpl-1", "chat.completion.chunk") if chat else ("cmpl-1", "text_completion")
    chunks = []
    for at, word in enumerate(text.split(" ")):
        piece = {"delta": {"content": word}} if chat else {"text": word}
        chunks.append(_openai(name, kind, [{"index": 0, "finish_reason": None, **piece}]) | {"seq": at})
    last: dict[str, Any] = {"delta": {}} if chat else {"text": ""}
    chunks.append(_openai(name, kind, [{"index": 0, "finish_reason": "stop", **last}]))
    chunks.append(_openai(name, kind, []) | {"usage": _usage()})
    return chunks


def _response(status: str, text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": content}
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    document = {"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": MODEL}
    return document | {"output": [item] if status == "completed" else [], "usage": usage}


def _response_events(text: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"type": "response.created", "response": _response("in_progress", "")}]
    delta: dict[str, Any] = {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
    }
    events += [{**delta, "delta": word} for word in text.split(" ")]
    events.append({"type": "response.completed", "response": _response("completed", text)})
    return [{**event, "sequence_number": at} for at, event in enumerate(events)]


def _message(text: str, stop_reason: str | None) -> dict[str, Any]:
    document = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL}
    content = [{"type": "text", "text": text}] if text else []
    usage = {"input_tokens": 7, "output_tokens": 3}
    return document | {"content": content, "stop_reason": stop_reason, "stop_sequence": None, "usage": usage}


def _message_events(text: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": _message("", None)}]
    block = {"type": "text", "text": ""}
    events.append({"type": "content_block_start", "index": 0, "content_block": block})
    events += [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}
        for word in text.split(" ")
    ]
    events.append({"type": "content_block_stop", "index": 0})
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 3}})
    events.append({"type": "message_stop"})
    return events
