"""Who holds how much of a prompt: the seam between a strategy that asks and an index that knows.

A strategy that prices the work a request adds needs, for each backend, how many of the prompt's tokens are in
its KV cache already. Two kinds of index can answer: an approximate one, made from what was sent where, and an
exact one, made from what the engines themselves report (`kv_events`). The strategy does not care which.

A prompt is asked for by the chained names of its blocks: a name stands for its block and all before it, so
equal names mean equal beginnings. How names are made and how many tokens a block has is between the index
and whoever makes the names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from prefix_router.routing.fleet import BackendName


class Holdings(Protocol):
    """Who holds how much of a prompt."""

    def held_tokens(self, blocks: Sequence[int]) -> Mapping[BackendName, int]:
        """Return, for each backend that is known, how many tokens it holds of the blocks, from the first on.

        blocks: the chained names of the prompt's blocks, first to last. A backend of which nothing is known
        is left out, which is not the same as 0.
        """
