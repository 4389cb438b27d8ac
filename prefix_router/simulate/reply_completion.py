"""`/v1/completions`: the answer as vLLM gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prefix_router.simulate.reply import DONE, Answer, ReplyHead, Usage, data_event

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class CompletionReply:
    """Satisfies `Reply`."""

    head: ReplyHead

    def whole(self, answers: Sequence[Answer], usage: Usage) -> dict[str, Any]:
        """One JSON object with a choice for each answer to each prompt."""
        choices = [
            self._choice(index, answer.text, answer.finish_reason) | {"prompt_logprobs": None}
            for index, answer in enumerate(answers)
        ]
        return self._object(choices) | {"usage": usage.as_openai()}

    def opening(self, usage: Usage) -> bytes:
        """Nothing: the first chunk has the first token."""
        return b""

    def delta(self, index: int, text: str, finish_reason: str | None) -> bytes:
        """A chunk with more text."""
        return data_event(self._object([self._choice(index, text, finish_reason)]))

    def closing(self, answers: Sequence[Answer], usage: Usage) -> bytes:
        """A chunk without choices but with usage, if it was asked for, and the end mark."""
        if not self.head.include_usage:
            return DONE
        return data_event(self._object([]) | {"usage": usage.as_openai()}) + DONE

    def _choice(self, index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        return {
            "index": index,
            "text": text,
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": None,
        }

    def _object(self, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": f"cmpl-{self.head.request_id}",
            "object": "text_completion",
            "created": self.head.created,
            "model": self.head.model,
            "choices": choices,
        }
