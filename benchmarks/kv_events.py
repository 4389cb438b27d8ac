"""What an exact view of the KV caches costs: `python -m benchmarks.kv_events TOKENIZER.json`.

Prints, for this machine: following events (one engine, blocks of 16 tokens, 512 in a batch), memory
for each block, asking how much of a prompt is held, and making the tokens of a chat request, by its size. The
tokenizer's own chat template is used; it must lie beside it.
"""

from __future__ import annotations

import json
import random
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics

import msgspec

from prefix_router.kv_events.events import decode, pack
from prefix_router.kv_events.index import KvIndex
from prefix_router.kv_events.prompt_tokens import PromptTokens
from prefix_router.openai_api.request import Api
from prefix_router.routing.fleet import BackendName

BLOCK_TOKENS = 16
BATCHES = 200
BLOCKS_IN_BATCH = 512
ENGINES = 8
REPEATS = 5


def best_seconds(work: Callable[[], object], times: int = 1) -> float:
    """The shortest time of one piece of work, of several tries."""
    tries = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(times):
            work()
        tries.append((time.perf_counter() - began) / times)
    return min(tries)


def batches() -> list[bytes]:
    """Prompts of `BLOCKS_IN_BATCH` blocks, as current versions of vLLM report them."""
    draws = random.Random(1)
    return [
        msgspec.msgpack.encode(
            [
                float(number),
                [
                    {
                        "type": "BlockStored",
                        "block_hashes": [draws.getrandbits(64) for _ in range(BLOCKS_IN_BATCH)],
                        "parent_block_hash": None,
                        "token_ids": [
                            draws.randrange(128_000) for _ in range(BLOCKS_IN_BATCH * BLOCK_TOKENS)
                        ],
                        "block_size": BLOCK_TOKENS,
                        "medium": "GPU",
                        "lora_name": None,
                    }
                ],
                0,
            ]
        )
        for number in range(BATCHES)
    ]


def follow(payloads: list[bytes], engines: int = 1) -> KvIndex:
    """An index in which `engines` engines hold the same blocks."""
    index = KvIndex()
    for number in range(engines):
        engine = index.join(BackendName(f"engine-{number}"))
        engine.in_sync = True
        for payload in payloads:
            batch = decode(payload)
            assert batch is not None
            index.apply(engine, batch.events)
    return index


def chat(characters: int) -> bytes:
    """A chat request with so much text."""
    text = " ".join(topics[name] for name in sorted(topics))
    content = (text * (characters // len(text) + 1))[:characters]
    return json.dumps({"messages": [{"role": "user", "content": content}]}).encode()


def main(tokenizer: Path) -> None:
    """Measure and print."""
    payloads = batches()
    blocks = BATCHES * BLOCKS_IN_BATCH
    seconds = best_seconds(lambda: follow(payloads))
    print(f"following: {seconds / blocks * 1e6:.2f} us a block, {seconds / BATCHES * 1e3:.2f} ms a batch")

    tracemalloc.start()
    one = follow(payloads)
    print(f"memory: {tracemalloc.get_traced_memory()[0] / blocks:.0f} bytes a block of one engine")
    tracemalloc.stop()
    del one

    index = follow(payloads, ENGINES)
    tokens = msgspec.msgpack.decode(payloads[0])[1][0]["token_ids"]
    for count in (1_024, 8_192):
        packed = pack(tokens[:count])
        seconds = best_seconds(lambda packed=packed: index.held_of_prompt(packed), 100)  # type: ignore[misc]
        print(f"asking: {seconds * 1e6:.0f} us for {count} tokens that {ENGINES} engines hold")
    unknown = pack(tokens[1:8_192])
    seconds = best_seconds(lambda: index.held_of_prompt(unknown), 1000)
    print(f"asking: {seconds * 1e6:.1f} us for 8191 tokens that nobody holds")

    prompts = PromptTokens(tokenizer)
    for characters in (300, 1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000):
        body = chat(characters)
        packed_tokens = prompts.tokens(Api.CHAT, body)
        assert packed_tokens is not None
        seconds = best_seconds(lambda body=body: prompts.tokens(Api.CHAT, body))  # type: ignore[misc]
        print(f"tokens of a chat of {len(body)} bytes: {seconds * 1e3:.2f} ms for {len(packed_tokens) // 4}")
    prompts.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
