"""The wire format of vLLM's KV events: from the bytes of one batch to typed events.

A batch is msgpack: `[timestamp, events, data_parallel_rank]`. Current versions write an event as a map with a
`type`, older ones as an array that begins with the type and then has the fields in the order of the class:

    BlockStored       block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium, lora_name,
                      extra_keys, group_idx, kv_cache_spec_kind, …
    BlockRemoved      block_hashes, medium, group_idx, …
    AllBlocksCleared

Both are read here, field by field, because fields come and go between versions: what is missing has a
default, what is new is passed over. An event of an unknown type, or one whose fields have impossible types,
is left out and counted; a batch that is no batch gives None. Never raises, whatever the bytes are: they
come from a network.

Cost: one pass of msgspec that builds plain objects, and one that packs the token ids; 60 ns for each of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

EngineHash: TypeAlias = int | bytes
"""What an engine calls a block: 64 bits of its own hash, or all of it."""


class BlockStored(msgspec.Struct, frozen=True):
    """Blocks that came into a cache, each the parent of the next.

    parent: the block before the first one; None at the beginning of a prompt. tokens: the ids, `pack`ed.
    extra_keys: for each block what else made its hash (adapter, salt, media), () for nothing; None when
    there is nothing for any of them, or when the version does not say. medium: where the blocks are, None
    in old versions. group: of a hybrid model's several caches. kind: what attention that group serves.
    """

    hashes: Sequence[EngineHash]
    parent: EngineHash | None
    tokens: bytes
    block_size: int
    lora_name: str | None = None
    medium: str | None = None
    extra_keys: Sequence[Sequence[Any]] | None = None
    group: int = 0
    kind: str | None = None


class BlockRemoved(msgspec.Struct, frozen=True):
    """Blocks that a cache dropped."""

    hashes: Sequence[EngineHash]
    medium: str | None = None
    group: int = 0


class AllBlocksCleared(msgspec.Struct, frozen=True):
    """A cache that dropped everything."""


Event: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared


class Batch(msgspec.Struct, frozen=True):
    """What one step of an engine did to its cache.

    time: when, in seconds since 1970 by the engine's clock. rank: the engine's data-parallel rank. unknown:
    events of types that nobody here knows. malformed: events that are not shaped as their type says.
    """

    time: float
    events: Sequence[Event]
    rank: int
    unknown: int = 0
    malformed: int = 0


_STORED_FIELDS = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
)
_REMOVED_FIELDS = ("block_hashes", "medium", "group_idx")

_HASH_TYPES = frozenset((int, bytes))

_decoder = msgspec.msgpack.Decoder()


class _MalformedError(ValueError):
    """A value has a type that its field cannot have."""


TOKEN_BYTES = array("I").itemsize


def pack(token_ids: Sequence[int]) -> bytes:
    """Return token ids as bytes, `TOKEN_BYTES` each, in the order of this machine.

    Raises TypeError, or OverflowError for an id that is not from 0 to 2**32 - 1.
    """
    return array("I", token_ids).tobytes()


def decode(payload: bytes) -> Batch | None:
    """Return the batch, None when the bytes are none. Never raises."""
    try:
        fields = _decoder.decode(payload)
    except (ValueError, RecursionError, TypeError):  # TypeError: a map with unhashable keys
        return None
    if not isinstance(fields, list) or len(fields) < 2:
        return None
    time, entries = fields[:2]
    rank = fields[2] if len(fields) > 2 else None
    if not _is_number(time) or not isinstance(entries, list) or not (rank is None or _is_count(rank)):
        return None
    events: list[Event] = []
    unknown = malformed = 0
    for entry in entries:
        try:
            event = _event(entry)
        except _MalformedError:
            malformed += 1
            continue
        if event is None:
            unknown += 1
        else:
            events.append(event)
    return Batch(float(time), events, rank or 0, unknown, malformed)


def _event(entry: Any) -> Event | None:
    """Return the event, None for an unknown type. Raises _MalformedError."""
    if isinstance(entry, dict):
        kind, fields = entry.get("type"), entry
    elif isinstance(entry, list) and entry:
        kind = entry[0]
        names = _REMOVED_FIELDS if kind == "BlockRemoved" else _STORED_FIELDS
        fields = dict(zip(names, entry[1:], strict=False))
    else:
        raise _MalformedError
    match kind:
        case "BlockStored":
            return _stored(fields)
        case "BlockRemoved":
            return BlockRemoved(_hashes(fields), _text(fields, "medium"), _group(fields))
        case "AllBlocksCleared":
            return AllBlocksCleared()
        case str():
            return None
    raise _MalformedError


def _stored(fields: Mapping[str, Any]) -> BlockStored:
    hashes = _hashes(fields)
    parent, token_ids = fields.get("parent_block_hash"), fields.get("token_ids")
    block_size = fields.get("block_size")
    if not (parent is None or type(parent) in _HASH_TYPES) or not isinstance(token_ids, list):
        raise _MalformedError
    if not isinstance(block_size, int) or not _is_count(block_size):
        raise _MalformedError
    try:
        tokens = pack(token_ids)
    except (TypeError, OverflowError):
        raise _MalformedError from None
    return BlockStored(
        hashes,
        parent,
        tokens,
        block_size,
        _text(fields, "lora_name"),
        _text(fields, "medium"),
        _extra_keys(fields.get("extra_keys"), len(hashes)),
        _group(fields),
        _text(fields, "kv_cache_spec_kind"),
    )


def _hashes(fields: Mapping[str, Any]) -> Sequence[EngineHash]:
    hashes = fields.get("block_hashes")
    if not isinstance(hashes, list) or not _HASH_TYPES.issuperset(map(type, hashes)):
        raise _MalformedError
    return hashes


def _extra_keys(keys: Any, blocks: int) -> Sequence[Sequence[Any]] | None:
    if keys is None:
        return None
    if not isinstance(keys, list) or len(keys) != blocks:
        raise _MalformedError
    if not all(entry is None or isinstance(entry, list) for entry in keys):
        raise _MalformedError
    return [entry or () for entry in keys] if any(keys) else None


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value
    raise _MalformedError


def _group(fields: Mapping[str, Any]) -> int:
    group = fields.get("group_idx")
    if group is None:
        return 0
    if not _is_count(group):
        raise _MalformedError
    return int(group)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**32


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)
