from __future__ import annotations

import json
from typing import Any

import pytest

from prefix_router.explain import SHOWN_CHARACTERS, guess_path, run
from tests.support.router import settings_for

URLS = ["http://127.0.0.1:8101", "http://127.0.0.1:8102", "http://127.0.0.1:8103"]


def explained(
    capsys: pytest.CaptureFixture[str], body: Any, *headers: tuple[str, str], **sections: Any
) -> Any:
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert run(settings_for(URLS, **sections), payload, None, list(headers), as_json=True) == 0
    return json.loads(capsys.readouterr().out)


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


def test_it_says_which_backend_why_and_what_was_hashed(capsys: pytest.CaptureFixture[str]) -> None:
    document = explained(capsys, chat("a secret plan"))
    assert document["api"] == "chat"
    assert document["model"] == "m"
    assert document["decision"]["reason"] == "affinity"
    assert document["decision"]["backend"] == document["home"] == document["ring_order"][0]["backend"]
    assert "a secret plan" in document["hashed_text"]
    assert len(document["key"]) == 16
    assert document["prefix"]["ended_at"] == "first_user_turn"
    assert sorted(entry["backend"] for entry in document["ring_order"]) == ["a", "b", "c"]


def test_it_says_what_would_happen_if_the_home_were_full_or_down(capsys: pytest.CaptureFixture[str]) -> None:
    document = explained(capsys, chat("x"))
    assert document["if_home_were_full"]["reason"] == "overflow"
    assert document["if_home_were_full"]["backend"] != document["home"]
    assert document["if_home_were_down"]["reason"] == "failover"
    assert document["if_home_were_down"]["backend"] == document["ring_order"][1]["backend"]


def test_a_request_without_a_key_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    document = explained(capsys, b"not json")
    assert document["key"] is None
    assert document["keyless_cause"] == "not_json"
    assert document["decision"]["reason"] == "keyless"
    assert document["if_home_were_full"] is None


def test_what_would_be_refused_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    bad = explained(capsys, chat("x"), ("X-Prefix-Router-Affinity-Id", "é" * 3))
    assert bad["refused"].startswith("400")
    backends = [{"url": URLS[0], "models": ["other"]}]
    assert explained(capsys, chat("x"), backends=backends)["refused"].startswith("404")


def test_the_text_form_is_for_people_and_shortens_long_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(URLS)
    run(settings, json.dumps(chat("word " * 3000)).encode(), None, [], as_json=False)
    text = capsys.readouterr().out
    assert "(affinity)" in text
    assert "(overflow)" in text
    assert "(failover)" in text
    assert "characters …" in text
    assert len(text) < SHOWN_CHARACTERS + 2000


def test_round_robin_is_explained_without_moving_it(capsys: pytest.CaptureFixture[str]) -> None:
    first = explained(capsys, chat("x"), routing={"strategy": "round_robin"})
    assert first["decision"]["reason"] == "round_robin"
    assert first["home"] is None


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"messages": []}', "/v1/chat/completions"),
        (b'{"messages": [], "system": "s"}', "/v1/messages"),
        (b'{"prompt": "p"}', "/v1/completions"),
        (b'{"input": "i"}', "/v1/responses"),
        (b"{}", "/v1/chat/completions"),
        (b"[]", "/v1/chat/completions"),
        (b"", "/v1/chat/completions"),
        (b"\xff", "/v1/chat/completions"),
        (b"[" * 100_000, "/v1/chat/completions"),
    ],
)
def test_the_path_is_guessed_from_the_body(body: bytes, path: str) -> None:
    assert guess_path(body) == path


def test_with_depth_auto_it_says_how_deep_the_key_looked(capsys: pytest.CaptureFixture[str]) -> None:
    document = explained(capsys, chat("a secret plan " * 50), routing={"prefix": {"depth": "auto"}})
    assert document["prefix"]["depth"] == "auto"
    assert document["prefix"]["counted"] == 64
    assert document["prefix"]["popular"] == 0
    assert document["prefix"]["prompt"] > 170
    assert document["decision"]["reason"] == "affinity"
    assert "expected_cached_tokens" not in document["decision"]


def test_adaptive_says_what_it_expects_of_the_cache(capsys: pytest.CaptureFixture[str]) -> None:
    document = explained(capsys, chat("a secret plan " * 50), routing={"strategy": "adaptive"})
    assert document["decision"]["reason"] == "placed"
    assert document["decision"]["expected_cached_tokens"] == 0


def test_for_people_it_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(URLS, routing={"strategy": "adaptive"})
    run(settings, json.dumps(chat("a secret plan " * 50)).encode(), None, [], as_json=False)
    text = capsys.readouterr().out
    assert "depth auto; 0 of them are a popular beginning" in text
    assert "placed, 0 tokens expected in its cache" in text
