"""What an answer has to be: words, JSON of a schema, or a call of a tool; read from each API's request.

vLLM knows two ways to a tool call. A choice that leaves no choice ("required", or a tool's name) is held to
the tool's schema by the grammar of structured output; here as there it always works. With "auto" the model
decides and a parser reads its words, if the server was told so (`--enable-auto-tool-choice`). The model here
decides like this: the first tool is called, except right after a tool's result, which is answered in words.
So a loop of calls and results ends after one round. Without the flag "auto" is answered in words.

Pure. A choice of a tool that is not there, and a form of answer that is none, raise `InvalidRequestError`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prefix_router.simulate.errors import InvalidRequestError
from prefix_router.simulate.json_values import conforming
from prefix_router.simulate.reply import ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Form:
    """What an answer has to be. schema: of its JSON, or None for words. call: the tool that it calls."""

    schema: Any = None
    call: ToolCall | None = None

    def text(self, seed: int) -> str | None:
        """The answer, if it is not words. ASCII only, so that it can be cut between any two tokens."""
        return None if self.schema is None else json.dumps(conforming(self.schema, seed))


WORDS = Form()


@dataclass(frozen=True, slots=True)
class _Tool:
    name: str
    parameters: Any


def read_chat_form(body: dict[str, Any], *, auto_tools: bool) -> Form:
    """`tools`, `tool_choice` and `response_format` of a chat completion."""
    tools = [_tool(tool.get("function"), "parameters") for tool in _objects(body, "tools")]
    choice = body.get("tool_choice")
    name = _path(choice, "function", "name") if isinstance(choice, dict) else None
    may_call = auto_tools and not _last_is_result(body.get("messages"), "tool")
    form = _tool_form(tools, name or choice, named=name is not None, may_call=may_call)
    return form or _json_form(body.get("response_format"), lambda form: _path(form, "json_schema", "schema"))


def read_responses_form(body: dict[str, Any], *, auto_tools: bool) -> Form:
    """`tools`, `tool_choice` and `text.format` of a Responses request."""
    tools = [_tool(t, "parameters") for t in _objects(body, "tools") if t.get("type") == "function"]
    choice = body.get("tool_choice")
    name = choice.get("name") if isinstance(choice, dict) else None
    may_call = auto_tools and not _last_is_result(body.get("input"), "function_call_output")
    form = _tool_form(tools, name or choice, named=name is not None, may_call=may_call)
    return form or _json_form(_path(body.get("text"), "format"), lambda form: _path(form, "schema"))


def read_messages_form(body: dict[str, Any], *, auto_tools: bool) -> Form:
    """`tools`, `tool_choice` and `output_config.format` of an Anthropic request."""
    tools = [_tool(tool, "input_schema") for tool in _objects(body, "tools")]
    choice = body.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else None
    named = choice["name"] if kind == "tool" and isinstance(choice, dict) and "name" in choice else None
    may_call = auto_tools and not _last_is_result(body.get("messages"), "tool_result")
    wanted = named or ("required" if kind == "any" else kind)
    form = _tool_form(tools, wanted, named=named is not None, may_call=may_call)
    return form or _json_form(_path(body.get("output_config"), "format"), lambda form: _path(form, "schema"))


def _tool_form(tools: Sequence[_Tool], choice: Any, *, named: bool, may_call: bool) -> Form | None:
    if named:
        for tool in tools:
            if tool.name == choice:
                return Form(tool.parameters, ToolCall(tool.name, chosen_by_name=True))
        raise InvalidRequestError(f"the tool {choice!r} of tool_choice is not among the tools", "tool_choice")
    if choice not in (None, "auto", "none", "required"):
        raise InvalidRequestError(f"tool_choice {choice!r} is not known", "tool_choice")
    if choice == "required" and not tools:
        raise InvalidRequestError("tool_choice needs tools", "tool_choice")
    if tools and (choice == "required" or (choice != "none" and may_call)):
        return Form(tools[0].parameters, ToolCall(tools[0].name))
    return None


def _json_form(form: Any, schema_of: Any) -> Form:
    kind = form.get("type") if isinstance(form, dict) else None
    match kind:
        case None | "text":
            return WORDS
        case "json_object":
            return Form(
                {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
            )
        case "json_schema":
            schema = schema_of(form)
            if schema is not None:
                return Form(schema)
    raise InvalidRequestError(
        f"the form of answer {kind!r} is not known, or has no schema", "response_format"
    )


def _tool(tool: Any, parameters: str) -> _Tool:
    name = _path(tool, "name")
    if not isinstance(name, str):
        raise InvalidRequestError("each tool needs a name", "tools")
    schema = tool.get(parameters)
    return _Tool(name, {"type": "object"} if schema is None else schema)


def _last_is_result(messages: Any, kind: str) -> bool:
    """Whether the last message or item, or its last part, is the result of a tool."""
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict):
        return False
    content = last.get("content")
    parts = content if isinstance(content, list) else []
    return kind in (last.get("role"), last.get("type")) or any(_path(part, "type") == kind for part in parts)


def _objects(body: dict[str, Any], name: str) -> list[dict[str, Any]]:
    given = body.get(name) or []
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise InvalidRequestError(f"{name} must be a list of objects", name)
    return given


def _path(value: Any, *names: str) -> Any:
    """What is found in `value` under each name in turn, or None."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
