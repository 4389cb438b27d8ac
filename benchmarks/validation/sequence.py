"""Requests that leave a prefix cache no way to be right by accident. Pure: equal seeds give equal sequences.

A sequence is a list of groups. A group of one request is asked when everything before it has been answered.
In a larger group the first request is long and alone; the others come while its prompt is being computed, so
that the engine finds all of them in its queue when that step ends, in a known order: concurrency that is the
same in every run, whatever the speed of the machine.

Each kind of request has a way of its own to be counted wrongly: see `Kind`. Lengths are around multiples of
a block more often than chance would have it, and all prompts together are many times the size of the cache.
A prompt that continues an answer is not known before that answer is: an `Ask` says whose it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import count
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FIRST_TOKEN_ID, LAST_TOKEN_ID = 3, 4095
"""Token ids that stand for text: the tiny model's special tokens are left out."""


class Kind(Enum):
    """What a request tries."""

    NEW = "new"
    """Nothing of it was ever asked: a hit would be a collision of hashes."""
    REPEAT = "repeat"
    """A prompt as before: all hits but the last token, which costs a whole block when it ends one."""
    ENDING = "other_ending"
    """A known beginning and another end."""
    EXTENSION = "extension"
    """A known prompt and more behind it: the block in which that ended is full only now."""
    FOLLOW_UP = "follow_up"
    """A known prompt, the answer to it, and more: blocks that were filled by generated tokens."""
    MIDDLE = "differs_inside"
    """A known prompt with one token changed inside: nothing from that token's block on is a hit."""
    SHIFTED = "shifted"
    """A known prompt without its first token: the same text, but no block is what it was."""
    SAME_STEP = "same_step"
    """A new beginning that several requests share, all of them computed in one step."""
    CHUNKED = "chunked"
    """The same with a beginning that takes more than one step."""
    PRESSURE = "pressure"
    """Long answers, more than the cache can hold at a time: somebody is preempted."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. tokens: its prompt, or what comes behind the prompt and the answer of request `continues`.

    kind: what it tries. output_tokens: the length of its answer, at least 1.
    """

    kind: Kind
    tokens: tuple[int, ...]
    output_tokens: int
    continues: int | None = None

    def prompt(self, asked: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> tuple[int, ...]:
        """The whole prompt, given prompts and answers of the requests before it."""
        if self.continues is None:
            return self.tokens
        prompt, answer = asked[self.continues]
        return prompt + answer + self.tokens


Group = tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """What a sequence is made for: the engine's numbers, and how much of each.

    single: requests asked one by one. groups: groups of each of the three concurrent kinds.
    """

    block_size: int
    cache_tokens: int
    step_token_budget: int
    single: int
    groups: int
    seed: str = "validation"


def mixed_sequence(spec: SequenceSpec) -> list[Group]:
    """Single requests of all kinds, with the concurrent groups spread among them."""
    return list(_Builder(spec).groups())


class _Builder:
    def __init__(self, spec: SequenceSpec) -> None:
        self._spec = spec
        self._draws = Random(spec.seed)
        self._longest = spec.cache_tokens // 4
        self._numbers = count()
        self._known: list[tuple[int, ...]] = []
        """Whole prompts that are known without any answer."""
        self._recent: list[tuple[int, int]] = []
        """Number and length of requests that may be continued."""

    def groups(self) -> Iterator[Group]:
        concurrent = [
            make
            for _ in range(self._spec.groups)
            for make in (self._same_step, self._chunked, self._pressure)
        ]
        due = self._spec.single / (len(concurrent) + 1)
        for number in range(self._spec.single):
            yield (self._take(self._single()),)
            while concurrent and number + 1 >= due * (self._spec.groups * 3 - len(concurrent) + 1):
                yield tuple(self._take(ask) for ask in concurrent.pop(0)())
        for make in concurrent:
            yield tuple(self._take(ask) for ask in make())

    def _take(self, ask: Ask) -> Ask:
        """Count a request and remember it."""
        number = next(self._numbers)
        length = len(ask.tokens)
        if ask.continues is None:
            self._known.append(ask.tokens)
        else:
            length += self._longest // 2
        if ask.output_tokens > 1 and length < self._longest:
            self._recent.append((number, length))
        return ask

    def _single(self) -> Ask:
        draws = self._draws
        kind = draws.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))[0]
        output = draws.choice((1, 1, 2, self._spec.block_size // 2, self._spec.block_size + 1))
        if kind is Kind.FOLLOW_UP and self._recent:
            number, _length = self._recent.pop(-draws.randint(1, min(4, len(self._recent))))
            return Ask(kind, self._text(self._length() // 4 + 1), output, continues=number)
        if kind is Kind.NEW or not self._known:
            return Ask(Kind.NEW, self._text(self._length()), output)
        # Mostly something recent, which is still cached, sometimes something that was evicted long ago.
        known = self._known[-1 - min(int(draws.expovariate(1 / 6)), len(self._known) - 1)]
        end = draws.randrange(len(known))
        if kind is Kind.ENDING:
            return Ask(kind, known[:end] + self._text(draws.randint(1, self._length())), output)
        if kind is Kind.EXTENSION and len(known) < self._longest:
            return Ask(kind, known + self._text(draws.randint(1, 2 * self._spec.block_size)), output)
        if kind is Kind.MIDDLE:
            return Ask(kind, (*known[:end], self._token(), *known[end + 1 :]), output)
        if kind is Kind.SHIFTED and len(known) > 1:
            return Ask(kind, known[1:], output)
        return Ask(Kind.REPEAT, known, output)

    def _same_step(self) -> Iterator[Ask]:
        yield self._plug()
        shared = self._text(self._spec.step_token_budget // 4)
        for _ in range(3):
            yield Ask(Kind.SAME_STEP, shared + self._text(self._draws.randint(1, self._spec.block_size)), 2)

    def _chunked(self) -> Iterator[Ask]:
        yield self._plug()
        shared = self._text(self._spec.step_token_budget * 5 // 4)
        for extra in (1, self._spec.block_size, 1):
            yield Ask(Kind.CHUNKED, shared + self._text(extra), 2)

    def _pressure(self) -> Iterator[Ask]:
        yield self._plug()
        # Five prompts take nine tenths of the cache; the answers to them would take another fifth.
        for _ in range(5):
            prompt = self._text(
                self._spec.cache_tokens * 9 // 50 - self._draws.randrange(self._spec.block_size)
            )
            yield Ask(Kind.PRESSURE, prompt, self._spec.cache_tokens // 25)

    def _plug(self) -> Ask:
        """The request that keeps the engine busy for one step while the others of its group arrive."""
        return Ask(Kind.NEW, self._text(self._spec.step_token_budget - 1), 1)

    def _length(self) -> int:
        """A prompt's length: every second one is a multiple of a block, or one off."""
        tokens = self._draws.randint(1, self._longest)
        if self._draws.random() < 0.5:
            blocks = max(tokens // self._spec.block_size, 1)
            tokens = blocks * self._spec.block_size + self._draws.choice((-1, 0, 1))
        return tokens

    def _text(self, length: int) -> tuple[int, ...]:
        return tuple(self._token() for _ in range(length))

    def _token(self) -> int:
        return self._draws.randint(FIRST_TOKEN_ID, LAST_TOKEN_ID)


_WEIGHTS = {
    Kind.NEW: 4,
    Kind.REPEAT: 3,
    Kind.ENDING: 5,
    Kind.EXTENSION: 3,
    Kind.FOLLOW_UP: 4,
    Kind.MIDDLE: 3,
    Kind.SHIFTED: 1,
}
"""How often each kind is asked on its own."""
