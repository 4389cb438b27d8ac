"""One recorded request, whatever it was read from, as the analysis sees it. Holds hashes, never text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prefix_router.openai_api.request import Api

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.routing.chain import PromptEnd

GENERATING = frozenset(
    {Api.CHAT, Api.COMPLETIONS, Api.RESPONSES, Api.MESSAGES, Api.GENERATE, Api.INVOCATIONS}
)
"""APIs whose prompts fill a KV cache for an answer. Embeddings and the like have no first token to wait
for.
"""


class RecordedRequest(NamedTuple):
    """A request.

    names: the chained names of its blocks of 16 tokens, the last of which may be partial; names are equal
        exactly if everything up to the end of their blocks is. tokens: of its prompt, estimated; at least
        1. first_end: where the first prompt of its conversation ended; its own end for a first prompt.
        seconds: when it came, on any clock; None when that was not recorded. output_tokens: that were
        generated; None when nobody counted them. most_output_tokens: that it allowed; None for no limit.
        counted_tokens, cached_tokens: of the prompt, as the engine counted them; None when it did not say.
        first_token_seconds: how long its client waited; None when that was not measured.
    """

    names: Sequence[int]
    tokens: int
    first_end: PromptEnd
    seconds: float | None = None
    output_tokens: int | None = None
    most_output_tokens: int | None = None
    counted_tokens: int | None = None
    cached_tokens: int | None = None
    first_token_seconds: float | None = None


class UnusableLineError(Exception):
    """A line that is no request to analyze. `cause` is one of a small set, never any of its text."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause
