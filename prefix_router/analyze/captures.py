"""Reads what a router has captured (`observe.capture_line`): beginnings as hashes, at levels and ends of
prompts.

The analysis wants blocks of 16 tokens. A block is named after the first level or end that covers all of it,
so blocks are equal where those are. Of the ends only the first few count, which every later prompt of a
conversation has as well, and the prompt's own. What lies behind the last of them is taken to be nobody
else's: two prompts share a little more than is seen here, 64 tokens at most up to 4,096 and 3% beyond.
"""

from __future__ import annotations

import struct

import msgspec
from xxhash import xxh3_64_intdigest

from prefix_router.analyze.record import GENERATING, RecordedRequest, UnusableLineError
from prefix_router.fleetsim.request import BLOCK_TOKENS
from prefix_router.observe.capture_line import FORMAT, CapturedRequest, CaptureHead, names_of
from prefix_router.routing.chain import LEVEL_TOKENS, MOST_ENDS, PromptEnd

_GENERATING = frozenset(api.value for api in GENERATING)

_head = msgspec.json.Decoder(CaptureHead)
_request = msgspec.json.Decoder(CapturedRequest)


def is_head(line: bytes) -> bool:
    """Whether this is the first line of a capture."""
    return line.startswith(b'{"capture":')


def read_head(line: bytes) -> CaptureHead:
    """The head of a capture. Raises ValueError when it is damaged, or of a format that is not known."""
    head = _head.decode(line)
    if head.capture != FORMAT:
        raise ValueError(f"a capture of format {head.capture}; this version reads format {FORMAT}")
    return head


def read_captured(line: bytes, number: int) -> RecordedRequest:
    """The request of a line of a capture. Raises UnusableLineError. number: another one for each line."""
    try:
        captured = _request.decode(line)
        levels = names_of(captured.levels)
        ends = [PromptEnd(tokens, names_of(name)[0]) for tokens, name in captured.ends]
    except (ValueError, IndexError):
        raise UnusableLineError("not a line of a capture") from None
    if captured.api not in _GENERATING:
        raise UnusableLineError("nothing is generated on its path")
    own = PromptEnd(captured.tokens, number)
    lasting = [*ends[:MOST_ENDS], *ends[-1:]]
    marks = [*zip(LEVEL_TOKENS, levels, strict=False), *((end.tokens, end.name) for end in lasting)]
    if len(levels) > len(LEVEL_TOKENS) or any(tokens > captured.tokens for tokens, _ in marks):
        raise UnusableLineError("not a line of a capture")
    return RecordedRequest(
        _blocks(marks, captured.tokens, number),
        captured.tokens,
        ends[0] if ends else own,
        seconds=captured.time,
        output_tokens=captured.completion_tokens or None,
        counted_tokens=captured.prompt_tokens or None,
        cached_tokens=captured.cached_tokens,
        first_token_seconds=captured.first_token_seconds,
    )


def _blocks(marks: list[tuple[int, int]], tokens: int, number: int) -> list[int]:
    """A name for each block of a prompt. marks: where a beginning ends, in tokens, and its name."""
    names: list[int] = []
    for end, name in sorted(marks):
        # A mark at the very end names the partial block there, too: it is the same in an equal prompt.
        last = -(-end // BLOCK_TOKENS) if end == tokens else end // BLOCK_TOKENS
        names += (_derived(name, block) for block in range(len(names), last))
    own = _derived(number, -1)
    names += (_derived(own, block) for block in range(len(names), -(-tokens // BLOCK_TOKENS)))
    return names


def _derived(name: int, block: int) -> int:
    return xxh3_64_intdigest(struct.pack("<Qq", name, block))
