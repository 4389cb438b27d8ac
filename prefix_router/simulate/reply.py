"""What every API's answer has in common: who answers, the finished answers, usage, events on the wire.

Each API has its own file beside this one (`reply_chat`, `reply_completion`, `reply_responses`,
`reply_messages`) with one class that satisfies `Reply`. They are pure: data in, JSON bytes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that an answer calls; the answer's text is its arguments, as JSON.

    chosen_by_name: the client named the tool, which vLLM lets end with "stop", not with "tool_calls".
    """

    name: str
    chosen_by_name: bool = False


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """What is known before the first token. `request_id` has no prefix; `created` is in Unix seconds.

    call: the tool that each answer calls, or None for answers in words.
    """

    request_id: str
    created: int
    model: str
    answers: int
    include_usage: bool
    call: ToolCall | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one HTTP request: each prompt counts once, however many answers it has."""

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int

    def as_openai(self) -> dict[str, Any]:
        """As chat and completion answers state it; a real vLLM needs a flag for the cached tokens."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.output_tokens,
            "completion_tokens": self.output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """One finished answer. finish_reason: "length" when it was cut at max_tokens, else "stop"."""

    text: str
    finish_reason: str


class Reply(Protocol):
    """How one API says it."""

    def whole(self, answers: Sequence[Answer], usage: Usage) -> dict[str, Any]:
        """The JSON of an answer that is not streamed."""

    def opening(self, usage: Usage) -> bytes:
        """Events before the first token, sent together with it."""

    def delta(self, index: int, text: str, finish_reason: str | None) -> bytes:
        """The event for `text` more of answer `index`; the last one carries the reason."""

    def closing(self, answers: Sequence[Answer], usage: Usage) -> bytes:
        """Events after the last token."""


def data_event(data: Any) -> bytes:
    """A server-sent event without a name."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def named_event(data: dict[str, Any]) -> bytes:
    """A server-sent event that is named after the `type` of its data."""
    return f"event: {data['type']}\n".encode() + data_event(data)


DONE = b"data: [DONE]\n\n"
"""What ends a stream of the chat and completion APIs."""
