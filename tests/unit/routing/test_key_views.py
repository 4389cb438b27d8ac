"""What the other rooms provide fits what the key asks for: mypy checks the types, the tests the behaviour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.openai_api.request import parse
from prefix_router.routing.key_views import PromptView, RequestView, TokenEncoder

if TYPE_CHECKING:
    from prefix_router.tokenization import HeadTokenizer


def as_encoder(tokenizer: HeadTokenizer) -> TokenEncoder:
    return tokenizer


def test_a_parsed_request_is_a_view_of_a_request() -> None:
    body = b'{"model": "m", "cache_salt": "s", "prompt_cache_key": "p", "messages": [{"role": "user"}]}'
    request: RequestView = parse("/v1/chat/completions", None, body, {})
    assert (request.model, request.cache_salt, request.affinity_id) == ("m", "s", "p")


def test_a_parsed_prompt_is_a_view_of_a_prompt() -> None:
    body = b'{"tools": [], "messages": [{"role": "user", "content": "Hi"}]}'
    prompt: PromptView | None = parse("/v1/chat/completions", None, body, {}).prompt
    assert prompt is not None
    assert list(prompt.preamble()) == [("tools", b"[]")]
    assert list(prompt.turns()) == [("user", [("text", "Hi", True)])]
    assert prompt.token_ids(5) is None
