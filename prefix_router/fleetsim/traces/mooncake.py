"""Mooncake traces: JSON lines with an id for each 512 tokens of a prompt.

Equal ids mean equal tokens after an equal prefix; the last one may stand for fewer than 512. Here each
becomes the ids of its 16-token blocks, as far as the prompt reaches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from prefix_router.fleetsim.request import BLOCK_TOKENS, SimulatedRequest
from prefix_router.fleetsim.traces.block_parts import BlockParts
from prefix_router.fleetsim.traces.lines import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prefix_router.fleetsim.traces.lines import Line

HASH_TOKENS = 512
"""Tokens that one id stands for."""

_Id = Annotated[int, msgspec.Meta(ge=0, lt=2**56)]


class _Row(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    input_length: Annotated[int, msgspec.Meta(ge=1)]
    output_length: Annotated[int, msgspec.Meta(ge=0)]
    hash_ids: list[_Id]


_ROW = msgspec.json.Decoder(_Row)


def mooncake_requests(lines: Iterable[Line]) -> Iterator[SimulatedRequest]:
    """A request for each line, at its time. Raises TraceError."""
    parts = BlockParts(HASH_TOKENS)
    for line in lines:
        row = decode(line, _ROW)
        needed = -(-row.input_length // HASH_TOKENS)
        if len(row.hash_ids) != needed:
            raise line.error(f"{row.input_length} tokens need {needed} hash_ids, got {len(row.hash_ids)}")
        yield SimulatedRequest(
            arrival_seconds=row.timestamp / 1e3,
            blocks=tuple(parts.of(row.hash_ids)[: -(-row.input_length // BLOCK_TOKENS)]),
            prompt_tokens=row.input_length,
            output_tokens=max(row.output_length, 1),
        )
