from __future__ import annotations

from prefix_router.simulate.reply import Usage, data_event, named_event


def test_usage_always_states_the_cached_tokens() -> None:
    assert Usage(10, 5, 0).as_openai() == {
        "prompt_tokens": 10,
        "total_tokens": 15,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_an_event_is_one_line_and_an_empty_one() -> None:
    assert data_event({"text": "a\nb"}) == b'data: {"text":"a\\nb"}\n\n'


def test_a_named_event_has_the_name_of_its_type() -> None:
    assert named_event({"type": "t"}) == b'event: t\ndata: {"type":"t"}\n\n'
