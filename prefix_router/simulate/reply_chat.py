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
                "message": self._message(index, answer.text),
                "logprobs": None,
                "finish_reason": self._reason(answer.finish_reason),
                "stop_reason": None,
            }
            for index, answer in enumerate(answers)
        ]
        return self._object("chat.completion", choices) | {"usage": usage.as_openai()}

    def opening(self, usage: Usage) -> bytes:
        """A chunk that states the role, for each answer, and one that names the tool it calls."""
        chunks = [
            self._chunk(index, {"role": "assistant", "content": ""}, None)
            for index in range(self.head.answers)
        ]
        if self.head.call is not None:
            chunks += [
                self._chunk(index, {"tool_calls": [{"index": 0, **self._tool_call(index, "")}]}, None)
                for index in range(self.head.answers)
            ]
        return b"".join(chunks)

    def delta(self, index: int, text: str, finish_reason: str | None) -> bytes:
        """A chunk with more content, or more of the arguments of the call."""
        if self.head.call is None:
            return self._chunk(index, {"content": text}, finish_reason)
        more = {"index": 0, "function": {"arguments": text}}
        return self._chunk(index, {"tool_calls": [more]}, self._reason(finish_reason))

    def closing(self, answers: Sequence[Answer], usage: Usage) -> bytes:
        """A chunk without choices but with usage, if it was asked for, and the end mark."""
        if not self.head.include_usage:
            return DONE
        return data_event(self._object("chat.completion.chunk", []) | {"usage": usage.as_openai()}) + DONE

    def _message(self, index: int, text: str) -> dict[str, Any]:
        if self.head.call is None:
            return {"role": "assistant", "content": text, "refusal": None, "tool_calls": []}
        call = self._tool_call(index, text)
        return {"role": "assistant", "content": "", "refusal": None, "tool_calls": [call]}

    def _tool_call(self, index: int, arguments: str) -> dict[str, Any]:
        assert self.head.call is not None
        function = {"name": self.head.call.name, "arguments": arguments}
        return {
            "id": f"chatcmpl-tool-{self.head.request_id}{index}",
            "type": "function",
            "function": function,
        }

    def _reason(self, finish_reason: str | None) -> str | None:
        """A call ends with "tool_calls"; one that the client chose by name ends with "stop", as in vLLM."""
        call = self.head.call
        own = finish_reason == "stop" and call is not None and not call.chosen_by_name
        return "tool_calls" if own else finish_reason

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
