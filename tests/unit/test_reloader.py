from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from prefix_router.observe.metrics import Metrics
from prefix_router.reloader import Reloader, ReloadRefusedError
from prefix_router.settings.load import load_text
from prefix_router.settings.model import Settings
from prefix_router.settings.reload import Change, ReloadReport
from prefix_router.tokenization import TokenizerError

REPORT = ReloadReport((Change("retry.max_attempts", 3, 1),))


def good() -> Settings:
    return load_text("backends: [{url: h:1}]", "x.yaml", {})


def bad() -> Settings:
    return load_text("backends: [{url: 'ftp://h'}]\nretry: {max_attempts: 0}", "x.yaml", {})


class Target:
    """What settings are applied to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.applied: list[Settings] = []
        self.running = 0
        self.most_running = 0

    async def __call__(self, settings: Settings) -> ReloadReport:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if self.error is not None:
            raise self.error
        self.applied.append(settings)
        return REPORT


def reloader(load: Callable[[], Settings] | None, target: Target) -> tuple[Reloader, Metrics]:
    metrics = Metrics(dict)
    return Reloader(load, target, metrics), metrics


async def test_what_was_read_is_applied_and_the_changes_are_the_answer() -> None:
    target = Target()
    reload, _ = reloader(good, target)
    reply = await reload()
    assert reply.status == 200
    assert reply.document == REPORT.document()
    assert target.applied == [good()]


async def test_every_mistake_is_told_and_nothing_is_applied(caplog: pytest.LogCaptureFixture) -> None:
    target = Target()
    reload, metrics = reloader(bad, target)
    with caplog.at_level(logging.ERROR):
        reply = await reload()
    assert reply.status == 422
    problems = reply.document["problems"]
    assert [(problem["source"], problem["line"], problem["path"]) for problem in problems] == [
        ("x.yaml", 1, "backends[0].url"),
        ("x.yaml", 2, "retry.max_attempts"),
    ]
    assert all(problem["message"] for problem in problems)
    assert "x.yaml:2: retry.max_attempts" in caplog.text
    assert target.applied == []
    assert (metrics.reloads["failure"], metrics.last_reload_succeeded) == (1, False)


async def test_a_tokenizer_that_cannot_be_read_is_a_mistake_too() -> None:
    reload, metrics = reloader(good, Target(TokenizerError("cannot read it")))
    reply = await reload()
    assert reply.status == 422
    assert reply.document["problems"][0]["path"] == "routing.prefix.tokenizer"
    assert metrics.reloads["failure"] == 1


async def test_without_a_file_there_is_nothing_to_read_again() -> None:
    target = Target()
    reload, metrics = reloader(None, target)
    reply = await reload()
    assert reply.status == 409
    assert "--config" in reply.document["error"]
    assert metrics.last_reload_succeeded


async def test_a_router_that_stops_refuses() -> None:
    reload, metrics = reloader(good, Target(ReloadRefusedError("shutting down")))
    reply = await reload()
    assert (reply.status, reply.document) == (409, {"error": "shutting down"})
    assert metrics.reloads["failure"] == 0


async def test_a_failure_of_the_router_is_an_answer_and_a_failure_in_the_metric() -> None:
    reload, metrics = reloader(good, Target(RuntimeError("bug")))
    reply = await reload()
    assert reply.status == 500
    assert not metrics.last_reload_succeeded


async def test_reloads_run_one_after_the_other() -> None:
    target = Target()
    reload, _ = reloader(good, target)
    await asyncio.gather(*(reload() for _ in range(5)))
    assert len(target.applied) == 5
    assert target.most_running == 1
