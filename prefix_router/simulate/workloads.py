"""Requests to drive a fleet with, the same on every machine for the same seed.

`SharedPrefixWorkload` is the one of the published prefix-routing benchmark: documents of 8,000 tokens, each
asked about five times with another question, arriving at random (Poisson) in random order. A fleet that
sends requests anywhere finds a document on the replica of its choice about one time in four; one that
always sends a document to the same place four times in five.

Pure: seconds and bodies come out, nobody is called. A document is made when it is first needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHARACTERS_PER_TOKEN = 4
_SYLLABLES = tuple(a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "el", "or"))
# Four letters at least, so that as many words as tokens are always enough.
_WORDS = tuple(first + second for first in _SYLLABLES for second in _SYLLABLES)


class Arrival(NamedTuple):
    """A request body and when it is sent, in seconds from the start of the workload."""

    seconds: float
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SharedPrefixWorkload:
    """Documents that are asked about.

    prefixes: how many documents. uses: questions to each. prefix_tokens, question_tokens: their lengths at
    four characters a token. output_tokens: length of each answer. requests_per_second: mean rate of arrival.
    model: named in each request, or None.
    """

    prefixes: int
    uses: int = 5
    prefix_tokens: int = 8000
    question_tokens: int = 100
    output_tokens: int = 32
    requests_per_second: float = 15.0
    model: str | None = None
    stream: bool = True
    seed: int = 0

    @property
    def requests(self) -> int:
        """How many requests there are."""
        return self.prefixes * self.uses

    @property
    def ideal_hit_rate(self) -> float:
        """Share of prompt tokens that hit when only the first question to each document is cold."""
        shared = self.prefix_tokens / (self.prefix_tokens + self.question_tokens)
        return shared * (self.uses - 1) / self.uses

    def arrivals(self) -> Iterator[Arrival]:
        """The requests in order of time."""
        random = Random(f"{self.seed} order")
        order = [number % self.prefixes for number in range(self.requests)]
        random.shuffle(order)
        documents: dict[int, str] = {}
        seconds = 0.0
        for number, document in enumerate(order):
            seconds += random.expovariate(self.requests_per_second)
            if document not in documents:
                documents[document] = _text(f"{self.seed} document {document}", self.prefix_tokens)
            yield Arrival(seconds, self._body(number, documents[document]))

    def _body(self, number: int, document: str) -> dict[str, Any]:
        messages = [
            {"role": "system", "content": document},
            {"role": "user", "content": _text(f"{self.seed} question {number}", self.question_tokens)},
        ]
        body: dict[str, Any] = {"messages": messages, "max_tokens": self.output_tokens, "stream": self.stream}
        return body if self.model is None else {"model": self.model, **body}


def _text(seed: str, tokens: int) -> str:
    """Nonsense of `tokens` tokens that differs from its first words on for every seed."""
    words = Random(seed).choices(_WORDS, k=tokens)
    return " ".join(words)[: tokens * _CHARACTERS_PER_TOKEN]
