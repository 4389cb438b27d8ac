"""One request inside the engine: what it asks for, and how far the engine has come with it.

The number of output tokens is known from the start, as in a trace; a real engine finds it out token by
token, but nothing in the scheduler uses the foresight except to stop. Mutable, compared by identity, with
slots: an engine holds a thousand and touches each of them every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class RequestStatus(Enum):
    """Where a request is in its life."""

    WAITING = "waiting"
    """Not admitted yet, or preempted: holds no blocks."""
    RUNNING = "running"
    """Admitted: holds blocks, its prompt is being computed or its output generated."""
    FINISHED = "finished"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class EngineRequest:
    """A request. The first four fields are the caller's; the engine alone changes the others.

    prompt_tokens, output_tokens: at least 1 each.
    block_hashes: names of the full blocks of the prompt and, where anyone may ask for them again, of the
        output behind it (see `block_hash`). May be shorter than the tokens: what has no name is not reused.
    context: whatever the caller wants to find again when the engine hands the request back.
    cached_tokens: prompt tokens found in the cache when the request was first admitted.
    computed_tokens: tokens whose KV is in the blocks, exact while the prompt is being computed.
    published_blocks: how many of its blocks are named, or have no name to get.
    chunk_tokens: what the step in progress computes of its prompt.
    next_stop: the number of generated tokens at which the scheduler must look at it again.
    """

    prompt_tokens: int
    output_tokens: int
    block_hashes: Sequence[int] = ()
    context: object = None

    status: RequestStatus = field(default=RequestStatus.WAITING, init=False)
    generated_tokens: int = field(default=0, init=False)
    cached_tokens: int = field(default=0, init=False)
    preemptions: int = field(default=0, init=False)
    computed_tokens: int = field(default=0, init=False)
    blocks: list[int] = field(default_factory=list, init=False, repr=False)
    published_blocks: int = field(default=0, init=False, repr=False)
    chunk_tokens: int = field(default=0, init=False, repr=False)
    next_stop: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError(
                f"a request needs at least one prompt and one output token, "
                f"got {self.prompt_tokens} and {self.output_tokens}"
            )

    @property
    def total_tokens(self) -> int:
        """Prompt and output so far: what must be in the cache before the next token can come."""
        return self.prompt_tokens + self.generated_tokens
