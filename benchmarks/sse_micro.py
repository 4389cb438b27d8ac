"""What watching a stream costs: microseconds per event, by how the bytes arrive.

    python -m benchmarks.sse_micro [--events 20000]

Prints CPU time, the best of five runs for each case, as a table. A relay spends some tens of microseconds
per chunk on the sockets; the observer has to disappear beside that.
"""

from __future__ import annotations

import argparse
import json
from time import process_time

from prefix_router.openai_api.sse import SseObserver


def chat_event(text: str, usage: dict[str, int] | None = None) -> bytes:
    body = {
        "id": "chatcmpl-0b1c7d54f0f94f1f8b8f7c1f1d3f6a52",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": "meta-llama/Llama-3.1-70B-Instruct",
        "choices": [{"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}],
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


def cut(stream: bytes, size: int) -> list[bytes]:
    return [stream[start : start + size] for start in range(0, len(stream), size)]


def microseconds_per_event(first: bytes, chunks: list[bytes], events: int) -> float:
    best = float("inf")
    for _ in range(5):
        observer = SseObserver()
        observer.feed(first)
        assert observer.first_content
        started = process_time()
        for chunk in chunks:
            observer.feed(chunk)
        best = min(best, process_time() - started)
    return best / events * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    events = parser.parse_args().events
    chat, anthropic, responses = chat_event(" token"), anthropic_event(" token"), responses_event(" token")
    counted = chat_event(" token", {"prompt_tokens": 1000, "completion_tokens": 7, "total_tokens": 1007})
    unlucky = chat_event(' "error')
    stream = chat * events
    cases = (
        ("chat, one event a chunk", chat, [chat] * events),
        ("Anthropic, one event a chunk", anthropic, [anthropic] * events),
        ("responses, one event a chunk", responses, [responses] * events),
        ("chat, 64 KiB chunks", chat, cut(stream, 65536)),
        ("chat, 1,460 byte chunks", chat, cut(stream, 1460)),
        ("chat, events cut in two", chat, cut(stream, len(chat) // 2 + 1)),
        ("chat, text that names a mark", chat, [unlucky] * events),
        ("chat, usage in every event", chat, [counted] * events),
    )
    print(f"| case | µs per event ({len(chat)} bytes in chat) |\n|---|---|")
    for name, first, chunks in cases:
        print(f"| {name} | {microseconds_per_event(first, chunks, events):.2f} |")


if __name__ == "__main__":
    main()
