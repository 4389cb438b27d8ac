"""How the messages of each chat dialect become turns.

A reader takes one undecoded value and returns its `Turn`. It decodes by type, so that members that no prompt
is made of are passed over. Readers raise one of `UNDECODABLE` for a value that is not shaped as its API says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from prefix_router.openai_api.allowance import Allowance
from prefix_router.openai_api.content import Content, Function, Part, call, calls, named, parts
from prefix_router.openai_api.prompt import Turn
from prefix_router.openai_api.raw_json import ABSENT, Head, array_head, items, lead


class Message(msgspec.Struct):
    """A message of chat completions, and of Anthropic's API as far as it is the same."""

    role: str | None = None
    content: Content = None
    name: Raw = ABSENT
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: Head | None = None
    function_call: Function | None = None


if TYPE_CHECKING:

    class Messages(msgspec.Struct, array_like=True):
        """The head of a conversation. Its first messages are decoded in the pass that finds them."""

else:
    # Most keys end within these: decoding them at once saves a second pass over a long system prompt.
    Messages = array_head("Messages", Message, 4)


class _Item(msgspec.Struct):
    """An element of the `input` of the Responses API."""

    type: str | None = None
    role: str | None = None
    content: Content = None
    name: str | None = None
    arguments: Raw = ABSENT
    output: Content = None
    summary: Content = None


_content: msgspec.json.Decoder[Content] = msgspec.json.Decoder(Content)
_message = msgspec.json.Decoder(Message)
_item = msgspec.json.Decoder(_Item)
_array = msgspec.json.Decoder(Head)

_BILLING_NOTE = "x-anthropic-billing-header"
_ROLES_OF_CLIENTS = {"ctx": "user", "msg": "user"}
"""Roles that Claude Code sends and vLLM reads as `user`."""
_CHANGES_IN_HISTORY = frozenset({"cache_control", "id", "status"})


def chat_turn(value: Message | Raw, allowance: Allowance) -> Turn:
    """Read a message of chat completions."""
    message = value if isinstance(value, Message) else _message.decode(value)
    content = message.content
    if isinstance(content, str) and message == Message(message.role, content):  # as nearly all are
        return Turn(message.role or "", [Part("text", content)])
    found = [*named(message.name)]
    thinking = message.reasoning or message.reasoning_content
    if thinking:
        found.append(Part("thinking", thinking))
    found += parts(message.content, allowance)
    found += calls(message.tool_calls, allowance)
    if message.function_call is not None:
        found += call(message.function_call.name, message.function_call.arguments, allowance)
    return Turn(message.role or "", found)


def anthropic_turn(value: Message | Raw, allowance: Allowance) -> Turn:
    """Read an Anthropic message."""
    role, found = chat_turn(value, allowance)
    role = _ROLES_OF_CLIENTS.get(role, role)
    return Turn(role, _without_billing_note(found) if role == "system" else found)


def anthropic_system(raw: Raw, allowance: Allowance) -> Turn:
    """Read Anthropic's `system`: a string or text blocks."""
    return Turn("system", _without_billing_note(parts(_content.decode(raw), allowance)))


def _without_billing_note(found: Iterable[Part]) -> list[Part]:
    # Claude Code begins its system prompt with a block that differs in each request; vLLM takes it out too.
    return [part for part in found if not part.text.startswith(_BILLING_NOTE)]


def instructions(raw: Raw, allowance: Allowance) -> Turn:
    """Read `instructions` of the Responses API: the system turn."""
    return Turn("system", [*parts(_content.decode(raw), allowance)])


def user_text(raw: Raw, allowance: Allowance) -> Turn:
    """Read a plain `input` of the Responses API: the user's turn."""
    return Turn("user", [Part("text", allowance.text(raw))])


def plain_text(raw: Raw, allowance: Allowance) -> Turn:
    """Read a prompt that has no role."""
    return Turn("", [Part("text", allowance.text(raw))])


def embeds(raw: Raw, allowance: Allowance) -> Turn:
    """Read `prompt_embeds`, whose data stand for text: known by all of it."""
    return Turn("", [Part("prompt_embeds", allowance.text(raw), counted=False)])


def loose_text(raw: Raw, allowance: Allowance) -> Turn:
    """Read what is compared: a text, an array of them, or any other value by its JSON."""
    values = items(_array.decode(raw)) if lead(raw) == "[" else (raw,)
    return Turn("", [Part("text", allowance.text(value)) for value in values])


def item_turn(raw: Raw, allowance: Allowance) -> Turn:
    """Read an element of the `input` of the Responses API."""
    item = _item.decode(raw)
    kind = item.type or "message"
    if kind == "message":
        return Turn(item.role or "", [*parts(item.content, allowance)])
    if kind == "function_call":
        return Turn("assistant", [*call(item.name, item.arguments, allowance)])
    if kind == "function_call_output":
        return Turn("tool", [*parts(item.output, allowance)])
    if kind == "reasoning":
        return Turn("assistant", [*parts(item.content or item.summary, allowance)])
    whole = allowance.canonical(raw, without=_CHANGES_IN_HISTORY).decode()
    return Turn(kind, [Part(kind, whole, counted=False)])
