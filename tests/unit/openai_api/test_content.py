from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from prefix_router.openai_api.allowance import MOST_PARTS, Allowance
from prefix_router.openai_api.content import Content, Part, call, calls, named, parts
from prefix_router.openai_api.raw_json import ABSENT, UNDECODABLE, Head

_content: msgspec.json.Decoder[Content] = msgspec.json.Decoder(Content)


def read(content: Any) -> list[Part]:
    return list(parts(_content.decode(json.dumps(content)), Allowance()))


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def test_no_content_has_no_parts() -> None:
    assert read(None) == []
    assert read([]) == []


def test_a_string_is_the_same_as_a_single_text_part() -> None:
    assert read("Hello") == read([{"type": "text", "text": "Hello"}]) == [Part("text", "Hello")]


@pytest.mark.parametrize(
    "part",
    [
        "Hello",
        {"text": "Hello"},
        {"type": None, "text": "Hello"},
        {"type": "input_text", "text": "Hello"},
        {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []},
        {"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}},
    ],
)
def test_the_text_parts_of_all_dialects_are_the_same(part: Any) -> None:
    assert read([part]) == [Part("text", "Hello")]


def test_two_text_parts_are_not_one() -> None:
    assert read([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]) != read("ab")


def test_thinking_and_refusals_are_text_of_their_own_kind() -> None:
    thinking = [Part("thinking", "Hm")]
    assert read([{"type": "thinking", "thinking": "Hm", "signature": "s1"}]) == thinking
    assert read([{"type": "reasoning_text", "text": "Hm"}]) == thinking
    assert read([{"type": "summary_text", "text": "Hm"}]) == thinking
    assert read([{"type": "refusal", "refusal": "No"}]) == [Part("refusal", "No")]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "image_url", "image_url": {"url": "http://x/1"}}, Part("image_url", "http://x/1", False)),
        ({"type": "image_url", "image_url": "http://x/1"}, Part("image_url", "http://x/1", False)),
        ({"type": "input_image", "image_url": "http://x/1"}, Part("input_image", "http://x/1", False)),
        ({"type": "video_url", "video_url": {"url": "http://x/1"}}, Part("video_url", "http://x/1", False)),
        ({"type": "audio_url", "audio_url": {"url": "http://x/1"}}, Part("audio_url", "http://x/1", False)),
        (
            {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}},
            Part("input_audio", "QUJD", False),
        ),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
            Part("image", "QUJD", False),
        ),
        (
            {"type": "image", "source": {"type": "url", "url": "http://x/1"}},
            Part("image", "http://x/1", False),
        ),
    ],
)
def test_media_are_known_by_their_whole_url_or_data(part: Any, expected: Part) -> None:
    assert read([part]) == [expected]
    assert read([{**part, "cache_control": {"type": "ephemeral"}}]) == [expected]


def test_the_detail_of_an_image_does_not_matter() -> None:
    low, high = ({"type": "image_url", "image_url": {"url": "u", "detail": d}} for d in ("low", "high"))
    assert read([low]) == read([high])


def test_an_image_may_have_an_id_of_its_own() -> None:
    part = {"type": "image_url", "image_url": {"url": "http://x/1"}, "uuid": "cat"}
    assert read([part]) == [Part("image_url", "http://x/1", False), Part("uuid", "cat", False)]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "new_thing", "value": [1, 2]},
        {"type": "input_audio", "input_audio": "not an object"},
        {"type": "document", "source": {"type": "content", "content": ["page"]}},
        {"type": "text", "text": None},
    ],
)
def test_any_other_part_is_known_by_all_of_its_json(part: dict[str, Any]) -> None:
    plain = {name: value for name, value in part.items() if value is not None}
    expected = [Part(part["type"], json.dumps(plain, sort_keys=True, separators=(",", ":")), False)]
    assert read([part]) == expected
    assert read([dict(reversed(part.items()))]) == expected
    assert read([{**part, "cache_control": {"type": "ephemeral"}}]) == expected


def test_a_tool_use_is_a_name_and_arguments_without_its_id() -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome", "at": None}}
    expected = [Part("call", "weather", False), Part("arguments", '{"city":"Rome"}')]
    assert read([use]) == expected
    assert read([{**use, "id": "toolu_2"}]) == expected


def test_a_tool_result_is_its_content_without_the_id_of_its_call() -> None:
    mark = Part("tool_result", "", False)
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "21 °C"}
    assert read([result]) == [mark, Part("text", "21 °C")]
    assert read([{**result, "tool_use_id": "toolu_2"}]) == read([result])
    assert read([{"type": "tool_result"}]) == [mark]
    image = {"type": "image", "source": {"type": "base64", "data": "QUJD"}}
    assert read([{"type": "tool_result", "content": [image]}]) == [mark, Part("image", "QUJD", False)]


def test_a_tool_result_within_a_tool_result_is_not_opened() -> None:
    inner = {"content": "x", "type": "tool_result"}
    found = read([{"type": "tool_result", "content": [inner]}])
    assert found == [
        Part("tool_result", "", False),
        Part("tool_result", '{"content":"x","type":"tool_result"}', False),
    ]


def test_a_call_has_its_arguments_as_text_or_as_json() -> None:
    def read_call(arguments: Raw) -> list[Part]:
        return list(call("f", arguments, Allowance()))

    name = Part("call", "f", False)
    assert read_call(raw('{"a": 1}')) == [name, Part("arguments", '{"a": 1}')]
    assert read_call(raw({"a": 1})) == [name, Part("arguments", '{"a":1}')]
    assert read_call(ABSENT) == [name]
    assert list(call(None, ABSENT, Allowance())) == [Part("call", "", False)]


def test_the_calls_of_a_message_are_read_in_order_and_without_ids() -> None:
    listed = [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "call_2", "type": "custom"},
        {"id": "call_3", "type": "function", "function": {"name": "g", "arguments": None}},
    ]
    head = msgspec.json.decode(json.dumps(listed), type=Head)
    assert list(calls(head, Allowance())) == [
        Part("call", "f", False),
        Part("arguments", "{}"),
        Part("call", "g", False),
    ]


def test_a_name_is_a_part_if_it_is_one() -> None:
    assert list(named(raw("Ada"))) == [Part("name", "Ada", False)]
    assert list(named(raw(""))) == list(named(raw(5))) == list(named(ABSENT)) == []


@pytest.mark.parametrize("content", [[5], [None], [["x"]], [{"type": 5}], [{"type": "tool_use", "name": 5}]])
def test_content_of_another_shape_is_refused(content: Any) -> None:
    with pytest.raises(UNDECODABLE):
        read(content)


def test_no_more_parts_are_read_than_are_allowed_in_all() -> None:
    texts = _content.decode(json.dumps([""] * 64))
    results = _content.decode(json.dumps([{"type": "tool_result", "content": [""] * 63}]))
    functions = msgspec.json.decode(json.dumps([{"function": {"name": "f"}}] * 64), type=Head)
    allowance = Allowance()
    found: list[Part] = []
    for _ in range(MOST_PARTS // 64):
        found += [*parts(texts, allowance), *parts(results, allowance), *calls(functions, allowance)]
    assert len(found) == MOST_PARTS
