"""Prompts and their chains for tests of what looks at them, in one line each."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from prefix_router.routing.chain import BYTES_PER_TOKEN, PrefixChain, prefix_chain

Part = tuple[str, str, bool]
Turn = tuple[str, Sequence[Part]]


@dataclass(frozen=True)
class Prompt:
    said: Sequence[Turn] = ()
    fields: tuple[tuple[str, bytes], ...] = ()
    ids: Sequence[int] | None = None

    def preamble(self) -> Iterable[tuple[str, bytes]]:
        return self.fields

    def token_ids(self, limit: int) -> Sequence[int] | None:
        return None if self.ids is None else self.ids[:limit]

    def turns(self) -> Iterator[Turn]:
        yield from self.said


@dataclass(frozen=True)
class Request:
    prompt: Prompt | None = field(default_factory=Prompt)
    model: str | None = "m"
    cache_salt: str | None = None
    affinity_id: str | None = None


def text(written: str) -> Part:
    return ("text", written, True)


def media(data: str) -> Part:
    return ("image_url", data, False)


def turn(role: str, *texts: str) -> Turn:
    return (role, [text(written) for written in texts])


def chat(*said: Turn, **fields: bytes) -> Request:
    return Request(Prompt(said, tuple(fields.items())))


def conversation(*texts: str, system: str = "") -> Request:
    """A chat in which user and assistant take turns, after a system prompt if there is one."""
    opening = [turn("system", system)] if system else []
    return chat(*opening, *(turn(("user", "assistant")[at % 2], said) for at, said in enumerate(texts)))


def chain_of(request: Request) -> PrefixChain:
    chain = prefix_chain(request)
    assert chain is not None
    return chain


def prose(tokens: int, seed: object) -> str:
    """A text of so many tokens; equal seeds make equal texts, one of which may begin the other."""
    letters = random.Random(repr(seed)).choices("abcdefgh ", k=tokens * BYTES_PER_TOKEN)
    return "".join(letters)


def of_ids(*pieces: tuple[object, int], model: str | None = "m") -> PrefixChain:
    """The chain of a prompt of token ids, whose tokens are exact: pieces of (seed, how many tokens)."""
    ids: list[int] = []
    for seed, tokens in pieces:
        ids += random.Random(repr(seed)).choices(range(50_000), k=tokens)
    return chain_of(Request(Prompt(ids=ids), model=model))
