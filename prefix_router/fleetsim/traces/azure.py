"""Azure traces: CSV with arrivals and lengths, and nothing about the prompts."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from prefix_router.fleetsim.workloads.text import TextSource, single_turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.fleetsim.traces.lines import Line

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
"""The first line of the file."""


class AzureRow(NamedTuple):
    """When a request came, from the first one of the file, and its lengths."""

    seconds: float
    prompt_tokens: int
    output_tokens: int


def azure_rows(lines: Iterable[Line]) -> Iterator[AzureRow]:
    """The rows behind the header. Raises TraceError."""
    start: datetime | None = None
    for line in lines:
        try:
            timestamp, prompt_tokens, output_tokens = line.text.split(",")
            moment = datetime.fromisoformat(timestamp)
            start = start or moment
            yield AzureRow(
                (moment - start).total_seconds(), max(int(prompt_tokens), 1), max(int(output_tokens), 1)
            )
        except (ValueError, TypeError):
            raise line.error(f"expected {HEADER}, got {line.text[:80]!r}") from None


def azure_requests(lines: Iterable[Line]) -> Iterator[SimulatedRequest]:
    """Requests with these arrivals and lengths that have no beginning in common. Raises TraceError."""
    source = TextSource()
    for row in azure_rows(lines):
        yield single_turn(row.seconds, source.new(row.prompt_tokens), row.output_tokens, source.new_session())
