"""Writes made-up request bodies, for a first look at `prefix-router analyze`: python
scripts/example_traffic.py FILE.

Half are turns of chats behind one system prompt of 1,500 tokens, a third are questions about 150 documents
of 5,000 tokens, some of which are asked about more often than others, the rest share nothing. 20 a second,
with their times. The same file each time.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

REQUESTS = 3000
CHAT_SHARE, DOCUMENT_SHARE = 0.5, 0.35
REQUESTS_PER_SECOND = 20.0
MOST_MESSAGES = 14

_SYLLABLES = (
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "la",
    "me",
    "ni",
    "po",
    "ru",
    "sta",
    "ver",
    "wil",
    "xan",
    "yor",
    "zet",
)


def text(draw: random.Random, tokens: int) -> str:
    """Words that mean nothing, of about four bytes for each token."""
    words = ("".join(draw.choices(_SYLLABLES, k=3)) for _ in range(tokens * 4 // 7))
    return " ".join(words)


def bodies(draw: random.Random) -> list[dict[str, Any]]:
    """The bodies in order."""
    system = {"role": "system", "content": text(draw, 1500)}
    documents = [text(draw, 5000) for _ in range(150)]
    chats: list[list[dict[str, str]]] = []
    made = []
    for _ in range(REQUESTS):
        kind = draw.random()
        if kind < CHAT_SHARE:
            messages = _next_turn(draw, chats, system)
        elif kind < CHAT_SHARE + DOCUMENT_SHARE:
            document = documents[int(draw.random() ** 2 * len(documents))]
            messages = [{"role": "user", "content": f"{document}\n\n{text(draw, 40)}"}]
        else:
            messages = [{"role": "user", "content": text(draw, round(draw.lognormvariate(6, 0.7)))}]
        made.append({"model": "m", "messages": list(messages), "max_tokens": 200})
    return made


def _next_turn(
    draw: random.Random, chats: list[list[dict[str, str]]], system: dict[str, str]
) -> list[dict[str, str]]:
    """The messages of a new chat, or of one that goes on."""
    question = {"role": "user", "content": text(draw, 60)}
    if not chats or draw.random() < 0.2:
        chats.append([system, question])
        return chats[-1]
    chat = draw.choice(chats)
    chat += [{"role": "assistant", "content": text(draw, 150)}, question]
    if len(chat) >= MOST_MESSAGES:
        chats.remove(chat)
    return chat


def main(file: str) -> None:
    """Write the file."""
    draw = random.Random("example traffic")
    seconds = 0.0
    with Path(file).open("w", encoding="utf-8") as lines:
        for body in bodies(draw):
            seconds += draw.expovariate(REQUESTS_PER_SECOND)
            lines.write(json.dumps({"timestamp": round(seconds, 3), "body": body}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
