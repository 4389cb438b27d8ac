from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prefix_router.kv_events import prompt_tokens
from prefix_router.kv_events.prompt_tokens import PromptTokens
from prefix_router.openai_api.request import Api
from prefix_router.tokenization import TokenizerError

USER = {"role": "user", "content": "hi"}


@pytest.fixture
def prompts(model: Path) -> Iterator[PromptTokens]:
    prompts = PromptTokens(model / "tokenizer.json")
    yield prompts
    prompts.close()


def ids(packed: bytes | None) -> list[int] | None:
    return None if packed is None else array("I", packed).tolist()


def text(*characters: str | int) -> list[int]:
    return [code for part in characters for code in ([part] if isinstance(part, int) else map(ord, part))]


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


class TestCompletions:
    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({"prompt": "ab<s>c"}, text(1, "ab", 1, "c")),
            ({"prompt": "ab", "add_special_tokens": False}, text("ab")),
            ({"prompt": [5, 6, 7]}, [5, 6, 7]),
            ({"prompt": ["ab", "cd"]}, text(1, "ab")),
            ({"prompt": [[5, 6], [7]]}, [5, 6]),
            ({"prompt": "ab", "suffix": None, "max_tokens": 5}, text(1, "ab")),
        ],
    )
    def test_the_ids_of(self, prompts: PromptTokens, fields: dict[str, Any], expected: list[int]) -> None:
        assert ids(prompts.tokens(Api.COMPLETIONS, body(**fields))) == expected

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"prompt": 5},
            {"prompt": [1, "a"]},
            {"prompt": [-1]},
            {"prompt": "ab", "suffix": "x"},
            {"prompt": "ab", "truncate_prompt_tokens": 5},
            {"prompt": "ab", "prompt_embeds": "AAAA"},
        ],
    )
    def test_none_for(self, prompts: PromptTokens, fields: dict[str, Any]) -> None:
        assert prompts.tokens(Api.COMPLETIONS, body(**fields)) is None


def test_ids_in_ids_out(prompts: PromptTokens) -> None:
    assert ids(prompts.tokens(Api.GENERATE, body(token_ids=[5, 6]))) == [5, 6]
    assert prompts.tokens(Api.GENERATE, body(token_ids=[5, 6], features={"mm_hashes": {}})) is None


class TestChat:
    def test_the_template_is_tokenized_without_further_special_tokens(self, prompts: PromptTokens) -> None:
        assert ids(prompts.tokens(Api.CHAT, body(messages=[USER]))) == text(1, "[user] hi [assistant]")

    def test_with_special_tokens_when_it_is_asked_for(self, prompts: PromptTokens) -> None:
        packed = prompts.tokens(Api.CHAT, body(messages=[USER], add_special_tokens=True))
        assert ids(packed) == text(1, 1, "[user] hi [assistant]")

    @pytest.mark.parametrize(
        "fields",
        [
            {"chat_template": "x"},
            {"continue_final_message": True, "add_generation_prompt": False},
            {"truncate_prompt_tokens": 5},
            {"mm_processor_kwargs": {"a": 1}},
            {"kv_transfer_params": {"prompt_token_ids": [1]}},
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        ],
        ids=lambda fields: next(iter(fields)),
    )
    def test_none_for(self, prompts: PromptTokens, fields: dict[str, Any]) -> None:
        assert prompts.tokens(Api.CHAT, body(**{"messages": [USER], **fields})) is None

    def test_none_without_a_template(self, model: Path, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
        prompts = PromptTokens(tmp_path / "tokenizer.json")
        assert prompts.tokens(Api.CHAT, body(messages=[USER])) is None
        assert ids(prompts.tokens(Api.COMPLETIONS, body(prompt="a"))) == text(1, "a")
        prompts.close()


@pytest.mark.parametrize(
    "broken", [b"", b"[]", b"{", b'{"messages": {}}', b'{"prompt": "\\ud800"}', b"[" * 9000]
)
@pytest.mark.parametrize("api", [Api.CHAT, Api.COMPLETIONS])
def test_none_for_a_body_that_is_broken(prompts: PromptTokens, api: Api, broken: bytes) -> None:
    assert prompts.tokens(api, broken) is None


@pytest.mark.parametrize("api", [api for api in Api if api not in (Api.CHAT, Api.COMPLETIONS, Api.GENERATE)])
def test_none_for_other_apis(prompts: PromptTokens, api: Api) -> None:
    assert prompts.tokens(api, body(messages=[USER], prompt="a", input="b")) is None


async def test_long_prompts_are_read_in_a_thread_with_the_same_result(prompts: PromptTokens) -> None:
    for length in (1, 3 * prompt_tokens.AT_ONCE_BYTES):
        packed = await prompts.read(Api.COMPLETIONS, body(prompt="a" * length))
        assert ids(packed) == text(1, "a" * length)


async def test_none_for_more_than_can_be_read_in_time(
    prompts: PromptTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = body(prompt="a" * 2 * prompt_tokens.AT_ONCE_BYTES)
    monkeypatch.setattr(prompt_tokens, "MOST_WAITING", 2)
    answers = await asyncio.gather(*(prompts.read(Api.COMPLETIONS, long) for _ in range(3)))
    assert [answer is None for answer in answers] == [False, False, True]
    assert await prompts.read(Api.COMPLETIONS, long) is not None, "there is room again"
    monkeypatch.setattr(prompt_tokens, "MOST_BYTES", len(long) - 1)
    assert await prompts.read(Api.COMPLETIONS, long) is None


@pytest.mark.parametrize(
    "config", [b"[]", b"{", b'{"chat_template": "{% for"}', b'{"chat_template": [{"name": "default"}]}']
)
def test_a_template_that_cannot_be_used_is_told(model: Path, tmp_path: Path, config: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_bytes(config)
    with pytest.raises(TokenizerError, match="cannot use the chat template beside"):
        PromptTokens(tmp_path / "tokenizer.json")
