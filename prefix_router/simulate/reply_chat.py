"""`/v1/chat/completions`: the answer as vLLM gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prefix_router.simulate.reply import DONE, Answer, ReplyHead, Usage, data_event

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class ChatReply:
    """Satisfies `Reply`."""

    head: ReplyHead

    def whole(self, answers: Sequence[Answer], usage: Usage) -> dict[str, Any]:
        """One JSON object with a message for each answer."""
        choices: list[dict[str, Any]] = [
            {
                "index": index,
                "message": {
                    "role": "assistant",
                    "content": answer.text,
                    "refusal": None,
                    "tool_calls": [],
                },
                "logprobs": None,
                "finish_reason": answer.finish_reason,
                "stop_reason": None,
            }
            for index, answer in enumerate(answers)
        ]
        return self._object("chat.completion", choices) | {"usage": usage.as_openai()}

    def opening(self, usage: Usage) -> bytes:
        """A chunk that states the role, for each answer."""
        return b"".join(
            self._chunk(index, {"role": "assistant", "content": ""}, None)
            for index in range(self.head.answers)
        )

    def delta(self, index: int, text: str, finish_reason: str | None) -> bytes:
        """A chunk with more content."""
        return self._chunk(index, {"content": text}, finish_reason)

    def closing(self, answers: Sequence[Answer], usage: Usage) -> bytes:
        """A chunk without choices but with usage, if it was asked for, and the end mark."""
        if not self.head.include_usage:
            return DONE
        return data_event(self._object("chat.completion.chunk", []) | {"usage": usage.as_openai()}) + DONE

    def _chunk(self, index: int, delta: dict[str, Any], finish_reason: str | None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return data_event(self._object("chat.completion.chunk", [choice]))

    def _object(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.head.request_id}",
            "object": kind,
            "created": self.head.created,
            "model": self.head.model,
            "choices": choices,
        }
