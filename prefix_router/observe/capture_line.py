"""The lines of a capture: what is written of a request so that its sharing can be studied, and nothing to
read.

A capture is JSON lines. The first is a `CaptureHead`, each other one a `CapturedRequest`. Of the prompt there
are only hashes of its beginnings (`routing.chain`), and those are hashed again with a key that nobody knows:
drawn at random for each file, kept in memory only, gone with the process. Within a file equal beginnings have
equal names; with any other file, or with a prompt that somebody suspects to be in it, nothing can be
compared. A keyed BLAKE2 and not a seeded XXH3: that one can be solved for its seed, and then texts could be
looked up.

The same module writes and reads, so that the format has one home. Cost: 1.2 µs for each level of a prompt.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prefix_router.observe.events import RequestRecord
    from prefix_router.routing.chain import PrefixChain

FORMAT = 1
"""Of the lines. A reader refuses what it does not know."""

NAME_BYTES = 8
KEY_BYTES = 32

_Count = Annotated[int, Meta(ge=0)]
_Seconds = Annotated[float, Meta(ge=0)]


class CaptureHead(Struct, frozen=True, kw_only=True):
    """The first line. sample: the part of the conversations that is in the file, above 0, at most 1."""

    capture: int = FORMAT
    sample: Annotated[float, Meta(gt=0, le=1)] = 1.0


class CapturedRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request.

    time: when its head was read, Unix seconds. tokens: of its prompt, estimated. levels: the names of its
    chain in Base64, eight bytes each, little-endian, at `routing.chain.LEVEL_TOKENS` tokens. ends: where it
    and earlier prompts of its conversation end, tokens and name. model: a hash. prompt_tokens,
    cached_tokens, completion_tokens: as the engine counted them, where it said so.
    """

    time: _Seconds
    api: str
    tokens: Annotated[int, Meta(ge=1)]
    levels: str
    ends: tuple[tuple[_Count, str], ...] = ()
    model: str | None = None
    status: int = 0
    backend: str | None = None
    reason: str | None = None
    prompt_tokens: _Count | None = None
    cached_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    first_token_seconds: _Seconds | None = None
    duration_seconds: _Seconds = 0.0


class Names:
    """Gives hashes names that mean something within one file only. key: secret, `KEY_BYTES` random bytes."""

    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(key=key, digest_size=NAME_BYTES)

    def of(self, value: bytes) -> bytes:
        """The name of one value; the same for equal values."""
        keyed = self._keyed.copy()
        keyed.update(value)
        return keyed.digest()

    def line_of(self, record: RequestRecord, chain: PrefixChain, time: float) -> CapturedRequest:
        """What is written of a request. time: when it began, Unix seconds."""
        return CapturedRequest(
            time=round(time, 3),
            api=record.api,
            tokens=chain.tokens,
            levels=b64encode(b"".join(self._numbers(chain.names))).decode(),
            ends=tuple(
                (end.tokens, b64encode(name).decode())
                for end, name in zip(chain.ends, self._numbers(end.name for end in chain.ends), strict=True)
            ),
            model=None
            if record.model is None
            else self.of(record.model.encode("utf-8", "surrogatepass")).hex(),
            status=record.status,
            backend=record.backend,
            reason=None if record.reason is None else record.reason.value,
            prompt_tokens=record.prompt_tokens,
            cached_tokens=record.cached_tokens,
            completion_tokens=record.completion_tokens,
            first_token_seconds=_rounded(record.first_token_seconds),
            duration_seconds=_rounded(record.duration_seconds) or 0.0,
        )

    def _numbers(self, numbers: Iterable[int]) -> Iterable[bytes]:
        return (self.of(number.to_bytes(NAME_BYTES, "little")) for number in numbers)


def names_of(text: str) -> Sequence[int]:
    """The names that a line holds in Base64. Raises ValueError for a text that does not hold whole names."""
    data = b64decode(text, validate=True)
    count, rest = divmod(len(data), NAME_BYTES)
    if rest:
        raise ValueError(f"{len(data)} bytes are no whole names")
    return struct.unpack(f"<{count}Q", data)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
