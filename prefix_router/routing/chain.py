"""The prefix chain: hashes of ever longer beginnings of one prompt.

A prefix key is one hash of one beginning. What looks deeper needs several: where does a popular beginning
branch (`routing.depth`), and how much of this prompt does each backend hold (`routing.holdings`)? So the
whole prompt is laid out as one text, as `routing.key` does it, and hashed up to each of a fixed series of
lengths, the levels. Level i of two chains is equal exactly if their first `LEVEL_TOKENS[i]` tokens are.

Tokens are four bytes of UTF-8 text each, marks included, and one id each in a prompt of token ids; tools and
template arguments count, since an engine computes them too. Levels are 64 tokens apart up to 4,096 tokens,
then further apart with their length, 3% of it, so that a prompt of 128,000 tokens has 222 of them. Beyond
`LONGEST_TOKENS` a prompt has no levels: what differs only there counts as equal.

A chat grows, and its turns end between two levels. So the places where a prompt of this conversation has
ended before, ahead of each answer, have hashes of their own, and so has the end of this prompt (`ends`).

Cost: 0.2 µs for each level, and the encoding of the text. `tests/data/chain_golden.json` pins the hashes,
which must be the same in every process, on every host and in every later version.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_64_intdigest, xxh3_128_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefix_router.routing.key_views import PromptView, RequestView

VERSION = b"prefix chain 1"
"""Hashed first. Another value moves every prefix of a fleet to another home."""

LONGEST_TOKENS = 1 << 18
MOST_ENDS = 4
"""How many ends are kept of the beginning, and how many of the end of a conversation."""
BYTES_PER_TOKEN = 4

_STEP = 64
_EVEN_UNTIL = 4096
_STEPS_PER_DOUBLING = 32
_WHOLE_BYTES = 256
"""Longer texts that do not count (data of an image) enter as digests: their size says nothing of tokens."""


def _levels() -> Iterator[int]:
    tokens = _STEP
    while tokens <= LONGEST_TOKENS:
        yield tokens
        doubling = 1 << (tokens.bit_length() - 1)
        tokens += _STEP if tokens < _EVEN_UNTIL else doubling // _STEPS_PER_DOUBLING


LEVEL_TOKENS = tuple(_levels())
"""How many tokens each level covers, ascending."""

_BOUNDS = tuple(tokens * BYTES_PER_TOKEN for tokens in LEVEL_TOKENS)
_PIECES = tuple(map(slice, (0, *_BOUNDS), _BOUNDS))
"""What each level adds to the one before."""

_MARK = b"\xff\xff\xff\xff"
"""UTF-8 never has these bytes, so that no text can pass for a mark."""


class PromptEnd(NamedTuple):
    """Where a prompt of this conversation ended, or ends.

    tokens: from the beginning of the prompt. name: the hash of all up to there. answer_tokens: the length of
    the answer that follows it; 0 for the end of this prompt. Who answered that prompt has computed it, too.
    """

    tokens: int
    name: int
    answer_tokens: int = 0


class PrefixChain(NamedTuple):
    """The chain of one prompt.

    names: the 64-bit hashes of its levels, shortest first; there are as many as fit its length. tokens: the
    length of the whole prompt, at least 1. ends: the first and the last few, in order, the last one being the
    end of this prompt.
    """

    names: Sequence[int]
    tokens: int
    ends: Sequence[PromptEnd]

    def levels(self) -> int:
        """How many levels it has."""
        return len(self.names)


def prefix_chain(request: RequestView) -> PrefixChain | None:
    """The chain of a request, None when it has no prompt or one that cannot be read."""
    prompt = request.prompt
    if prompt is None:
        return None
    try:
        root = _root(request)
        text, ends = _lay_out(prompt)
    except ValueError:
        return None
    return _chain(root, text, ends)


def block_chain(request: RequestView, block_tokens: int) -> PrefixChain | None:
    """The chain with a level every `block_tokens` tokens, and one more for a rest that is shorter.

    For who looks at blocks as an engine has them, such as an analysis of traffic; with short steps it costs
    several times as much. Its hashes are not those of `prefix_chain`, and nothing pins them.
    """
    if request.prompt is None:
        return None
    try:
        text, ends = _lay_out(request.prompt)
    except ValueError:
        return None
    scope = (request.model, request.cache_salt, request.affinity_id)
    root = name = xxh3_64_intdigest(repr(scope).encode())
    step = block_tokens * BYTES_PER_TOKEN
    names = [
        name := xxh3_64_intdigest(text[start : start + step], name) for start in range(0, len(text), step)
    ]
    found = []
    for end, answer_end in ends:
        whole = end // step
        above = names[whole - 1] if whole else root
        name = xxh3_64_intdigest(text[whole * step : end], above)
        found.append(PromptEnd(_tokens(end), name, _tokens(answer_end - end)))
    return PrefixChain(names, _tokens(len(text)) or 1, found)


def _root(request: RequestView) -> int:
    """What all levels of the prompts of one model, salt and tenant have in common."""
    pieces = [VERSION]
    for name, value in (
        ("model", request.model),
        ("cache_salt", request.cache_salt),
        ("affinity_id", request.affinity_id),
    ):
        if value is not None:
            pieces += (_mark("field", name), value.encode())
    return xxh3_64_intdigest(b"".join(pieces))


def _lay_out(prompt: PromptView) -> tuple[bytes, list[tuple[int, int]]]:
    """The prompt as one text, and its ends: where each is, and where the answer after it ends, in bytes."""
    pieces: list[bytes] = []
    for name, canonical in prompt.preamble():
        pieces += (_mark("field", name), canonical)
    ids = prompt.token_ids(LONGEST_TOKENS)
    if ids is not None:
        pieces.append(struct.pack(f"<{len(ids)}I", *ids))
        text = b"".join(pieces)
        return text, [(len(text), len(text))]
    ends: list[tuple[int, int]] = []
    size = sum(map(len, pieces))
    limit = _BOUNDS[-1]
    answered = True
    for role, parts in prompt.turns():
        before, start = len(pieces), size
        pieces.append(_mark("turn", role))
        for kind, said, counted in parts:
            pieces.append(_mark("part", kind))
            pieces.append(said.encode() if counted else _identity(said))
        size += sum(map(len, islice(pieces, before, None)))
        if role != "assistant":
            answered = False
        elif not answered:
            answered = True
            ends.append((start, size))
        if size >= limit:
            break
    ends.append((size, size))
    if len(ends) > 2 * MOST_ENDS:
        del ends[MOST_ENDS:-MOST_ENDS]
    return b"".join(pieces), ends


def _chain(root: int, text: bytes, ends: list[tuple[int, int]]) -> PrefixChain:
    size = len(text)
    name = root
    pieces = _PIECES[: bisect_right(_BOUNDS, size)]
    names = [name := xxh3_64_intdigest(text[piece], name) for piece in pieces]
    return PrefixChain(names, _tokens(size) or 1, [_end(root, text, names, *end) for end in ends])


def _end(root: int, text: bytes, names: list[int], end: int, answer_end: int) -> PromptEnd:
    level = bisect_right(_BOUNDS, end, hi=len(names))
    above, start = (names[level - 1], _BOUNDS[level - 1]) if level else (root, 0)
    name = xxh3_64_intdigest(text[start:end], above)
    return PromptEnd(_tokens(end), name, _tokens(answer_end - end))


def _tokens(size: int) -> int:
    return -(-size // BYTES_PER_TOKEN)


def _identity(text: str) -> bytes:
    data = text.encode()
    return data if len(data) <= _WHOLE_BYTES else xxh3_128_digest(data)


@lru_cache(maxsize=256)
def _mark(kind: str, name: str) -> bytes:
    return b"%b%b\xfe%b\xfe" % (_MARK, kind.encode(), name.encode())
