from __future__ import annotations

import pytest

from prefix_router.simulate import tokens
from prefix_router.simulate.asks import Ask
from prefix_router.simulate.errors import InvalidRequestError
from prefix_router.simulate.forms import Form
from prefix_router.simulate.jobs import Job, plan
from prefix_router.simulate.settings import StandInSettings

SETTINGS = StandInSettings(kv_tokens=1600, output_tokens=7)
PROMPT = bytes(400)


def make_job(ask: Ask, model: str = "m", settings: StandInSettings = SETTINGS) -> Job:
    return plan(ask, model, settings)


def test_an_answer_uses_its_limit_up() -> None:
    job = make_job(Ask(None, (PROMPT,), max_tokens=30))
    assert job.requests[0].output_tokens == 30
    assert job.finish_reason == "length"


def test_an_answer_without_a_limit_stops_by_itself() -> None:
    job = make_job(Ask(None, (PROMPT,), None))
    assert job.requests[0].output_tokens == 7
    assert job.finish_reason == "stop"


def test_an_answer_without_a_limit_ends_with_the_context() -> None:
    job = make_job(Ask(None, (bytes(4 * 1597),), None))
    assert job.requests[0].output_tokens == 3


def test_hashes_cover_the_prompt_and_the_output_behind_it() -> None:
    request = make_job(Ask(None, (PROMPT,), max_tokens=28)).requests[0]
    assert request.prompt_tokens == 100
    assert len(request.block_hashes) == 128 // 16


@pytest.mark.parametrize(
    ("ask", "model"),
    [(Ask(None, (PROMPT,), 30, cache_salt="other"), "m"), (Ask(None, (PROMPT,), 30), "adapter")],
)
def test_model_and_salt_decide_what_can_be_shared(ask: Ask, model: str) -> None:
    one = make_job(Ask(None, (PROMPT,), 30)).requests[0].block_hashes
    other = make_job(ask, model).requests[0].block_hashes
    assert not set(one) & set(other)


def test_the_same_request_gets_the_same_answer_and_another_seed_another() -> None:
    ask = Ask(None, (PROMPT,), 30)
    assert make_job(ask).outputs == make_job(ask).outputs
    assert make_job(ask).outputs != make_job(ask, settings=StandInSettings(seed=1)).outputs


def test_answers_to_one_prompt_differ_and_share_its_blocks() -> None:
    job = make_job(Ask(None, (PROMPT,), 20, answers=2))
    one, other = job.requests
    assert job.outputs[0] != job.outputs[1]
    assert one.block_hashes[:6] == other.block_hashes[:6]


def test_usage_counts_a_prompt_once_and_each_of_its_answers() -> None:
    job = make_job(Ask(None, (PROMPT, PROMPT), 20, answers=3))
    for request in job.requests:
        request.cached_tokens = 96
    usage = job.usage()
    assert (usage.prompt_tokens, usage.output_tokens, usage.cached_tokens) == (200, 120, 192)


def test_the_text_of_an_answer_can_be_had_in_pieces() -> None:
    job = make_job(Ask(None, (PROMPT,), 20))
    whole = job.answers()[0].text
    assert job.text(0, 0, 5) + job.text(0, 5, 20) == whole == tokens.decode(job.outputs[0])


@pytest.mark.parametrize(
    ("prompt_tokens", "max_tokens", "param"),
    [(1600, None, "prompt"), (5000, 1, "prompt"), (1500, 101, "max_tokens")],
)
def test_what_does_not_fit_the_context_is_invalid(
    prompt_tokens: int, max_tokens: int | None, param: str
) -> None:
    with pytest.raises(InvalidRequestError, match="maximum context length is 1600 tokens") as caught:
        make_job(Ask(None, (bytes(4 * prompt_tokens),), max_tokens))
    assert caught.value.param == param


def test_a_form_ends_by_itself_whatever_the_limit() -> None:
    job = make_job(Ask(None, (PROMPT,), max_tokens=30, form=Form({"const": "short"})))
    assert tokens.decode(job.outputs[0]).strip() == '"short"'
    assert job.requests[0].output_tokens == tokens.count(job.outputs[0]) < 30
    assert job.finish_reason == "stop"


def test_a_form_that_is_longer_than_the_limit_is_cut() -> None:
    job = make_job(Ask(None, (PROMPT,), max_tokens=3, form=Form({"const": "x" * 100})))
    assert job.requests[0].output_tokens == 3
    assert job.finish_reason == "length"
