from __future__ import annotations

import json
from typing import Any

import pytest

from prefix_router.openai_api.condense import (
    LARGE_BYTES,
    LEAST_HEAD_BYTES,
    MOST_DECODED_BYTES,
    MOST_ROOMS,
    Condensed,
    Limits,
    condense,
)
from prefix_router.openai_api.json_scan import SLICE_BYTES, WholeBytes, finish

HEAD = LEAST_HEAD_BYTES
LONG = LARGE_BYTES + 1
TEXT = "x" * LONG


def condensed(body: Any, **limits: int) -> Condensed:
    """Return the condensed body; whether it is scanned or decoded, it must be the same."""
    written = body if isinstance(body, bytes) else json.dumps(body).encode()
    scanned = finish(condense(WholeBytes(written), HEAD, Limits(most_decoded_bytes=0, **limits)))
    if "most_steps" not in limits:
        decoded = finish(condense(WholeBytes(written), HEAD, Limits(most_decoded_bytes=1 << 30, **limits)))
        assert scanned == decoded
    return scanned


def fields(body: Any, **limits: int) -> dict[str, Any]:
    """Return the fields of the condensed body."""
    found = json.loads(condensed(body, **limits).body)
    assert isinstance(found, dict)
    return found


def text(value: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": value}


def test_what_fits_into_a_small_body_is_kept_as_it_is_written() -> None:
    written = b'{ "messages" : [ {"role": "user","content":"\\u00e9" } ], "tools": [ 1.50 ],"model":null }'
    found = condensed(written)
    assert b'"messages":[ {"role": "user","content":"\\u00e9" } ]' in found.body
    assert b'"tools":[ 1.50 ]' in found.body
    assert fields(written) == json.loads(written)
    assert found.complete


def test_fields_that_no_key_is_made_of_are_left_out() -> None:
    assert fields({"user": "u", "metadata": {"model": "m"}, "model": "a"}) == {"model": "a"}


def test_a_field_that_comes_twice_counts_as_it_comes_last() -> None:
    assert fields(b'{"model":"a","input":"b","model":"c","input":"d"}') == {"model": "c", "input": "d"}


def test_the_name_of_a_field_may_be_written_with_escapes() -> None:
    assert fields(b'{"mod\\u0065l":"a","\\u0069nput":"b","\\n":1}') == {"model": "a", "input": "b"}


def test_the_model_is_found_after_megabytes() -> None:
    body = {"messages": [text("x" * 5_000_000), text(TEXT)] * 2, "other": [TEXT], "model": "last"}
    assert fields(body)["model"] == "last"


def test_a_long_text_keeps_its_head_and_is_known_by_all_of_it() -> None:
    one = fields({"prompt": TEXT + "1"})["prompt"]
    two = fields({"prompt": TEXT + "2"})["prompt"]
    assert one != two
    assert one[:HEAD] == two[:HEAD] == TEXT[:HEAD]
    assert len(one) < HEAD + 64
    assert fields({"prompt": TEXT + "1"})["prompt"] == one


@pytest.mark.parametrize("unit", ["é", "令", "😀", '"\\/', "\n", "a\u0001", "x令😀\t"])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("shift", range(13))
def test_a_text_is_cut_between_characters_however_they_are_written(
    unit: str, ascii_only: bool, shift: int
) -> None:
    whole = "a" * shift + unit * LONG
    found = fields(json.dumps({"prompt": whole}, ensure_ascii=ascii_only).encode())["prompt"]
    head = found[:-32]  # without the digest
    assert whole.startswith(head)
    assert len(head.encode()) >= HEAD


@pytest.mark.parametrize("bad", [rb"\x", rb"\ud83d", rb"\u1x", b"\x80" * 5000])
def test_what_is_wrong_in_the_head_of_a_text_is_not_hidden(bad: bytes) -> None:
    body = condensed(b'{"prompt":"' + bad + b"a" * LONG + b'"}').body
    with pytest.raises(ValueError, match=r"codec|JSON|escape|Unterminated|surrogate"):
        json.loads(body)["prompt"].encode()


def test_a_long_text_that_has_little_more_than_its_head_is_kept() -> None:
    message = {"role": "user", "content": ["a" * (HEAD + 1), "x" * LONG]}
    assert fields({"messages": [message]}, large_bytes=HEAD)["messages"][0]["content"][0] == "a" * (HEAD + 1)


def test_the_first_elements_of_a_long_conversation_are_kept_as_they_are() -> None:
    messages = [text(str(number) * 600) for number in range(200)]
    assert fields({"messages": messages, "input": messages}) == {
        "messages": messages[:64],
        "input": messages[:64],
    }


def test_twice_the_bytes_of_a_small_body_are_kept_of_a_conversation() -> None:
    messages = [text(str(number % 10) * 10_000) for number in range(60)]
    kept = fields({"messages": messages})["messages"]
    enough = 2 * LARGE_BYTES // 10_000
    assert kept[:enough] == messages[:enough]
    assert enough <= len(kept) <= enough + 1


def test_in_a_long_message_images_are_known_by_all_of_their_data() -> None:
    def asked(data: str) -> Any:
        image = {"type": "image_url", "image_url": {"detail": "low", "url": data}}
        return fields({"messages": [text("be brief", "system"), {"content": [image, image], "role": "user"}]})

    one, two = asked(TEXT + "1"), asked(TEXT + "2")
    assert one != two
    assert one["messages"][0] == text("be brief", "system")
    assert one["messages"][1]["role"] == "user"
    assert [part["type"] for part in one["messages"][1]["content"]] == ["image_url"] * 2
    assert one["messages"][1]["content"][0]["image_url"]["detail"] == "low"


def test_the_role_of_a_message_is_kept_although_its_content_takes_all_the_room() -> None:
    parts = [{"type": "text", "text": "x" * 3000}] * 60
    message = {"content": parts, "tool_calls": parts, "name": "n", "role": "user"}
    found = fields({"messages": [message, text("more")]})["messages"]
    assert len(found) == 1
    assert (found[0]["role"], found[0]["name"], found[0]["tool_calls"]) == ("user", "n", None)
    assert found[0]["content"] == parts[: len(found[0]["content"])]


def test_of_a_long_object_the_first_members_are_kept_and_no_long_name() -> None:
    members = {f"m{number}": number for number in range(100)}
    found = fields({"messages": [{"n" * 300: 1, **members, "": TEXT}]})["messages"][0]
    assert found == {"": 1, **dict(list(members.items())[:63])}


def test_the_head_of_an_array_of_token_ids_is_kept() -> None:
    ids = list(range(100_000, 150_000))
    for body in ({"prompt": ids}, {"prompt": [ids, ids]}):
        found = fields(body)["prompt"]
        kept = found if isinstance(found[0], int) else found[0]
        assert len(kept) >= HEAD // 4
        assert kept == ids[: len(kept)]
    assert fields({"prompt": [*ids, "x"]})["prompt"][0] == ids[0]


def test_any_other_long_field_is_known_by_all_of_it_and_keeps_its_type() -> None:
    def asked(last: str) -> dict[str, Any]:
        return fields({"tools": [TEXT, last], "reasoning": {"effort": TEXT + last}, "query": TEXT + last})

    one, two = asked("1"), asked("2")
    assert [type(value) for value in one.values()] == [list, dict, str]
    assert all(one[name] != two[name] for name in one)
    assert len(json.dumps(one)) < 2 * HEAD
    assert fields(b'{"stream":' + b"1" * LONG + b"}") == {"stream": None}


def test_many_fields_that_are_nearly_long_are_as_one_that_is() -> None:
    nearly = "x" * (LARGE_BYTES - 2)
    found = fields({"text_1": nearly, "text_2": nearly, "model": "m"})
    assert found["model"] == "m"
    assert len(found["text_1"]) < HEAD + 64
    assert fields({"text_1": nearly, "other": nearly}) == {"text_1": nearly}


def test_what_is_too_deep_is_known_by_all_of_it() -> None:
    def nested(last: str) -> Any:
        value: Any = [TEXT + last]
        for _ in range(12):
            value = [value]
        return {"messages": value}

    assert len(condensed(nested("1")).body) < HEAD
    assert fields(nested("1")) != fields(nested("2"))


def test_what_is_left_is_small_whatever_is_sent() -> None:
    everything = [{"role": TEXT, "content": [TEXT, {"text": TEXT, "more": [["x" * 99] * 70] * 70}] * 3}] * 3
    names = ["system", "instructions", "messages", "input", "prompt", "token_ids", "tools", "text_1", "query"]
    found = condensed(dict.fromkeys(names, everything))
    assert len(found.body) < (MOST_ROOMS + 4) * LARGE_BYTES
    assert "system" in json.loads(found.body)
    assert "input_ids" not in json.loads(found.body)


@pytest.mark.parametrize("body", [b"[1, 2]", b' "' + b"a" * LONG + b'"', b"3 ", b"null"])
def test_what_is_not_an_object_stays_so(body: bytes) -> None:
    assert condensed(body) == Condensed(b"[]")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b'{"a"}',
        b'{"a":1,}',
        b'{"a":1 "b":2}',
        b'{"messages":[1,]}' + b" " * LONG,
        b'{"messages":[1',
        b'{"prompt":"a}',
        b'{"a":1}}',
        b'{"a":1} x',
        b'{"mod\\u00":1}',
        b'{"messages":[' + b"\xff" * LONG,
    ],
)
def test_what_is_not_json_stays_so(body: bytes) -> None:
    found = condensed(body).body
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(found)


