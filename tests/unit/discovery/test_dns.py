from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from prefix_router.discovery import dns_questions
from prefix_router.discovery.dns import DnsOptions, DnsSource
from prefix_router.discovery.source import Family, FoundSet, Trouble
from tests.support.dns_server import DnsServer, dns_server


@pytest.fixture
async def server() -> AsyncIterator[DnsServer]:
    async with dns_server() as server:
        yield server


class Listener:
    """Takes reports one by one."""

    def __init__(self, reports: AsyncIterator[FoundSet | Trouble]) -> None:
        self._reports = reports

    async def next(self) -> FoundSet | Trouble:
        return await anext(self._reports)

    async def urls(self) -> list[str]:
        report = await self.next()
        assert not isinstance(report, Trouble), report
        return [found.url for found in report]

    async def trouble(self) -> str:
        report = await self.next()
        assert isinstance(report, Trouble), report
        return report.message


@asynccontextmanager
async def asking(
    server: DnsServer, name: str = "vllm.test", port: int | None = 8000, **more: object
) -> AsyncIterator[Listener]:
    options = DnsOptions(
        name,
        port,
        resolvers=(server.address,),
        min_seconds=0.01,
        max_seconds=0.02,
        **more,  # type: ignore[arg-type]
    )
    reports = DnsSource(options).reports()
    try:
        yield Listener(reports)
    finally:
        await reports.aclose()


async def test_each_address_of_a_name_is_a_backend_and_is_called_by_it(server: DnsServer) -> None:
    server.zone = {("vllm.test", "A"): ["10.0.0.2", "10.0.0.1", "10.0.0.2"]}
    async with asking(server, path="/llm") as listener:
        report = await listener.next()
        assert not isinstance(report, Trouble)
        assert [(found.name, found.url) for found in report] == [
            ("10.0.0.1:8000", "http://10.0.0.1:8000/llm"),
            ("10.0.0.2:8000", "http://10.0.0.2:8000/llm"),
        ]


async def test_addresses_that_come_and_go_are_seen_at_the_next_question(server: DnsServer) -> None:
    server.zone = {("vllm.test", "A"): ["10.0.0.1"]}
    async with asking(server) as listener:
        assert await listener.urls() == ["http://10.0.0.1:8000"]
        server.zone = {("vllm.test", "A"): ["10.0.0.2", "10.0.0.3"]}
        assert await listener.urls() == ["http://10.0.0.2:8000", "http://10.0.0.3:8000"]


@pytest.mark.parametrize(
    ("family", "urls"),
    [
        (Family.AUTO, ["http://10.0.0.1:8000"]),
        (Family.IPV4, ["http://10.0.0.1:8000"]),
        (Family.IPV6, ["http://[fd00::1]:8000"]),
        (Family.BOTH, ["http://10.0.0.1:8000", "http://[fd00::1]:8000"]),
    ],
)
async def test_a_replica_with_two_kinds_of_addresses_is_one_backend_unless_one_says_otherwise(
    server: DnsServer, family: Family, urls: list[str]
) -> None:
    server.zone = {("vllm.test", "A"): ["10.0.0.1"], ("vllm.test", "AAAA"): ["fd00::1"]}
    async with asking(server, family=family) as listener:
        assert await listener.urls() == urls


async def test_where_there_is_no_ipv4_address_the_other_is_taken(server: DnsServer) -> None:
    server.zone = {("vllm.test", "AAAA"): ["fd00::2", "fd00::1"]}
    async with asking(server) as listener:
        assert await listener.urls() == ["http://[fd00::1]:8000", "http://[fd00::2]:8000"]


async def test_a_server_that_fails_for_aaaa_does_not_hide_the_a_records(server: DnsServer) -> None:
    server.zone = {("vllm.test", "A"): ["10.0.0.1"]}
    server.fails = {"AAAA"}
    async with asking(server) as listener:
        assert await listener.urls() == ["http://10.0.0.1:8000"]


async def test_nothing_found_and_a_failure_is_a_failure(server: DnsServer) -> None:
    server.zone = {("vllm.test", "TXT"): []}
    server.fails = {"AAAA"}
    async with asking(server) as listener:
        assert (await listener.trouble()).startswith("vllm.test: AAAA: ")


@pytest.mark.parametrize("zone", [{}, {("vllm.test", "TXT"): []}], ids=["no such name", "no such record"])
async def test_that_there_are_none_is_an_answer(
    server: DnsServer, zone: dict[tuple[str, str], list[str]]
) -> None:
    server.zone = zone
    async with asking(server) as listener:
        assert await listener.urls() == []


