from __future__ import annotations

import json
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from prefix_router.openai_api.condense import Limits
from prefix_router.openai_api.json_scan import WholeBytes, finish
from prefix_router.openai_api.request import Api, KeylessCause, RoutingRequest, parse, parse_large

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]
AFFINITY = "X-Prefix-Router-Affinity-Id"
SAGEMAKER = "X-Amzn-SageMaker-Prefix-Aware-Id"


def read(
    body: Any, path: str = CHAT, content_type: str | None = "application/json", **headers: str
) -> RoutingRequest:
    written = body if isinstance(body, bytes | bytearray) else json.dumps(body).encode()
    return parse(path, content_type, written, headers)


def chat(**fields: Any) -> RoutingRequest:
    return read({"messages": MESSAGES, **fields})


@pytest.mark.parametrize(
    ("path", "api", "body"),
    [
        ("/v1/chat/completions", Api.CHAT, {"messages": MESSAGES}),
        ("/v1/chat/completions/render", Api.TOKENIZE, {"messages": MESSAGES}),
        ("/v1/completions", Api.COMPLETIONS, {"prompt": "Once"}),
        ("/v1/completions/render", Api.TOKENIZE, {"prompt": "Once"}),
        ("/v1/responses", Api.RESPONSES, {"input": "Hi"}),
        ("/v1/messages", Api.MESSAGES, {"messages": MESSAGES}),
        ("/v1/messages/count_tokens", Api.TOKENIZE, {"messages": MESSAGES}),
        ("/v1/embeddings", Api.EMBEDDINGS, {"input": ["a"]}),
        ("/rerank", Api.RERANK, {"query": "a", "documents": ["b"]}),
        ("/v1/rerank", Api.RERANK, {"query": "a", "documents": ["b"]}),
        ("/v2/rerank", Api.RERANK, {"query": "a", "documents": ["b"]}),
        ("/score", Api.SCORE, {"text_1": "a", "text_2": "b"}),
        ("/v1/score", Api.SCORE, {"text_1": "a", "text_2": "b"}),
        ("/generative_scoring", Api.SCORE, {"query": "a", "items": ["b"]}),
        ("/pooling", Api.POOLING, {"input": "a"}),
        ("/classify", Api.CLASSIFY, {"input": "a"}),
        ("/tokenize", Api.TOKENIZE, {"prompt": "Once"}),
        ("/inference/v1/generate", Api.GENERATE, {"token_ids": [1, 2]}),
        ("/invocations", Api.INVOCATIONS, {"messages": MESSAGES}),
    ],
)
def test_each_api_is_known_by_its_path_and_has_a_prompt(path: str, api: Api, body: Any) -> None:
    for spelling in (path, path + "/", path + "//"):
        request = read({"model": "m", **body}, spelling)
        assert (request.api, request.model, request.keyless_cause) == (api, "m", None)
        assert request.prompt is not None


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/chat/completions/batch", Api.CHAT),
        ("/detokenize", Api.TOKENIZE),
        ("/v1/audio/speech", Api.OTHER),
        ("/v1/chat", Api.OTHER),
        ("/x/v1/chat/completions", Api.OTHER),
        ("/V1/chat/completions", Api.OTHER),
        ("/", Api.OTHER),
        ("", Api.OTHER),
    ],
)
def test_other_paths_have_no_key_but_a_model(path: str, api: Api) -> None:
    request = read({"model": "m", "stream": True, "messages": MESSAGES}, path)
    assert request == RoutingRequest(
        api=api, model="m", stream=True, keyless_cause=KeylessCause.UNSUPPORTED_PATH
    )
    assert read(b"RIFF", path).keyless_cause is KeylessCause.UNSUPPORTED_PATH


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/json;charset=utf-8",
        "application/problem+json",
    ],
)
def test_json_is_read_under_each_of_its_content_types_and_without_one(content_type: str | None) -> None:
    assert read({"messages": MESSAGES}, content_type=content_type).prompt is not None


@pytest.mark.parametrize(
    "content_type", ["multipart/form-data; boundary=x", "text/plain", "application/jsonl"]
)
def test_other_content_types_are_not_read(content_type: str) -> None:
    request = read({"model": "m", "messages": MESSAGES}, content_type=content_type)
    assert request == RoutingRequest(api=Api.CHAT, keyless_cause=KeylessCause.NOT_JSON)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b'{"messages": [{"role": "user"}]} x',
        b"\xef\xbb\xbf{}",
        b"\x00\xff\xfe",
        '{"messages": []}'.encode("utf-16"),
        b'{"messages": [{"role": "user", "content": "\\ud83d"}]}',
        b'{"messages": [{"role": "user", "content": "\\udc00x"}]}',
        b'{"messages": [{"role": "user", "content": "\xff"}]}',
        b'{"model": "\xff", "messages": []}',
        b'{"messages": NaN}',
        b"{'messages': []}",
    ],
)
def test_bytes_that_are_not_json_or_not_unicode_have_no_key(body: bytes) -> None:
    assert read(body) == RoutingRequest(api=Api.CHAT, keyless_cause=KeylessCause.NOT_JSON)


@pytest.mark.parametrize("body", [b"[]", b"null", b"5", b'"x"', b"true"])
def test_json_that_is_not_an_object_has_no_key(body: bytes) -> None:
    assert read(body).keyless_cause is KeylessCause.NOT_AN_OBJECT


@pytest.mark.parametrize("messages", [None, [], "x", 5, {}, [5], [None], [{"role": 5}], ["x"]])
def test_messages_of_another_type_cost_the_key_and_nothing_else(messages: Any) -> None:
    request = read({"messages": messages, "model": "m", "stream": True, "prompt_cache_key": "p"})
    assert request == RoutingRequest(
        api=Api.CHAT, model="m", stream=True, affinity_id="p", keyless_cause=KeylessCause.NO_PROMPT
    )


@pytest.mark.parametrize("nest", ["[", '{"a":'])
@pytest.mark.parametrize("field", ["messages", "unknown", "tools"])
def test_a_body_that_is_nested_too_deep_has_no_key(nest: str, field: str) -> None:
    request = read(f'{{"{field}": {nest * 100_000}'.encode())
    assert request.keyless_cause is KeylessCause.UNREADABLE


def test_a_huge_array_of_small_things_is_not_built() -> None:
    request = read(b'{"model": "m", "messages": [' + b"{}," * 300_000 + b"{}]}")
    assert request.model == "m"
    assert request.prompt is not None
    assert len(list(request.prompt.turns())) == 64


@pytest.mark.parametrize("model", [None, 5, True, ["m"], {"a": 1}, ""])
def test_a_model_that_is_not_a_name_is_none_and_the_prompt_stays(model: Any) -> None:
    request = chat(model=model)
    assert request.model is None
    assert request.prompt is not None


@pytest.mark.parametrize(
    ("stream", "expected"), [(True, True), (False, False), (None, False), ("true", False), (1, False)]
)
def test_a_request_streams_when_it_says_true(stream: Any, expected: bool) -> None:
    assert chat(stream=stream).stream is expected


def test_only_fields_of_the_top_level_count() -> None:
    inner = {"model": "inner", "stream": True, "prompt_cache_key": "inner", "cache_salt": "inner"}
    text = 'say {"model": "quoted", "user": "quoted"}'
    request = chat(metadata=inner, messages=[{"role": "user", "content": text, **inner}])
    assert request.prompt is not None
    assert (request.model, request.stream) == (None, False)
    assert (request.affinity_id, request.cache_salt) == (None, None)


def test_the_last_of_two_fields_of_one_name_counts() -> None:
    assert read(b'{"model": "a", "messages": [{}], "model": "b"}').model == "b"


def test_a_model_after_megabytes_of_content_is_found() -> None:
    body = {"messages": [{"role": "user", "content": "x" * 10_000_000}], "model": "m"}
    assert read(body).model == "m"


def test_a_bytearray_is_read_like_bytes() -> None:
    request = read(bytearray(json.dumps({"model": "m", "messages": MESSAGES}).encode()))
    assert request.model == "m"
    assert request.prompt is not None


@pytest.mark.parametrize(("salt", "expected"), [("s", "s"), (None, None), (5, None), (["s"], None)])
def test_a_cache_salt_is_a_string(salt: Any, expected: str | None) -> None:
    assert chat(cache_salt=salt).cache_salt == expected


def test_a_response_names_the_one_it_continues() -> None:
    request = read({"input": "Hi", "previous_response_id": "resp_1"}, "/v1/responses")
    assert request.previous_response_id == "resp_1"
    assert request.prompt is not None
    for none in (None, "", 5):
        body = {"input": "Hi", "previous_response_id": none}
        assert read(body, "/v1/responses").previous_response_id is None


