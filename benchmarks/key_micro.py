"""Microseconds from a request body to its key: `python benchmarks/key_micro.py [--json]`.

Each line is one kind of body. `parse` is one pass over the bytes (in steps for a large body), `key` decodes
and hashes the head; both are what every request pays before it can be routed. Times are of the processor, and
the best of several repetitions counts: whatever else the machine does can only add to it. `json.loads`, a
full decode, is there to compare with.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import timeit
from collections.abc import Callable
from functools import partial
from typing import Any

from prefix_router.openai_api.condense import LARGE_BYTES
from prefix_router.openai_api.json_scan import WholeBytes, finish
from prefix_router.openai_api.request import RoutingRequest, parse, parse_large
from prefix_router.routing.key import PrefixRule, PrefixUnit, prefix_key

_WORDS = ["the", "quick", "brown", "fox,", "jumps", "over\nthe", '"lazy"', "dog", "while", "caches", "fill"]
_REPETITIONS = 25
_RULES = {
    "1024 tokens": PrefixRule(1024),
    "4096 bytes": PrefixRule(4096, PrefixUnit.BYTES),
}


def prose(characters: int, seed: int) -> str:
    draw = random.Random(seed)
    words: list[str] = []
    length = 0
    while length < characters:
        words.append(draw.choice(_WORDS))
        length += len(words[-1]) + 1
    return " ".join(words)[:characters]


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


def bodies() -> dict[str, tuple[str, bytes]]:
    path = "/v1/chat/completions"
    text = json.dumps({"model": "m", "prompt": prose(38_500, 1)}).encode()
    conversation = [{"role": "user", "content": prose(600, n)} for n in range(60)]
    ids = [random.Random(n).randrange(128_000) for n in range(8192)]
    return {
        "chat, 2 turns": (path, chat(prose(70, 1), prose(60, 2))),
        "chat, 39 KB in the system prompt": (path, chat(prose(38_500, 1), prose(60, 2))),
        "chat, 39 KB in 60 turns": (path, chat(*(prose(600, n) for n in range(60)))),
        "chat, 400 KB in the system prompt": (path, chat(prose(395_000, 1), prose(60, 2))),
        "chat, 400 KB in 600 turns": (path, chat(*(prose(600, n) for n in range(600)))),
        "chat, 40 tools (40 KB)": (path, chat(prose(600, 1), prose(60, 2), tools=tools(40))),
        "chat, 39 KB of escaped Chinese": (path, chat("令牌缓存路由" * 1080, prose(60, 2))),
        "responses, 39 KB in 60 items": ("/v1/responses", json.dumps({"input": conversation}).encode()),
        "completions, 39 KB": ("/v1/completions", text),
        "completions, 8192 token ids": ("/v1/completions", json.dumps({"prompt": ids}).encode()),
    }


def microseconds(call: Callable[[], object], budget_seconds: float = 0.5) -> float:
    once = min(timeit.repeat(call, number=1, repeat=3))
    number = max(1, int(budget_seconds / _REPETITIONS / once))
    times = timeit.repeat(call, timer=time.process_time, number=number, repeat=_REPETITIONS)
    return min(times) / number * 1e6


def read(path: str, body: bytes) -> RoutingRequest:
    if len(body) <= LARGE_BYTES:
        return parse(path, "application/json", body, {})
    return finish(parse_large(path, "application/json", WholeBytes(body), {}, 4096))


def measure() -> list[dict[str, Any]]:
    rows = []
    for name, (path, body) in bodies().items():
        row: dict[str, Any] = {"body": name, "bytes": len(body)}
        row["parse"] = microseconds(partial(read, path, body))
        request = read(path, body)
        for label, rule in _RULES.items():
            row[f"key, {label}"] = microseconds(partial(prefix_key, request, rule, body))
        row["json.loads"] = microseconds(partial(json.loads, body))
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    as_json = parser.parse_args().json
    rows = measure()
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    columns = list(rows[0])
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(f"{v:.1f}" if isinstance(v, float) else str(v) for v in row.values()) + " |")


if __name__ == "__main__":
    main()
