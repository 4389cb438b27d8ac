"""Recorded traffic: request bodies as somebody might have logged them."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")


def words(random: Random, tokens: int) -> str:
    """A text of about so many tokens that nobody else has."""
    count = tokens * 4 // 10
    text = " ".join(f"{random.choice(WORDS)}{random.randrange(10**6)}" for _ in range(count))
    return text[: tokens * 4]


def documents(
    count: int, seed: int = 0, *, document_tokens: int = 2000, uses: int = 5, active: int = 20
) -> list[dict[str, Any]]:
    """Chat requests: questions about documents, `uses` about each, close together."""
    random = Random(seed)
    texts: dict[int, str] = {}
    due = sorted((number // uses + random.uniform(0, active), number // uses) for number in range(count))
    bodies = []
    for _, document in due:
        text = texts.setdefault(document, words(random, document_tokens))
        bodies.append(
            {"model": "m", "messages": [{"role": "user", "content": f"{text}\n{words(random, 30)}"}]}
        )
    return bodies


def unique(count: int, seed: int = 0, *, tokens: int = 500) -> list[dict[str, Any]]:
    """Completion requests that share nothing."""
    random = Random(seed)
    return [{"prompt": words(random, tokens), "max_tokens": 40} for _ in range(count)]


def write(path: Path, lines: Iterable[Any]) -> str:
    """A file with a JSON value a line; texts are written as they are."""
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return str(path)
