"""What a template is given, and what is refused. vLLM's own results: `tests/vllm/test_kv_events.py`."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from prefix_router.kv_events.chat_template import ChatTemplate, NotRenderableError
from tests.unit.kv_events.conftest import configure

USER = {"role": "user", "content": "hi"}
BODY = {"messages": [USER]}
FUNCTION = {"parameters": {"b": 1, "a": 2}, "name": "f", "tomorrow": 1}
DUMP = "{{ messages | tojson }}"


def render(text: str, **body: Any) -> str:
    template = ChatTemplate({"default": text}, {"bos_token": "<s>"}, lambda: datetime(2026, 3, 1, 12))
    return template.render({"messages": [USER], **body})


def messages(*given: dict[str, Any], text: str = DUMP) -> Any:
    return json.loads(render(text, messages=list(given)))


class TestMessages:
    def test_text_is_text(self) -> None:
        assert messages(USER) == [USER]

    def test_parts_are_joined_by_lines(self) -> None:
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        assert messages({"role": "user", "content": parts}) == [{"role": "user", "content": "a\nb"}]

    def test_a_template_that_loops_over_content_gets_parts(self) -> None:
        looping = "{% for m in messages %}{% for part in m.content %}{% endfor %}{% endfor %}" + DUMP
        tool = {"role": "tool", "tool_call_id": "1", "content": "r"}
        assert messages(USER, tool, text=looping) == [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "tool", "content": "r", "tool_call_id": "1"},
        ]

    def test_no_content_is_empty_text(self) -> None:
        assert messages({"role": "assistant", "content": None}, USER)[0] == {
            "role": "assistant",
            "content": "",
        }

    def test_calls_are_in_the_order_of_vllm_with_their_arguments_decoded(self) -> None:
        call = {"type": "function", "id": "1", "function": {"arguments": '{"b": 1, "a": 2}', "name": "f"}}
        given = {"role": "assistant", "content": None, "tool_calls": [call]}
        assert render("{{ messages[0].tool_calls | tojson }}", messages=[given]) == (
            '[{"id": "1", "function": {"arguments": {"b": 1, "a": 2}, "name": "f"}, "type": "function"}]'
        )

    @pytest.mark.parametrize("arguments", ["", "no json", "[]", None, 5])
    def test_arguments_that_are_no_object_are_an_empty_one(self, arguments: Any) -> None:
        call = {"type": "function", "id": "1", "function": {"arguments": arguments, "name": "f"}}
        given = {"role": "assistant", "tool_calls": [call]}
        assert messages(given)[0]["tool_calls"][0]["function"]["arguments"] == {}

    def test_no_calls_are_left_out(self) -> None:
        assert "tool_calls" not in messages({"role": "assistant", "content": "a", "tool_calls": []})[0]

    @pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
    def test_reasoning_has_both_names(self, name: str) -> None:
        assert messages({"role": "assistant", "content": "a", name: "r"}) == [
            {"role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": "r"}
        ]

    def test_names_are_kept(self) -> None:
        assert messages({**USER, "name": "bob"}) == [{**USER, "name": "bob"}]

    @pytest.mark.parametrize(
        "message",
        [
            "hi",
            {"role": "developer", "content": "a"},
            {"role": ["user"], "content": "a"},
            {"role": "user", "content": 5},
            {"role": "user", "content": ["a"]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}]},
            {"role": "user", "content": "a", "tomorrow": 1},
            {"role": "system", "content": "x-anthropic-billing-header: 1"},
            {"role": "assistant", "tool_calls": [{"type": "custom", "id": "1", "custom": {}}]},
            {"role": "assistant", "tool_calls": [{"type": "function", "id": "1"}]},
            {"role": "assistant", "tool_calls": 5},
        ],
    )
    def test_what_is_not_certain_is_refused(self, message: Any) -> None:
        with pytest.raises(NotRenderableError):
            messages(message)

    @pytest.mark.parametrize("given", [[], None, "hi"])
    def test_no_messages(self, given: Any) -> None:
        with pytest.raises(NotRenderableError):
            render(DUMP, messages=given)


class TestArguments:
    ALL = "{{ add_generation_prompt }},{{ documents }},{{ reasoning_effort }},{{ enable_thinking }},{{ x }}"

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ({}, "True,None,,,"),
            ({"add_generation_prompt": False}, "False,None,,,"),
            ({"documents": [{"text": "t"}]}, "True,[{'text': 't'}],,,"),
            ({"reasoning_effort": "low"}, "True,None,low,True,"),
            ({"reasoning_effort": "none"}, "True,None,none,False,"),
            (
                {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}},
                "True,None,low,False,",
            ),
            ({"chat_template_kwargs": {"x": 5}}, "True,None,,,5"),
            ({"chat_template_kwargs": {"x": None}}, "True,None,,,"),
            ({"chat_template_kwargs": {"x": "auto"}}, "True,None,,,"),
        ],
    )
    def test_they_reach_the_template(self, body: dict[str, Any], expected: str) -> None:
        assert render(self.ALL, **body) == expected

    @pytest.mark.parametrize("name", ["chat_template", "tools", "tokenize", "continue_final_message"])
    def test_those_with_a_meaning_of_their_own_are_refused(self, name: str) -> None:
        with pytest.raises(NotRenderableError):
            render(self.ALL, chat_template_kwargs={name: True})

    def test_a_client_may_say_what_a_special_token_is(self) -> None:
        assert render("{{ bos_token }}") == "<s>"
        assert render("{{ bos_token }}", chat_template_kwargs={"bos_token": "!"}) == "!"


class TestTools:
    def test_known_fields_in_the_order_of_vllm(self) -> None:
        assert render("{{ tools | tojson }}", tools=[{"function": FUNCTION, "type": "function"}]) == (
            '[{"type": "function", "function": {"name": "f", "description": null, '
            '"parameters": {"b": 1, "a": 2}}}]'
        )
        strict = {"function": {**FUNCTION, "strict": True}, "type": "function"}
        assert render("{{ tools[0].function.strict }}", tools=[strict]) == "True"

    def test_none_are_none(self) -> None:
        assert render("{{ tools }}") == "None"

    @pytest.mark.parametrize(
        "body",
        [
            {"tools": []},
            {"tools": [5]},
            {"tools": [{"type": "function"}]},
            {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "none"},
            {"tools": [{"type": "function", "function": {**FUNCTION, "defer_loading": True}}]},
        ],
    )
    def test_what_is_not_certain_is_refused(self, body: dict[str, Any]) -> None:
        with pytest.raises(NotRenderableError):
            render(DUMP, **body)


class TestLanguage:
    def test_what_a_template_may_use(self) -> None:
        assert render("{{ strftime_now('%d %b %Y') }}") == "01 Mar 2026"
        assert render("{{ {'a': '<é>'} | tojson }}") == '{"a": "<é>"}'
        assert render("{% for i in [1, 2] %}{{ i }}{% break %}{% endfor %}") == "1"
        assert render("{% generation %}a{{ 1 }}{% endgeneration %}") == "a1"
        assert render("{% if true %}\n  a\n{% endif %}\n") == "  a\n"

    @pytest.mark.parametrize(
        "text",
        [
            "{{ raise_exception('no') }}",
            "{{ 1 / 0 }}",
            "{{ messages.append(1) }}",
            "{{ ''.__class__.__mro__ }}",
            "{{ messages[0].content.no.such }}",
        ],
    )
    def test_a_template_that_fails_refuses(self, text: str) -> None:
        with pytest.raises(NotRenderableError):
            render(text)


def in_loop(body: str, over: str = "messages") -> str:
    return f"{{% for m in {over} %}}{body}{{% endfor %}}"


CONTENT_LOOP = "{% for c in m.content %}{% endfor %}"
MACRO = "{% macro show(it) %}{% for c in it %}{% endfor %}{% endmacro %}"


class TestWantsParts:
    @pytest.mark.parametrize(
        "text",
        [
            in_loop(CONTENT_LOOP),
            in_loop("{% for c in m['content'] | list %}{% endfor %}"),
            in_loop("{% set content = m.content %}{% for c in content %}{% endfor %}"),
            "{% set rest = messages[1:] %}" + in_loop(CONTENT_LOOP, "rest"),
            MACRO + in_loop("{{ show(m.content) }}"),
            MACRO + in_loop("{{ show(it=m.content) }}"),
        ],
    )
    def test_it_does_when_it_loops_over_content(self, text: str) -> None:
        assert '"type": "text"' in render(text + DUMP)

    @pytest.mark.parametrize(
        "text",
        [
            in_loop("{{ m.content }}"),
            in_loop("{% for c in m.tool_calls or [] %}{% endfor %}"),
            "{% for c in bos_token.content or [] %}{% endfor %}",
            MACRO.replace("it", "content") + in_loop("{{ show([]) }}"),
        ],
    )
    def test_it_does_not_otherwise(self, text: str) -> None:
        assert '"type": "text"' not in render(text + DUMP)


class TestLoading:
    def test_nothing_there(self, tmp_path: Path) -> None:
        assert ChatTemplate.load(tmp_path) is None

    def test_the_field_of_the_tokenizers_configuration(self, tmp_path: Path) -> None:
        configure(
            tmp_path,
            chat_template="{{ bos_token }}{{ eos_token }}",
            bos_token={"content": "<s>"},
            eos_token="</s>",
        )
        template = ChatTemplate.load(tmp_path)
        assert template is not None
        assert template.render(BODY) == "<s></s>"

    def test_a_file_comes_before_the_field(self, tmp_path: Path) -> None:
        configure(tmp_path, chat_template="field")
        (tmp_path / "chat_template.json").write_text('{"chat_template": "legacy"}')
        template = ChatTemplate.load(tmp_path)
        assert template is not None
        assert template.render(BODY) == "field"
        (tmp_path / "chat_template.jinja").write_text("file")
        template = ChatTemplate.load(tmp_path)
        assert template is not None
        assert template.render(BODY) == "file"

    def test_a_file_of_older_models(self, tmp_path: Path) -> None:
        (tmp_path / "chat_template.json").write_text('{"chat_template": "legacy"}')
        template = ChatTemplate.load(tmp_path)
        assert template is not None
        assert template.render(BODY) == "legacy"

    def test_a_template_for_tools(self, tmp_path: Path) -> None:
        named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
        configure(tmp_path, chat_template=named)
        template = ChatTemplate.load(tmp_path)
        assert template is not None
        tools = [{"type": "function", "function": {"name": "f"}}]
        assert (template.render(BODY), template.render({**BODY, "tools": tools})) == (
            "plain",
            "tools",
        )

    def test_further_templates_in_files(self, tmp_path: Path) -> None:
        (tmp_path / "chat_template.jinja").write_text("plain")
        (tmp_path / "additional_chat_templates").mkdir()
        (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
        template = ChatTemplate.load(tmp_path)
        assert template is not None
        tools = [{"type": "function", "function": {"name": "f"}}]
        assert template.render({**BODY, "tools": tools}) == "tools"

    def test_no_default(self, tmp_path: Path) -> None:
        configure(tmp_path, chat_template=[{"name": "rag", "template": "x"}])
        template = ChatTemplate.load(tmp_path)
        assert template is not None
        with pytest.raises(NotRenderableError):
            template.render(BODY)
