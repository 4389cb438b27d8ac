"""Prompts that share prefixes, and what a perfect cache would make of them. Pure.

A prefix is a long system prompt; an ending is the user's question. Every prefix is asked once a round, and a
round ends before the next begins, so no two requests with one prefix ever run at the same time: whatever is
cold is cold because of where it was sent.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pydoc_data.topics import topics

_WORDS = sorted({word for text in topics.values() for word in re.findall(r"[a-z]{4,9}", text)})

Message = dict[str, str]


def some_text(draws: random.Random, words: int) -> str:
    """Return `words` English words in random order: about 2.2 tokens each with the tiny model's tokenizer."""
    return " ".join(draws.choices(_WORDS, k=words))


@dataclass(frozen=True, slots=True)
class SharedPrefixWorkload:
    """`rounds` rounds over `prefixes` prefixes of `prefix_words` words. Equal fields give equal prompts."""

    seed: str
    prefixes: int
    rounds: int
    prefix_words: int
    ending_words: int = 8

    def conversations(self) -> list[list[list[Message]]]:
        """Return, for each round, one conversation for each prefix, in an order of the round's own."""
        draws = random.Random(self.seed)
        prefixes = [some_text(draws, self.prefix_words) for _ in range(self.prefixes)]
        return [
            [
                [
                    {"role": "system", "content": prefix},
                    {"role": "user", "content": some_text(draws, self.ending_words)},
                ]
                for prefix in draws.sample(prefixes, k=len(prefixes))
            ]
            for _ in range(self.rounds)
        ]


def ideal_hit_tokens(prompts: Iterable[Sequence[int]], block_size_tokens: int) -> int:
    """Return the prefix-cache hits of one cache that forgets nothing and is asked the prompts in turn.

    prompts: token ids. vLLM's rules: only whole blocks hit, a block hits only after all blocks before it, and
    the last token of a prompt is always computed. This is what a fleet can reach at best.
    """
    seen: set[tuple[int, ...]] = set()
    hits = 0
    for prompt in prompts:
        ends = range(block_size_tokens, len(prompt) + 1, block_size_tokens)
        for end in ends:
            if end > len(prompt) - 1 or tuple(prompt[:end]) not in seen:
                break
            hits += block_size_tokens
        seen.update(tuple(prompt[:end]) for end in ends)
    return hits


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile: the smallest value that `percent` of the values do not exceed."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]
