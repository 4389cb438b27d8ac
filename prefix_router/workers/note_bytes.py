"""Notes as bytes: what a worker writes into its ring of the journal.

A kind, some numbers, and for a prompt its names at 8 bytes each: a few dozen bytes, or 2 kB for a prompt of
128,000 tokens. Numbers that a backend has made up are cut to what fits. All workers run the same code, so
there are no versions. What cannot be read gives None, never an error.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import assert_never

from prefix_router.routing.strategies.shared import Ended, FirstToken, Gone, Note, Sent

_GONE, _SENT, _FIRST_TOKEN, _ENDED = range(1, 5)
_MOST = (1 << 31) - 1
_UNKNOWN = -1
_NAME_BYTES = 8

_gone = Struct("<Bd")
_sent = Struct("<BQdQi?")
_first_token = Struct("<BQd")
_ended = Struct("<BQdQiiii")


def to_bytes(note: Note) -> bytes:
    """The note as bytes; its first one is never 0."""
    match note:
        case Sent(visit, at, backend, missing_tokens, streamed, names):
            head = _sent.pack(_SENT, visit, at, backend, _fitting(missing_tokens), streamed)
            return head + array("Q", names).tobytes()
        case FirstToken(visit, at):
            return _first_token.pack(_FIRST_TOKEN, visit, at)
        case Ended(visit, at, backend, tokens, expected, observed, completion):
            seen = _UNKNOWN if observed is None else _fitting(observed)
            numbers = _fitting(tokens), _fitting(expected), seen, _fitting(completion)
            return _ended.pack(_ENDED, visit, at, backend, *numbers)
        case Gone(at):
            return _gone.pack(_GONE, at)
        case _:
            assert_never(note)


def from_bytes(data: bytes) -> Note | None:
    """The note that `to_bytes` was given; None when these are no bytes of one."""
    kind, size = data[0] if data else 0, len(data)
    if kind == _SENT and size >= _sent.size and not (size - _sent.size) % _NAME_BYTES:
        _, visit, at, backend, missing_tokens, streamed = _sent.unpack_from(data)
        return Sent(visit, at, backend, missing_tokens, streamed, array("Q", data[_sent.size :]))
    if kind == _FIRST_TOKEN and size == _first_token.size:
        _, visit, at = _first_token.unpack(data)
        return FirstToken(visit, at)
    if kind == _ENDED and size == _ended.size:
        _, visit, at, backend, tokens, expected, seen, completion = _ended.unpack(data)
        return Ended(visit, at, backend, tokens, expected, None if seen == _UNKNOWN else seen, completion)
    if kind == _GONE and size == _gone.size:
        return Gone(_gone.unpack(data)[1])
    return None


def _fitting(number: int) -> int:
    return min(max(number, 0), _MOST)
