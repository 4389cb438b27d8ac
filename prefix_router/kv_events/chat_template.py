"""The chat template of a model: from messages to the text that vLLM makes of them, or a refusal.

The template is the one beside the model's `tokenizer.json`: `chat_template.jinja`, or the field
`chat_template` of `tokenizer_config.json`, or `chat_template.json`. It runs in Jinja's sandbox with what
`transformers` gives it: the special tokens by name, `raise_exception`, `strftime_now`, a `tojson` that
escapes nothing, `break` and `continue`.

Only what is known to come out exactly as in vLLM is rendered; for all else (media, continued messages, the
developer role, fields that nobody here knows) `render` raises `NotRenderableError`. A wrong guess would be
worse: it would name blocks that no engine has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from prefix_router.kv_events.template_format import wants_parts

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_ROLES = frozenset({"system", "user", "assistant", "tool"})
_MESSAGE_FIELDS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning", "reasoning_content"}
)
_CALL_FIELDS = frozenset({"id", "type", "function"})
_TAKEN_NAMES = frozenset(
    {
        *("conversation", "messages", "tools", "documents", "chat_template", "add_generation_prompt"),
        *("continue_final_message", "tokenize", "padding", "truncation", "max_length", "return_tensors"),
        *("return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs"),
    }
)
"""Template arguments with a meaning of their own."""
_BILLING_NOTE = "x-anthropic-billing-header"


class NotRenderableError(Exception):
    """A request of which it is not certain what vLLM makes of it."""


class ChatTemplate:
    """One model's template. Safe to use from several threads."""

    def __init__(
        self, templates: Mapping[str, str], special_tokens: Mapping[str, str], now: Callable[[], datetime]
    ) -> None:
        """Compile the templates, by name. Raises jinja2.TemplateError."""
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: now().strftime(form)
        self._special_tokens = dict(special_tokens)
        self._templates = {
            name: (environment.from_string(text), wants_parts(environment.parse(text)))
            for name, text in templates.items()
        }

    @classmethod
    def load(cls, directory: Path, now: Callable[[], datetime] = datetime.now) -> ChatTemplate | None:
        """Read what lies beside a tokenizer, None if there is no template.

        Raises OSError, ValueError, jinja2.TemplateError.
        """
        config = _json_object(directory / "tokenizer_config.json")
        templates = _named(config.get("chat_template"))
        legacy = _json_object(directory / "chat_template.json").get("chat_template")
        if not templates and isinstance(legacy, str):
            templates = {"default": legacy}
        if (directory / "chat_template.jinja").is_file():
            templates = {"default": (directory / "chat_template.jinja").read_text("utf-8")}
            for path in sorted((directory / "additional_chat_templates").glob("*.jinja")):
                templates[path.stem] = path.read_text("utf-8")
        tokens = {name: _token(config.get(name)) for name in _SPECIAL_TOKENS}
        special_tokens = {name: token for name, token in tokens.items() if token is not None}
        return cls(templates, special_tokens, now) if templates else None

    def render(self, body: Mapping[str, Any]) -> str:
        """Return the text of a chat request. Raises NotRenderableError."""
        try:
            return self._render(body)
        except NotRenderableError:
            raise
        except Exception as error:  # whatever a template does with what a client sends
            raise NotRenderableError(f"the template failed: {type(error).__name__}") from error

    def _render(self, body: Mapping[str, Any]) -> str:
        tools = _tools(body)
        variables = {**self._special_tokens, "documents": None, **_arguments(body)}
        name = "tool_use" if tools is not None and "tool_use" in self._templates else "default"
        if name not in self._templates:
            raise NotRenderableError("no default template")
        template, in_parts = self._templates[name]
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise NotRenderableError("no messages")
        conversation = [_message(message, in_parts=in_parts) for message in messages]
        return template.render(messages=conversation, tools=tools, **variables)


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what a model said, for training. Here it marks nothing."""

    tags = {"generation"}  # noqa: RUF012  jinja2 declares it so

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _message(message: Any, *, in_parts: bool) -> dict[str, Any]:
    """Return a message as vLLM hands it to a template."""
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise NotRenderableError("a message or role that is not known")
    given = {name: value for name, value in message.items() if value is not None}
    if not given.keys() <= _MESSAGE_FIELDS:
        raise NotRenderableError("a field of a message that is not known")
    role, texts = given["role"], _texts(given.get("content"))
    if role == "system" and any(text.startswith(_BILLING_NOTE) for text in texts):
        raise NotRenderableError("a note that vLLM takes out")
    made: dict[str, Any] = {"role": role, "content": "\n".join(texts)}
    if in_parts and role != "tool":
        made["content"] = [{"type": "text", "text": text} for text in texts]
    if role == "assistant":
        calls = given.get("tool_calls")
        if calls:
            made["tool_calls"] = [_call(call) for call in calls]
        reasoning = given.get("reasoning_content", given.get("reasoning"))
        if reasoning is not None:
            made["reasoning"] = made["reasoning_content"] = reasoning
    elif role == "tool" and "tool_call_id" in given:
        made["tool_call_id"] = given["tool_call_id"]
    if isinstance(given.get("name"), str):
        made["name"] = given["name"]
    return made


def _texts(content: Any) -> Sequence[str]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (content,)
    texts: list[str] = []
    for part in content if isinstance(content, list) else (None,):
        text = None
        if isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text":
            text = part["text"]
        if not isinstance(text, str):
            raise NotRenderableError("content that is not text")
        texts.append(text)
    return texts


def _call(call: Any) -> dict[str, Any]:
    """Return a call as vLLM hands it to a template: in its order, with the arguments decoded."""
    function = call.get("function") if isinstance(call, dict) and call.keys() == _CALL_FIELDS else None
    if not isinstance(function, dict) or function.keys() != {"name", "arguments"}:
        raise NotRenderableError("a call that is not one of a function")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments else {}
        except ValueError:
            arguments = {}
    arguments = arguments if isinstance(arguments, dict) else {}
    made = {"arguments": arguments, "name": function["name"]}
    return {"id": call["id"], "function": made, "type": call["type"]}


def _tools(body: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the tools as vLLM hands them to a template: known fields only, in its order."""
    tools = body.get("tools")
    if tools is None:
        return None
    if not isinstance(tools, list) or not tools or body.get("tool_choice") == "none":
        raise NotRenderableError("tools that may be left out")
    made = []
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or "defer_loading" in {*tool, *function}:
            raise NotRenderableError("a tool that is not a function")
        known = {name: function.get(name) for name in ("name", "description", "parameters")}
        if function.get("strict") is not None:
            known["strict"] = function["strict"]
        made.append({"type": "function", "function": known})
    return made


def _arguments(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template's arguments."""
    given = body.get("chat_template_kwargs") or {}
    if not isinstance(given, dict) or given.keys() & _TAKEN_NAMES:
        raise NotRenderableError("template arguments that mean more")
    effort = body.get("reasoning_effort")
    named: dict[str, Any] = {
        "add_generation_prompt": body.get("add_generation_prompt", True),
        "documents": body.get("documents"),
        "reasoning_effort": effort,
    }
    if effort is not None and "enable_thinking" not in given:
        named["enable_thinking"] = effort != "none"
    return {name: value for name, value in {**given, **named}.items() if value not in (None, "auto")}


def _json_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{path} is not a JSON object")
    return value


def _named(templates: Any) -> dict[str, str]:
    """Return templates by name: there is one, or a list of named ones."""
    if isinstance(templates, str):
        return {"default": templates}
    if isinstance(templates, list):
        return {template["name"]: template["template"] for template in templates}
    return {}


def _token(value: Any) -> str | None:
    """Return a special token, which is written as text or as an object."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
