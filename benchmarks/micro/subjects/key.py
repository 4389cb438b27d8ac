"""From a request body to its key.

`parse` is one pass over the bytes (in steps for a large body); `parse and key` also decodes and hashes the
head: all that a request pays before it can be routed. `json.loads`, a full decode, is there to compare with.
"""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

from multidict import CIMultiDict

from benchmarks.micro.case import Case, Run, again
from prefix_router.proxy.decider import Decider
from prefix_router.routing.key import PrefixRule, PrefixUnit
from prefix_router.routing.strategies.prefix_aware import PrefixAware

_CHAT = "/v1/chat/completions"
_HEADERS = CIMultiDict({"Content-Type": "application/json"})
_TOKENS = PrefixRule(1024)
_BYTES = PrefixRule(4096, PrefixUnit.BYTES)
_SYSTEM_39_KB = "chat, 39 KB in the system prompt"
_BYTES_A_RUN = 500_000
_WORDS = ["the", "quick", "brown", "fox,", "jumps", "over\nthe", '"lazy"', "dog", "while", "caches", "fill"]


def cases() -> list[Case]:
    found = bodies()
    measured = []
    for name, (path, body) in found.items():
        count = operations(body)
        measured.append(Case(f"parse and key: {name}", count, partial(reading, path, body, _TOKENS, count)))
    for name, (path, body) in found.items():
        count = operations(body)
        measured.append(Case(f"parse: {name}", count, partial(parsing, path, body, count)))
    path, body = found[_SYSTEM_39_KB]
    count = operations(body)
    measured += [
        Case(
            f"parse and key of 4,096 bytes: {_SYSTEM_39_KB}",
            count,
            partial(reading, path, body, _BYTES, count),
        ),
        Case(f"json.loads: {_SYSTEM_39_KB}", count, lambda: again(partial(json.loads, body), count)),
    ]
    return measured


def operations(body: bytes) -> int:
    """How many times a body is read in one run."""
    return min(max(_BYTES_A_RUN // len(body), 2), 200)


def reading(path: str, body: bytes, rule: PrefixRule, times: int) -> Run:
    read = partial(Decider(PrefixAware(64), rule).read, "POST", path, _HEADERS, body)
    assert read().key is not None
    return again(read, times)


def parsing(path: str, body: bytes, times: int) -> Run:
    return again(partial(Decider(PrefixAware(64), _TOKENS).parse, path, _HEADERS, body), times)


def bodies() -> dict[str, tuple[str, bytes]]:
    """Path and body of each kind of request."""
    text = json.dumps({"model": "m", "prompt": prose(38_500, 1)}).encode()
    conversation = [{"role": "user", "content": prose(600, n)} for n in range(60)]
    draw = random.Random(1)
    ids = [draw.randrange(128_000) for _ in range(8192)]
    return {
        "chat, 260 bytes": (_CHAT, chat(prose(70, 1), prose(52, 2))),
        _SYSTEM_39_KB: (_CHAT, chat(prose(38_500, 1), prose(60, 2))),
        "chat, 39 KB in 60 turns": (_CHAT, chat(*(prose(600, n) for n in range(60)))),
        "chat, 400 KB in the system prompt": (_CHAT, chat(prose(395_000, 1), prose(60, 2))),
        "chat, 400 KB in 600 turns": (_CHAT, chat(*(prose(600, n) for n in range(600)))),
        "chat, 40 tools (40 KB)": (_CHAT, chat(prose(600, 1), prose(60, 2), tools=tools(40))),
        "chat, 39 KB of escaped Chinese": (_CHAT, chat("令牌缓存路由" * 1080, prose(60, 2))),
        "responses, 39 KB in 60 items": ("/v1/responses", json.dumps({"input": conversation}).encode()),
        "completions, 39 KB": ("/v1/completions", text),
        "completions, 8,192 token ids": ("/v1/completions", json.dumps({"prompt": ids}).encode()),
    }


def chat(*texts: str, **fields: Any) -> bytes:
    roles = ["system", "user"] + ["assistant", "user"] * len(texts)
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    body = {"model": "llama", "messages": messages, "temperature": 0.7, "stream": True, **fields}
    return json.dumps(body).encode()


def tools(count: int) -> list[dict[str, Any]]:
    member = {"type": "string", "description": prose(40, 3)}
    schema = {"type": "object", "properties": {f"argument_{n}": member for n in range(8)}}
    return [
        {
            "type": "function",
            "function": {"name": f"tool_{n}", "description": prose(300, n), "parameters": schema},
        }
        for n in range(count)
    ]


def prose(characters: int, seed: int) -> str:
    draw = random.Random(seed)
    words: list[str] = []
    length = 0
    while length < characters:
        words.append(draw.choice(_WORDS))
        length += len(words[-1]) + 1
    return " ".join(words)[:characters]