async def test_a_failure_is_told_and_the_name_is_asked_again(server: DnsServer) -> None:
    server.zone = {("vllm.test", "A"): ["10.0.0.1"]}
    server.fails = {"A", "AAAA"}
    async with asking(server) as listener:
        assert "vllm.test: " in await listener.trouble()
        await listener.trouble()
        server.fails = set()
        assert await listener.urls() == ["http://10.0.0.1:8000"]


async def test_a_silent_server_is_a_failure(server: DnsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_questions.Questions.__init__, "__defaults__", (0.1,))
    server.silent = True
    async with asking(server) as listener:
        assert "imeout" in await listener.trouble()


async def test_a_long_answer_comes_over_tcp(server: DnsServer) -> None:
    server.zone = {("vllm.test", "A"): [f"10.0.{number // 200}.{number % 200}" for number in range(300)]}
    server.truncates = True
    async with asking(server) as listener:
        assert len(await listener.urls()) == 300


async def test_an_alias_is_followed(server: DnsServer) -> None:
    server.zone = {("vllm.test", "CNAME"): ["real.test"], ("real.test", "A"): ["10.0.0.1"]}
    async with asking(server) as listener:
        assert await listener.urls() == ["http://10.0.0.1:8000"]


async def test_each_target_of_a_service_is_a_backend_with_the_name_and_port_of_the_target(
    server: DnsServer,
) -> None:
    server.zone = {
        ("vllm.test", "SRV"): ["0 300 8001 b.test.", "0 0 8000 A.test.", "10 5 8000 spare.test."],
        ("a.test", "A"): ["10.0.0.1"],
        ("b.test", "A"): ["10.0.0.2"],
    }
    async with asking(server, port=None, weights=True, scheme="https") as listener:
        report = await listener.next()
        assert not isinstance(report, Trouble)
        assert [(found.name, found.url, found.weight, found.server_name) for found in report] == [
            ("a.test:8000", "https://10.0.0.1:8000", 1, "a.test"),
            ("b.test:8001", "https://10.0.0.2:8001", 100, "b.test"),
        ]
    async with asking(server, port=None) as listener:
        report = await listener.next()
        assert not isinstance(report, Trouble)
        assert {(found.weight, found.server_name) for found in report} == {(None, None)}


async def test_a_target_that_cannot_be_resolved_now_keeps_its_address(server: DnsServer) -> None:
    server.zone = {
        ("vllm.test", "SRV"): ["0 0 8000 a.test."],
        ("a.test", "A"): ["10.0.0.1"],
    }
    async with asking(server, port=None) as listener:
        assert await listener.urls() == ["http://10.0.0.1:8000"]
        server.fails = {"A", "AAAA"}
        report = await listener.next()
        assert isinstance(report, Trouble)
        assert "a.test: " in report.message
        assert [found.url for found in report.found or ()] == ["http://10.0.0.1:8000"]


async def test_a_target_without_an_address_is_left_out_and_told_of(server: DnsServer) -> None:
    server.zone = {
        ("vllm.test", "SRV"): ["0 0 8000 a.test.", "0 0 8000 b.test."],
        ("a.test", "A"): ["10.0.0.1"],
    }
    async with asking(server, port=None) as listener:
        report = await listener.next()
        assert isinstance(report, Trouble)
        assert report.message == "vllm.test: b.test: has no address"
        assert [found.url for found in report.found or ()] == ["http://10.0.0.1:8000"]


async def test_a_service_none_of_whose_targets_has_an_address_is_a_failure(server: DnsServer) -> None:
    server.zone = {("vllm.test", "SRV"): ["0 0 8000 a.test."]}
    async with asking(server, port=None) as listener:
        assert "no target has an address" in await listener.trouble()


@pytest.mark.parametrize(("ttl", "seconds"), [(0, 5), (None, 5), (30, 30), (3600, 60)])
def test_the_ttl_says_when_to_ask_again_within_bounds(ttl: float | None, seconds: float) -> None:
    source = DnsSource(DnsOptions("vllm.test", 8000))
    pauses = [source._until_next(ttl) for _ in range(20)]
    assert all(seconds <= pause <= seconds * 1.1 for pause in pauses)


def test_failures_in_a_row_are_asked_less_and_less_often() -> None:
    source = DnsSource(DnsOptions("vllm.test", 8000))
    for failures, seconds in [(1, 5), (2, 10), (3, 20), (5, 60), (5000, 60)]:
        assert seconds * 0.9 <= source._until_retry(failures) <= seconds
