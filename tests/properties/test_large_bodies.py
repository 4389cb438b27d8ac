"""A large body, which is read in steps, has the key that it would have if it were read at once."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from prefix_router.openai_api.condense import Limits, condense
from prefix_router.openai_api.json_scan import WholeBytes, finish
from prefix_router.openai_api.request import RoutingRequest, parse, parse_large
from prefix_router.routing.key import PrefixAnchor, PrefixKey, PrefixRule, PrefixUnit, prefix_key
from tests.properties.test_key_invariants import (
    CHAT,
    PATHS,
    chats,
    key_of,
    likely,
    messages,
    names,
    relaxed,
    respelled,
    token_rules,
    unicode,
)


def large(written: bytes, rule: PrefixRule, path: str = CHAT, **limits: int) -> RoutingRequest:
    """Return what the scan finds; decoding the fields must lead to the same body."""
    source, head_bytes = WholeBytes(written), rule.head_bytes(exact=False)
    scanning = Limits(**{"most_decoded_bytes": 0, **limits})
    decoding = scanning._replace(most_decoded_bytes=1 << 30)
    assert finish(condense(source, head_bytes, scanning)) == finish(condense(source, head_bytes, decoding))
    return finish(parse_large(path, None, source, {}, head_bytes, scanning))


def large_key_of(written: bytes, rule: PrefixRule, path: str = CHAT, **limits: int) -> PrefixKey | None:
    return prefix_key(large(written, rule, path, **limits), rule, written)


@relaxed
@given(chats, token_rules, st.data())
def test_a_chat_has_one_key_however_it_is_read(
    body: dict[str, Any], rule: PrefixRule, data: st.DataObject
) -> None:
    written = respelled(body, data).encode()
    assert large_key_of(written, rule) == key_of(written, rule) is not None


@relaxed
@given(st.dictionaries(names, likely, max_size=6), st.sampled_from(PATHS), token_rules)
def test_any_json_has_one_key_however_it_is_read(body: dict[str, Any], path: str, rule: PrefixRule) -> None:
    written = json.dumps(body).encode()
    assert large_key_of(written, rule, path) == key_of(written, rule, path)
    one, other = parse(path, None, written, {}), large(written, rule, path)
    assert one.keyless_cause == other.keyless_cause
    for name in ("model", "stream", "cache_salt", "affinity_id", "previous_response_id"):
        assert getattr(one, name) == getattr(other, name)


@relaxed
@given(chats, st.integers(0, 400), st.binary(max_size=3), st.sampled_from(PATHS))
def test_reading_in_steps_finds_no_other_key_in_a_damaged_body(
    body: dict[str, Any], place: int, damage: bytes, path: str
) -> None:
    written = json.dumps(body, ensure_ascii=False).encode()
    damaged = written[:place] + damage + written[place + 1 :]
    for rule in (PrefixRule(1024), PrefixRule(9, PrefixUnit.BYTES)):
        key = key_of(damaged, rule, path)
        assert key is None or large_key_of(damaged, rule, path) == key


@relaxed
@given(chats, messages, st.booleans(), unicode)
def test_a_conversation_keeps_its_key_when_it_outgrows_what_is_read_at_once(
    body: dict[str, Any], more: list[dict[str, Any]], model_last: bool, padding: str
) -> None:
    assume(any(message["role"] == "user" for message in body["messages"]))
    small = json.dumps(body).encode()
    grown = {**body, "messages": [*body["messages"], *more, {"role": "assistant", "content": padding * 500}]}
    if model_last:
        grown["model"] = grown.pop("model")
    rule = PrefixRule(200)
    found = large_key_of(json.dumps(grown).encode(), rule, large_bytes=len(small))
    assert found == key_of(small, rule)


@relaxed
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.integers(0, 12), st.booleans())
def test_a_long_text_has_the_key_of_its_head(unit: str, shift: int, ascii_only: bool) -> None:
    whole = "x" * shift + unit * (20_000 // len(unit))
    for unit_of_rule in (PrefixUnit.TOKENS, PrefixUnit.CHARACTERS):
        rule = PrefixRule(600, unit_of_rule, PrefixAnchor.NONE)
        body = {"messages": [{"role": "system", "content": whole}, {"role": "user", "content": "and?"}]}
        written = json.dumps(body, ensure_ascii=ascii_only).encode()
        found = large_key_of(written, rule, large_bytes=4096)
        assert found == key_of(written, rule) is not None
