"""`/v1/messages`: the Anthropic Messages API as vLLM answers it.

Like vLLM, it counts the whole prompt as input tokens, says nothing of cached ones, and ends a stream with
`message_stop`, without the mark that the OpenAI streams end with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prefix_router.simulate.reply import Answer, ReplyHead, Usage, named_event

if TYPE_CHECKING:
    from collections.abc import Sequence

_STOP_REASONS = {"length": "max_tokens", "stop": "end_turn"}


@dataclass(frozen=True, slots=True)
class MessagesReply:
    """Satisfies `Reply`."""

    head: ReplyHead

    def whole(self, answers: Sequence[Answer], usage: Usage) -> dict[str, Any]:
        """One message with one text block."""
        answer = answers[0]
        content = [{"type": "text", "text": answer.text}]
        return self._message(content, _STOP_REASONS[answer.finish_reason]) | {"usage": _usage(usage)}

    def opening(self, usage: Usage) -> bytes:
        """The message without its content, and the start of its text block."""
        message = self._message([], None) | {
            "usage": {"input_tokens": usage.prompt_tokens, "output_tokens": 0}
        }
        return named_event({"type": "message_start", "message": message}) + named_event(
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        )

    def delta(self, index: int, text: str, finish_reason: str | None) -> bytes:
        """More text of the block."""
        delta = {"type": "text_delta", "text": text}
        return named_event({"type": "content_block_delta", "index": index, "delta": delta})

    def closing(self, answers: Sequence[Answer], usage: Usage) -> bytes:
        """The end of the block, the reason and the usage, the end of the message."""
        reason = _STOP_REASONS[answers[0].finish_reason]
        return (
            named_event({"type": "content_block_stop", "index": 0})
            + named_event(
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": reason, "stop_sequence": None},
                    "usage": _usage(usage),
                }
            )
            + named_event({"type": "message_stop"})
        )

    def _message(self, content: list[Any], stop_reason: str | None) -> dict[str, Any]:
        return {
            "id": f"msg_{self.head.request_id}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self.head.model,
            "stop_reason": stop_reason,
            "stop_sequence": None,
        }


def _usage(usage: Usage) -> dict[str, int]:
    return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.output_tokens}