def test_a_body_that_would_take_too_long_is_given_up_but_for_its_model() -> None:
    many = b",".join(b'"%d":1' % number for number in range(1000))
    body = b'{"model":"m","stream":true,"messages":[1],' + many + b"}"
    assert json.loads(condensed(body, most_steps=500).body) == {"model": "m", "stream": True}
    assert not condensed(body, most_steps=500).complete
    assert condensed(b"{" + many + b',"model":"m"}', most_steps=500) == Condensed(b"{}", complete=False)
    long_model = b'{"model":"' + b"m" * 300 + b'",' + many + b"}"
    assert condensed(long_model, most_steps=500).body == b"{}"
    assert condensed(body).complete


def test_the_work_is_done_in_small_steps() -> None:
    messages = [text(TEXT * 20), text('"\\' * LONG), {"role": "user", "content": [TEXT] * 70}]
    body = json.dumps({"tools": [TEXT * 5], "messages": messages * 2, "model": "m"}).encode()
    assert len(body) > MOST_DECODED_BYTES
    seen = list(condense(WholeBytes(body), HEAD))
    assert len(body) <= sum(seen) < 4 * len(body)
    assert max(seen) < 3 * SLICE_BYTES


def test_a_body_that_is_not_much_too_large_is_decoded_in_turns_of_its_own() -> None:
    body = json.dumps({"messages": [text("x" * 1000)] * 300, "model": "m"}).encode()
    assert LARGE_BYTES < len(body) < MOST_DECODED_BYTES
    first, second, third, *_ = condense(WholeBytes(body), HEAD)
    assert (first, second) == (0, len(body))
    assert len(body) - 100 < third < len(body)
