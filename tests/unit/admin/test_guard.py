from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from prefix_router.admin.guard import (
    FORGET_SECONDS,
    MAX_ADDRESSES,
    MAX_WRONG,
    Access,
    Guard,
    WrongTokens,
)
from prefix_router.observe.events import AdminRefusal

Client = TestClient[web.Request, web.Application]

TOKEN = "prk-the-right-one"
HASH = hashlib.sha256(TOKEN.encode()).hexdigest()
RIGHT = {"Authorization": f"Bearer {TOKEN}"}
WRONG = {"Authorization": "Bearer prk-another-one"}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def refused() -> list[AdminRefusal]:
    return []


@pytest.fixture
def guard(clock: Clock, refused: list[AdminRefusal]) -> Guard:
    return Guard(Access.of(HASH.upper(), ["Admin.Example.org."]), clock, refused.append)


@pytest.fixture
async def client(guard: Guard) -> AsyncIterator[Client]:
    async def served(request: web.Request) -> web.Response:
        return web.Response(text=await request.text())

    application = web.Application(middlewares=[guard.middleware()])
    application.add_routes([web.route("*", "/{anything:.*}", served)])
    async with TestClient(TestServer(application)) as made:
        yield made


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz", "/metrics", "/status", "/history", "/", "/page/app.js"]
)
async def test_what_only_shows_states_is_open(client: Client, path: str) -> None:
    assert (await client.get(path)).status == 200
    assert (await client.head(path)).status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/reload"),
        ("POST", "/backends/a/drain"),
        ("POST", "/backends/a/undrain"),
        ("POST", "/explain"),
        ("GET", "/config"),
        ("GET", "/what/comes/later"),
        ("POST", "/status"),
        ("GET", "/livez/../config"),
    ],
)
async def test_all_else_needs_the_token(
    client: Client, refused: list[AdminRefusal], method: str, path: str
) -> None:
    missing = await client.request(method, path)
    assert missing.status == 401
    assert missing.headers["WWW-Authenticate"].startswith("Bearer ")
    assert (await client.request(method, path, headers=WRONG)).status == 401
    assert (await client.request(method, path, headers=RIGHT)).status == 200
    assert refused == [AdminRefusal.TOKEN_MISSING, AdminRefusal.TOKEN_WRONG]


@pytest.mark.parametrize(
    "value", [TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer ", f"Bearer {HASH}", "Bearer \xe9"]
)
async def test_what_is_nearly_the_token_is_not(client: Client, value: str) -> None:
    assert (await client.get("/config", headers={"Authorization": value})).status == 401


async def test_the_scheme_may_be_written_in_any_case(client: Client) -> None:
    assert (await client.get("/config", headers={"Authorization": f"bearer  {TOKEN}"})).status == 200


async def test_without_a_token_configured_nobody_is_asked_for_one(client: Client, guard: Guard) -> None:
    guard.access = Access()
    assert (await client.post("/reload")).status == 200


async def test_who_sends_many_wrong_tokens_is_not_listened_to_for_a_while(
    client: Client, clock: Clock, refused: list[AdminRefusal]
) -> None:
    for _ in range(MAX_WRONG):
        assert (await client.get("/config", headers=WRONG)).status == 401
    answer = await client.get("/config", headers=RIGHT)
    assert (answer.status, answer.headers["Retry-After"]) == (429, str(int(FORGET_SECONDS) + 1))
    assert (await client.get("/metrics")).status == 200
    assert refused[-1] is AdminRefusal.TOKEN_LIMIT
    clock.now += FORGET_SECONDS
    assert (await client.get("/config", headers=RIGHT)).status == 200
    assert (await client.get("/config", headers=WRONG)).status == 401


def test_wrong_tokens_of_one_address_do_not_lock_out_another() -> None:
    wrong = WrongTokens()
    for _ in range(MAX_WRONG):
        wrong.count("203.0.113.1", 0.0)
    assert wrong.wait_seconds("203.0.113.1", 1.0) == FORGET_SECONDS - 1.0
    assert wrong.wait_seconds("203.0.113.2", 1.0) == 0.0


def test_all_addresses_of_a_subscriber_are_one_address() -> None:
    wrong = WrongTokens()
    for number in range(MAX_WRONG):
        wrong.count(f"2001:db8:1:2::{number:x}", 0.0)
    assert wrong.wait_seconds("2001:db8:1:2:ffff::1", 0.0) > 0
    assert wrong.wait_seconds("2001:db8:1:3::1", 0.0) == 0.0


def test_addresses_are_forgotten_before_they_fill_the_memory() -> None:
    wrong = WrongTokens()
    for number in range(MAX_ADDRESSES + 500):
        wrong.count(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert len(wrong._by_address) == MAX_ADDRESSES


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:9090", "[::1]:9090", "10.244.1.7:9090", "localhost:9090", "router", "router:9090", "",
        "router.serving.svc:9090", "router.serving.svc.cluster.local", "host.docker.internal", "a.localhost",
        "admin.example.org:9090", "ADMIN.example.org", "admin.example.org.",
    ],
)  # fmt: skip
def test_names_that_nobody_else_can_have_are_known(guard: Guard, host: str) -> None:
    assert guard.access.knows_host(host)


@pytest.mark.parametrize(
    "host", ["evil.example:9090", "router.dev", "admin.example.org.evil.example", "127.0.0.1.evil.example"]
)
async def test_a_page_that_has_its_own_name_lead_here_gets_nothing(
    client: Client, guard: Guard, refused: list[AdminRefusal], host: str
) -> None:
    guard.access = Access.of(None, ["admin.example.org"])
    for path in ("/config", "/status", "/metrics", "/"):
        answer = await client.get(path, headers={"Host": host})
        assert answer.status == 421
        assert "admin.allowed_hosts" in await answer.text()
    assert set(refused) == {AdminRefusal.HOST}
    assert (await client.get("/livez", headers={"Host": host})).status == 200
