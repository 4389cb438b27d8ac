"""`/v1/responses`: the OpenAI Responses API as vLLM answers it. Its output is one message or one call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prefix_router.simulate.reply import Answer, ReplyHead, Usage, named_event

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True)
class ResponsesReply:
    """Satisfies `Reply`. Counts its events, because each carries its number in the stream."""

    head: ReplyHead
    previous_response_id: str | None = None
    instructions: Any = None
    _events: int = field(default=0, init=False)

    @property
    def response_id(self) -> str:
        """The id under which the response can be continued."""
        return f"resp_{self.head.request_id}"

    def whole(self, answers: Sequence[Answer], usage: Usage) -> dict[str, Any]:
        """The response object with its output."""
        answer = answers[0]
        cut = answer.finish_reason == "length"
        status = "incomplete" if cut else "completed"
        return self._response(status) | {
            "output": [self._output(status, answer.text)],
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.prompt_tokens + usage.output_tokens,
            },
        }

    def unfinished(self) -> dict[str, Any]:
        """The response object while its output is being generated."""
        return self._response("in_progress")

    def opening(self, usage: Usage) -> bytes:
        """The response and its output come into being, empty: a message with a text part, or a call."""
        response = self.unfinished()
        begun = self._event("response.created", response=response)
        begun += self._event("response.in_progress", response=response)
        if self.head.call is not None:
            item = self._function_call("in_progress", "")
            return begun + self._event("response.output_item.added", output_index=0, item=item)
        item = self._item("in_progress", [])
        begun += self._event("response.output_item.added", output_index=0, item=item)
        return begun + self._event("response.content_part.added", **self._place(), part=_part(""))

    def delta(self, index: int, text: str, finish_reason: str | None) -> bytes:
        """More text of the part, or more of the arguments of the call."""
        if self.head.call is not None:
            kind = "response.function_call_arguments.delta"
            return self._event(kind, item_id=self._function_call_id, output_index=0, delta=text)
        return self._event("response.output_text.delta", **self._place(), delta=text, logprobs=[])

    def closing(self, answers: Sequence[Answer], usage: Usage) -> bytes:
        """Text, part, message and response are done; each event repeats what it is about.

        Like vLLM, the last event is named "completed" even when the response was cut at its token limit.
        """
        text = answers[0].text
        response = self.whole(answers, usage)
        item = response["output"][0]
        if self.head.call is not None:
            place = {"item_id": self._function_call_id, "output_index": 0}
            kind = "response.function_call_arguments.done"
            return (
                self._event(kind, **place, name=self.head.call.name, arguments=text)
                + self._event("response.output_item.done", output_index=0, item=item)
                + self._event("response.completed", response=response)
            )
        return (
            self._event("response.output_text.done", **self._place(), text=text, logprobs=[])
            + self._event("response.content_part.done", **self._place(), part=_part(text))
            + self._event("response.output_item.done", output_index=0, item=item)
            + self._event("response.completed", response=response)
        )

    def _event(self, kind: str, **fields: Any) -> bytes:
        number = self._events
        self._events += 1
        return named_event({"type": kind, "sequence_number": number, **fields})

    def _place(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self.head.request_id}", "output_index": 0, "content_index": 0}

    def _item(self, status: str, content: list[Any]) -> dict[str, Any]:
        return {
            "id": f"msg_{self.head.request_id}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    @property
    def _function_call_id(self) -> str:
        return f"fc_{self.head.request_id}"

    def _function_call(self, status: str, arguments: str) -> dict[str, Any]:
        assert self.head.call is not None
        return {
            "id": self._function_call_id,
            "call_id": f"call_{self.head.request_id}",
            "type": "function_call",
            "status": status,
            "name": self.head.call.name,
            "arguments": arguments,
        }

    def _output(self, status: str, text: str) -> dict[str, Any]:
        if self.head.call is not None:
            return self._function_call(status, text)
        return self._item(status, [_part(text)])

    def _response(self, status: str) -> dict[str, Any]:
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.head.created,
            "status": status,
            "model": self.head.model,
            "output": [],
            "instructions": self.instructions,
            "previous_response_id": self.previous_response_id,
            "incomplete_details": None,
            "error": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "top_p": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "usage": None,
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
