"""`/v1/messages`: the Anthropic Messages API as vLLM answers it.

Like vLLM, it counts the whole prompt as input tokens, says nothing of cached ones, and ends a stream with
`message_stop`, without the mark that the OpenAI streams end with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from prefix_router.simulate.errors import InvalidRequestError
from prefix_router.simulate.reply import Answer, ReplyHead, Usage, named_event

if TYPE_CHECKING:
    from collections.abc import Sequence

_STOP_REASONS = {"length": "max_tokens", "stop": "end_turn"}


@dataclass(frozen=True, slots=True)
class MessagesReply:
    """Satisfies `Reply`."""

    head: ReplyHead

    def whole(self, answers: Sequence[Answer], usage: Usage) -> dict[str, Any]:
        """One message with one block: text, or the use of a tool.

        Raises InvalidRequestError when the use of a tool was cut: its arguments are no JSON then.
        """
        answer = answers[0]
        content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}]
        if self.head.call is not None:
            content = [self._block(_arguments(answer.text))]
        return self._message(content, self._stop_reason(answer)) | {"usage": _usage(usage)}

    def opening(self, usage: Usage) -> bytes:
        """The message without its content, and the start of its block."""
        message = self._message([], None) | {
            "usage": {"input_tokens": usage.prompt_tokens, "output_tokens": 0}
        }
        return named_event({"type": "message_start", "message": message}) + named_event(
            {"type": "content_block_start", "index": 0, "content_block": self._block({})}
        )

    def delta(self, index: int, text: str, finish_reason: str | None) -> bytes:
        """More text of the block, or more of the tool's arguments."""
        delta = {"type": "text_delta", "text": text}
        if self.head.call is not None:
            delta = {"type": "input_json_delta", "partial_json": text}
        return named_event({"type": "content_block_delta", "index": index, "delta": delta})

    def closing(self, answers: Sequence[Answer], usage: Usage) -> bytes:
        """The end of the block, the reason and the usage, the end of the message."""
        reason = self._stop_reason(answers[0])
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

    def _block(self, arguments: dict[str, Any]) -> dict[str, Any]:
        call = self.head.call
        if call is None:
            return {"type": "text", "text": ""}
        tool_id = f"chatcmpl-tool-{self.head.request_id}"
        return {"type": "tool_use", "id": tool_id, "name": call.name, "input": arguments}

    def _stop_reason(self, answer: Answer) -> str:
        used = self.head.call is not None and answer.finish_reason == "stop"
        return "tool_use" if used else _STOP_REASONS[answer.finish_reason]

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


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"the call of the tool was cut: {error}", "max_tokens") from None
    return arguments


def _usage(usage: Usage) -> dict[str, int]:
    return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.output_tokens}
