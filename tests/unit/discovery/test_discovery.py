"""Sources that a test plays by hand, followed as real ones are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from prefix_router.discovery import discovery as discovery_module
from prefix_router.discovery import follow as follow_module
from prefix_router.discovery.discovery import Discovery, DiscoveryOptions
from prefix_router.discovery.source import Found, FoundSet, SourceName, Trouble
from prefix_router.routing.fleet import BackendName
from tests.support.waiting import until

FILE, DNS = SourceName.FILE, SourceName.DNS


def backends(*names: str) -> FoundSet:
    return tuple(Found(BackendName(name), f"http://{name}:8000") for name in names)


@dataclass(eq=False)
class Played:
    """A source, and the options that make it. `say` what it reports; an exception is raised by it."""

    said: asyncio.Queue[FoundSet | Trouble | Exception] = field(default_factory=asyncio.Queue)
    begun: int = 0
    running: int = 0

    def source(self) -> Played:
        return self

    async def reports(self) -> AsyncGenerator[FoundSet | Trouble, None]:
        self.begun += 1
        self.running += 1
        try:
            while True:
                report = await self.said.get()
                if isinstance(report, Exception):
                    raise report
                yield report
        finally:
            self.running -= 1

    def say(self, *reports: FoundSet | Trouble | Exception) -> None:
        for report in reports:
            self.said.put_nowait(report)


class Fleet:
    """What is applied, each time."""

    def __init__(self) -> None:
        self.applied: list[list[str]] = []
        self.failures = 0
        self.discovery: Discovery

    async def apply(self) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no room")
        self.applied.append([found.name for group in self.discovery.found().values() for found in group])


@asynccontextmanager
async def following(
    sources: dict[SourceName, Played], *, settle: float = 0.0, first: float = 60.0, empty: float = 60.0
) -> AsyncIterator[tuple[Discovery, Fleet]]:
    fleet = Fleet()
    discovery = fleet.discovery = Discovery(DiscoveryOptions(sources, settle, first, empty), fleet.apply)
    discovery.start()
    try:
        yield discovery, fleet
    finally:
        await discovery.stop()
        assert all(source.running == 0 for source in sources.values())


async def test_what_sources_say_is_applied_as_it_changes_and_not_otherwise() -> None:
    one, two = Played(), Played()
    async with following({FILE: one, DNS: two}) as (_, fleet):
        one.say(backends("a"))
        await until(lambda: fleet.applied == [["a"]])
        two.say(backends("b"))
        await until(lambda: fleet.applied[1:] == [["a", "b"]])
        one.say(backends("a"), backends("a"))
        two.say(backends())
        one.say(backends("c"))
        await until(lambda: fleet.applied[2:] == [["c", "b"]])


async def test_a_burst_of_changes_is_applied_once() -> None:
    source = Played()
    async with following({DNS: source}, settle=0.1) as (_, fleet):
        source.say(*(backends("a", f"b{at}") for at in range(50)))
        await until(lambda: fleet.applied)
        await asyncio.sleep(0.15)
        assert fleet.applied == [["a", "b49"]]


async def test_a_source_in_trouble_keeps_its_set_says_so_and_heals(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    source = Played()
    async with following({DNS: source}) as (discovery, fleet):
        source.say(backends("a"))
        await until(lambda: fleet.applied)
        [status] = discovery.statuses
        assert (status.up, status.backends, status.failures, status.last_error) == (True, 1, 0, None)
        source.say(*[Trouble("no\nanswer")] * 3)
        await until(lambda: discovery.statuses[0].failures == 3)
        [broken] = discovery.statuses
        assert (broken.up, broken.backends, broken.last_error) == (False, 1, "no answer")
        assert broken.last_success_at == status.last_success_at
        source.say(backends("a"))
        await until(lambda: discovery.statuses[0].up)
        assert fleet.applied == [["a"]]
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("prefix_router")]
    assert lines == [
        "discovery by dns: no answer (it named 1 before)",
        "discovery by dns works again: 1 backends",
    ]


async def test_trouble_with_single_backends_gives_a_set_and_says_so() -> None:
    source = Played()
    async with following({DNS: source}) as (discovery, fleet):
        source.say(Trouble("b has no address", backends("a")))
        await until(lambda: fleet.applied == [["a"]])
        assert not discovery.statuses[0].up
        assert discovery.answered


async def test_a_source_that_names_nobody_is_believed_only_after_a_while() -> None:
    source = Played()
    async with following({DNS: source}, empty=0.05) as (discovery, fleet):
        source.say(backends("a"))
        await until(lambda: fleet.applied)
        source.say(backends())
        await until(lambda: not discovery.statuses[0].up)
        assert discovery.statuses[0].backends == 1
        await until(lambda: fleet.applied == [["a"], []])
        assert discovery.statuses[0].up


async def test_who_comes_back_or_fails_meanwhile_is_not_believed_to_be_gone() -> None:
    source = Played()
    async with following({DNS: source}, empty=0.05) as (discovery, fleet):
        source.say(backends("a"), backends(), backends("a"))
        await until(lambda: fleet.applied == [["a"]] and discovery.statuses[0].up)
        source.say(backends(), Trouble("no answer"))
        await until(lambda: discovery.statuses[0].last_error == "no answer")
        await asyncio.sleep(0.1)
        assert fleet.applied == [["a"]]


async def test_nobody_can_be_believed_at_once() -> None:
    source = Played()
    async with following({DNS: source}, empty=0) as (_, fleet):
        source.say(backends("a"))
        await until(lambda: fleet.applied == [["a"]])
        source.say(backends())
        await until(lambda: fleet.applied == [["a"], []])


async def test_it_has_answered_once_every_source_was_heard_and_that_is_in_force() -> None:
    one, two = Played(), Played()
    async with following({FILE: one, DNS: two}) as (discovery, fleet):
        one.say(backends("a"))
        await until(lambda: fleet.applied)
        assert not discovery.answered
        two.say(backends())
        await until(lambda: discovery.answered)
        two.say(Trouble("no answer"))
        await until(lambda: not discovery.statuses[1].up)
        assert discovery.answered


async def test_a_source_that_is_not_heard_is_waited_for_only_so_long() -> None:
    source = Played()
    async with following({DNS: source}, first=0.05) as (discovery, _):
        source.say(Trouble("no answer"))
        assert not discovery.answered
        await until(lambda: discovery.answered)


async def test_no_source_has_answered_from_the_start() -> None:
    async with following({}) as (discovery, _):
        assert discovery.answered


async def test_other_options_restart_the_source_concerned_and_its_set_stays_until_it_is_heard() -> None:
    one, two, new = Played(), Played(), Played()
    async with following({FILE: one, DNS: two}) as (discovery, fleet):
        one.say(backends("a"))
        two.say(backends("b"))
        await until(lambda: fleet.applied[-1:] == [["a", "b"]])
        discovery.sync(DiscoveryOptions({FILE: one, DNS: new}, settle_seconds=0))
        await until(lambda: new.running and not two.running)
        assert (one.begun, one.running) == (1, 1)
        assert discovery.found() == {FILE: backends("a"), DNS: backends("b")}
        new.say(backends("c"))
        await until(lambda: fleet.applied[-1] == ["a", "c"])
        discovery.sync(DiscoveryOptions({FILE: one}, settle_seconds=0))
        assert discovery.found() == {FILE: backends("a")}
        await until(lambda: not new.running)
        assert [status.source for status in discovery.statuses] == ["file"]


async def test_a_source_that_dies_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "RESTART_SECONDS", 0)
    source = Played()
    async with following({DNS: source}) as (discovery, fleet):
        source.say(backends("a"), KeyError("a mistake"))
        await until(lambda: source.begun == 2)
        assert discovery.statuses[0].last_error == "failed in the router; see its log"
        source.say(backends("b"))
        await until(lambda: fleet.applied[-1] == ["b"])


async def test_what_cannot_be_applied_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery_module, "_RETRY_SECONDS", 0)
    source = Played()
    async with following({DNS: source}) as (discovery, fleet):
        fleet.failures = 2
        source.say(backends("a"))
        await until(lambda: fleet.applied == [["a"]])
        await until(lambda: discovery.answered)
