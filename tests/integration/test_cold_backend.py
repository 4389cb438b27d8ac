"""A backend that keeps nothing: a running router counts that it was wrong about it, and warns."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import msgspec
import pytest

from prefix_router.app import Router
from prefix_router.observe.cold_spells import BEGIN_REQUESTS
from tests.support.router import admin, ask, chat, running_router, settings_for, until
from tests.support.scripted_backend import ScriptedBackend, answering
from tests.support.workers import workers

PROMPT_TOKENS = 3000
DOCUMENT = "the same long document again " * 400
QUESTION = chat(DOCUMENT, model="m")
WARNING = "backend should be warm but answers cold"
REQUESTS = 3 * BEGIN_REQUESTS
"""After a few cold answers the strategy starts anew and expects nothing for once: more than it takes."""
ANSWER = msgspec.json.encode(
    {
        "choices": [],
        "usage": {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }
)
ADAPTIVE = {"strategy": "adaptive"}


async def ask_often(router: Router) -> None:
    for _ in range(REQUESTS):
        assert (await ask(router, QUESTION)).status == 200


async def metrics(router: Router) -> str:
    return (await admin(router, "/metrics"))[1].decode()


def warnings(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [
        record.__dict__["fields"]
        for record in caplog.records
        if record.levelno == logging.WARNING and record.getMessage() == WARNING
    ]


async def test_the_router_warns_counts_and_tells_nothing_of_the_prompt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        ScriptedBackend(answering(ANSWER)) as backend,
        running_router(backend.url, routing=ADAPTIVE) as router,
    ):
        await ask_often(router)
        text = await metrics(router)
    expected = {"backend": "a", "cold_requests": BEGIN_REQUESTS, "of_requests": BEGIN_REQUESTS}
    assert warnings(caplog) == [expected]
    [surprises] = re.findall(r'cache_surprises_total{backend="a",kind="cold"} (\S+)', text)
    assert BEGIN_REQUESTS <= float(surprises) < REQUESTS
    assert 'backend_observed_cached_tokens_total{backend="a"} 0.0' in text
    assert f'shared_prefix_requests_total{{shared_prefix="1k to 4k"}} {REQUESTS - 1.0}' in text
    assert 'shared_prefix_requests_total{shared_prefix="nothing"} 1.0' in text
    assert "document" not in text + caplog.text


async def test_a_strategy_that_expects_nothing_is_never_wrong(caplog: pytest.LogCaptureFixture) -> None:
    routing = {"prefix": {"depth": "auto"}}
    async with (
        ScriptedBackend(answering(ANSWER)) as backend,
        running_router(backend.url, routing=routing) as router,
    ):
        await ask_often(router)
        text = await metrics(router)
    assert warnings(caplog) == []
    assert "cache_surprises_total{" not in text
    assert f'shared_prefix_requests_total{{shared_prefix="1k to 4k"}} {REQUESTS - 1.0}' in text


async def test_a_reload_takes_up_the_watch_and_drops_it(caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedBackend(answering(ANSWER)) as backend, running_router(backend.url) as router:
        asked = len(router._observer._observers)
        await router.reload(settings_for([backend.url], routing=ADAPTIVE))
        await ask_often(router)
        assert len(warnings(caplog)) == 1
        await router.reload(settings_for([backend.url]))
        assert len(router._observer._observers) == asked


async def test_the_answers_of_all_workers_are_one_evidence(tmp_path: Path) -> None:
    async with (
        ScriptedBackend(answering(ANSWER)) as backend,
        workers(tmp_path, backend.url, routing=ADAPTIVE) as router,
    ):
        for _ in range(REQUESTS):
            assert (await router.ask(DOCUMENT, model="m")).status == 200
        surprises = await router.metric("backend_cache_surprises_total")
        expected = await router.metric("backend_expected_cached_tokens_total")
        log = router.router.log
        await until(lambda: any(WARNING in line for line in log))
    assert BEGIN_REQUESTS <= surprises < REQUESTS
    assert expected > surprises * PROMPT_TOKENS / 2
    assert len([line for line in log if WARNING in line]) == 1
