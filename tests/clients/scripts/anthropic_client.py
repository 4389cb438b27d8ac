"""The anthropic library against the router: prints what each part of its API gave. Arguments: URL, key."""

import json
import sys
from typing import Any

import anthropic

URL, KEY = sys.argv[1:3]
MODEL = "simulated-model"
DOCUMENT = "A document for anthropic, long enough for several blocks of the cache. " * 100
TOOL: Any = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

# auth_token is a bearer token in every version; api_key is one only in newer ones.
client = anthropic.Anthropic(base_url=URL, auth_token=KEY, api_key=None, max_retries=0)


def ask(text: str) -> dict[str, Any]:
    messages: Any = [{"role": "user", "content": text}]
    return {"model": MODEL, "system": DOCUMENT, "messages": messages, "max_tokens": 5}


def same_prefix() -> list[str]:
    raws = [client.messages.with_raw_response.create(**ask(f"Question {n}?")) for n in range(4)]
    assert all(raw.parse().content for raw in raws)
    return [raw.headers["x-prefix-router-backend"] for raw in raws]


def stream() -> dict[str, Any]:
    with client.messages.stream(**ask("Stream?")) as streaming:
        text = "".join(streaming.text_stream)
        final = streaming.get_final_message()
    whole = client.messages.create(**ask("Stream?"))
    block = whole.content[0]
    assert block.type == "text"
    return {
        "same_text": text == block.text,
        "stop_reason": final.stop_reason,
        "output_tokens": final.usage.output_tokens,
    }


def tools() -> dict[str, Any]:
    asked = ask("How is the weather?")
    first = client.messages.create(**{**asked, "tools": [TOOL], "max_tokens": 50})
    [use] = first.content
    assert use.type == "tool_use"
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "rain"}
    messages = [
        *asked["messages"],
        {"role": "assistant", "content": [use.model_dump(include={"type", "id", "name", "input"})]},
        {"role": "user", "content": [result]},
    ]
    second = client.messages.create(**{**asked, "tools": [TOOL], "messages": messages})
    return {
        "stop_reasons": [first.stop_reason, second.stop_reason],
        "name": use.name,
        "arguments": sorted(use.input),
    }


def errors() -> dict[str, list[Any]]:
    stranger = anthropic.Anthropic(base_url=URL, auth_token="wrong", api_key=None, max_retries=0)
    attempts: dict[str, Any] = {
        "unknown model": lambda: client.messages.create(**{**ask("?"), "model": "absent"}),
        "bad request": lambda: client.messages.create(**{**ask("?"), "messages": []}),
        "wrong key": lambda: stranger.messages.create(**ask("?")),
    }
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except anthropic.APIStatusError as error:
            body: Any = error.body
            found[name] = [type(error).__name__, body.get("type")]
    return found


parts = {
    "same_prefix": same_prefix(),
    "stream": stream(),
    "count_tokens": client.messages.count_tokens(
        model=MODEL, messages=[{"role": "user", "content": DOCUMENT}]
    ).input_tokens,
    "tools": tools(),
    "errors": errors(),
}
print(json.dumps(parts))