@pytest.mark.parametrize("name", [AFFINITY, SAGEMAKER])
@pytest.mark.parametrize("value", ["a", "x" * 64, "tenant 7/~!", "{}"])
def test_an_affinity_header_narrows_the_key(name: str, value: str) -> None:
    request = read({"messages": MESSAGES}, **{name: value})
    assert (request.affinity_id, request.invalid_affinity_header) == (value, None)


def test_the_case_of_a_header_is_for_the_headers_to_ignore() -> None:
    headers = CIMultiDictProxy(CIMultiDict({AFFINITY.lower(): "a"}))
    assert parse(CHAT, None, b"{}", headers).affinity_id == "a"


def test_the_routers_own_header_wins_over_sagemakers_and_both_over_the_body() -> None:
    body = {"messages": MESSAGES, "prompt_cache_key": "body"}
    assert read(body, **{SAGEMAKER: "theirs", AFFINITY: "own"}).affinity_id == "own"
    assert read(body, **{SAGEMAKER: "theirs"}).affinity_id == "theirs"
    assert read(body).affinity_id == "body"


@pytest.mark.parametrize("value", ["", "x" * 65, "caf\u00e9", "a\tb", "a\x00", "\x7f"])
@pytest.mark.parametrize("name", [AFFINITY, SAGEMAKER])
def test_an_unusable_affinity_header_is_named_and_nothing_stands_in_for_it(name: str, value: str) -> None:
    request = read({"messages": MESSAGES, "prompt_cache_key": "body"}, **{name: value})
    assert (request.affinity_id, request.invalid_affinity_header) == (None, name)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", "a"),
        ("é" * 128, "é" * 128),
        ("x" * 129, None),
        ("", None),
        (5, None),
        (None, None),
        (["a"], None),
    ],
)
def test_a_prompt_cache_key_that_is_not_usable_is_ignored(value: Any, expected: str | None) -> None:
    request = chat(prompt_cache_key=value)
    assert (request.affinity_id, request.invalid_affinity_header) == (expected, None)


def test_affinity_is_known_even_without_a_prompt() -> None:
    assert read(b"not json", **{AFFINITY: "a"}).affinity_id == "a"
    assert read(b"not json", **{AFFINITY: ""}).invalid_affinity_header == AFFINITY


def test_a_request_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        chat().model = "x"  # type: ignore[misc]


def read_large(body: bytes, content_type: str | None = None, limits: Limits | None = None) -> RoutingRequest:
    return finish(parse_large(CHAT, content_type, WholeBytes(body), {AFFINITY: "a"}, 4096, limits))


def test_a_large_body_is_read_like_any_other() -> None:
    late = b'{"user":"%b","messages":[{"role":"user","content":"Hi"}],"stream":true,"model":"m"}'
    request = read_large(late % (b"u" * 10_000_000))
    assert (request.api, request.model, request.stream, request.affinity_id) == (Api.CHAT, "m", True, "a")
    assert request.prompt is not None
    assert [role for role, _ in request.prompt.turns()] == ["user"]
    assert request.keyless_cause is None


@pytest.mark.parametrize(
    ("body", "content_type", "cause"),
    [
        (b"{" + b" " * 100_000, None, KeylessCause.NOT_JSON),
        (b"{}" + b" " * 100_000, "text/plain", KeylessCause.NOT_JSON),
        (b"[]" + b" " * 100_000, None, KeylessCause.NOT_AN_OBJECT),
        (b"{}" + b" " * 100_000, None, KeylessCause.NO_PROMPT),
        (b'{"messages":"' + b"m" * 100_000 + b'"}', None, KeylessCause.NO_PROMPT),
    ],
)
def test_a_large_body_without_a_prompt_says_why(
    body: bytes, content_type: str | None, cause: KeylessCause
) -> None:
    assert read_large(body, content_type).keyless_cause is cause


def test_a_large_body_that_would_take_too_long_has_no_prompt_but_may_have_a_model() -> None:
    many = b",".join(b'"%d":1' % number for number in range(1000))
    body = b'{"model":"m","messages":[{"role":"user"}],' + many + b"}"
    request = read_large(body, limits=Limits(most_decoded_bytes=0, most_steps=500))
    assert (request.model, request.prompt, request.keyless_cause) == ("m", None, KeylessCause.TOO_LARGE)
    assert read_large(body).keyless_cause is None
