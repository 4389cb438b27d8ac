"""From the JSON of a request to the tokens a model would see: the stand-in's chat template.

What vLLM would reuse must come out as an equal beginning, and what it would not as a different one, so:
tools, template arguments and documents come first; then the messages in order, each behind its role and
closed by a mark. Every message starts on a token boundary, as it does behind the special tokens of a real
template, so that a conversation's next turn begins with all tokens of the turns before. An image is 256
tokens that depend on its whole URL or data.

Objects are written with sorted keys, so the order of keys in the request does not matter. Pure functions,
linear in the size of the prompt; what is not as the API wants it raises `InvalidRequestError`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import xxhash

from prefix_router.engine.block_hash import BYTES_PER_TOKEN, pack_token_ids
from prefix_router.simulate.errors import InvalidRequestError
from prefix_router.simulate.tokens import encode, pad

MEDIA_TOKENS = 256
"""Prompt tokens of one image or one piece of audio or video."""

_END = b"<|/>"
_TEMPLATE_FIELDS = ("tools", "functions", "documents", "chat_template_kwargs", "chat_template")
_MEDIA_TYPES = frozenset({"image", "image_url", "input_image", "input_audio", "audio_url", "video_url"})
_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "refusal"})


def render_chat(body: dict[str, Any]) -> bytes:
    """The prompt of a chat completion: `messages`, and what a template puts in front of them."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequestError("messages must be a list with at least one message", "messages")
    return render_preamble(body) + render_messages(messages) + render_role("assistant")


def render_preamble(body: dict[str, Any]) -> bytes:
    """Tools, documents and template arguments, those that are there."""
    return b"".join(
        render_role(name) + pad(_canonical(body[name])) for name in _TEMPLATE_FIELDS if body.get(name)
    )


def render_messages(messages: list[Any]) -> bytes:
    """Messages in order, each with its role, content, tool calls and an end mark."""
    return b"".join(map(_render_message, messages))


def render_role(role: str) -> bytes:
    """What stands in front of a message; for the assistant, also what invites the answer."""
    return encode(f"<|{role}|>\n")


def render_answer(output: bytes) -> bytes:
    """A generated answer as the next turn of its conversation shows it."""
    return render_role("assistant") + output + _END


def render_system(system: Any) -> bytes:
    """A system prompt given beside the messages (Anthropic `system`, Responses `instructions`)."""
    if not system:
        return b""
    return render_role("system") + _render_content(system) + _END


def render_completion(prompt: Any) -> tuple[bytes, ...]:
    """The prompts of a completion: one text, several texts, token ids, or several lists of token ids."""
    if isinstance(prompt, list) and prompt and not _is_token_id(prompt[0]):
        return tuple(_render_plain(one) for one in prompt)
    return (_render_plain(prompt),)


def _render_plain(prompt: Any) -> bytes:
    if isinstance(prompt, str) and prompt:
        return encode(prompt)
    if isinstance(prompt, list) and prompt and all(map(_is_token_id, prompt)):
        try:
            return pack_token_ids(prompt)
        except OverflowError:
            raise InvalidRequestError("a token id is out of range", "prompt") from None
    raise InvalidRequestError("prompt must be text or token ids, and not empty", "prompt")


def _is_token_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _render_message(message: Any) -> bytes:
    if not isinstance(message, dict):
        raise InvalidRequestError("each message must be an object", "messages")
    role = message.get("role") or message.get("type")
    if not isinstance(role, str):
        raise InvalidRequestError("each message needs a role", "messages")
    parts = [render_role(role), _render_content(message.get("content"))]
    # Function calls and their results, as chat messages and as items of the Responses API carry them.
    parts += [
        pad(_canonical(message[name]))
        for name in ("tool_calls", "function_call", "name", "arguments", "output")
        if message.get(name)
    ]
    return b"".join(parts) + _END


def _render_content(content: Any) -> bytes:
    if content is None:
        return b""
    if isinstance(content, str):
        return encode(content)
    if isinstance(content, list):
        return b"".join(map(_render_part, content))
    raise InvalidRequestError("content must be text or a list of parts", "messages")


def _render_part(part: Any) -> bytes:
    if isinstance(part, str):
        return encode(part)
    if not isinstance(part, dict):
        raise InvalidRequestError("each part of a content must be an object", "messages")
    kind = part.get("type")
    if kind in _TEXT_TYPES:
        text = part.get("text") or part.get("refusal")
        return encode(text) if isinstance(text, str) else b""
    if kind in _MEDIA_TYPES:
        digest = xxhash.xxh3_128_digest(_canonical(part))
        return digest * (MEDIA_TOKENS * BYTES_PER_TOKEN // len(digest))
    return pad(_canonical(part))


def _canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")
