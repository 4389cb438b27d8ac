"""Routers whose backends are found while they run: by a file, by DNS, by Kubernetes, and all at once."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from blockbuster import BlockBuster

from prefix_router.app import Router
from prefix_router.discovery import file_watch
from prefix_router.discovery.file_watch import SeenFile
from prefix_router.routing.fleet import BackendName
from prefix_router.settings.load import load
from tests.support.certificates import Authority
from tests.support.dns_server import dns_server
from tests.support.kubernetes_api import KubernetesApi, endpoint, endpoint_slice, kubernetes_api
from tests.support.kubernetes_store import ENDPOINT_SLICES
from tests.support.processes import router_process
from tests.support.router import (
    QUIET,
    admin,
    ask,
    chat,
    connect,
    request_bytes,
    running_router,
    until,
)
from tests.support.scripted_backend import Conversation, ScriptedBackend, answering

BACKEND_HEADER = "x-prefix-router-backend"
PROMPT = {"settle_seconds": 0.01}


def names(router: Router) -> list[str]:
    return [member.name for member in router.store.fleet.members]


def write_list(path: Path, **urls: str) -> None:
    path.write_text(json.dumps([{"name": name, "url": url} for name, url in urls.items()]))


@asynccontextmanager
async def finding_router(path: Path, **sections: Any) -> AsyncIterator[Router]:
    """A router with a configuration file that may be written anew."""
    write_settings(path, **sections)
    file = await asyncio.to_thread(SeenFile.now, path)
    router = Router(await asyncio.to_thread(load, path), lambda: load(path), file)
    await router.start()
    try:
        yield router
    finally:
        await router.stop(grace_seconds=0)


def write_settings(path: Path, **sections: Any) -> None:
    document: dict[str, Any] = {name: dict(values) for name, values in QUIET.items()}
    path.write_text(json.dumps({**document, **sections}))


def by_file(path: Path, **more: Any) -> dict[str, Any]:
    return {**PROMPT, "file": {"path": str(path)}, **more}


async def ready(router: Router) -> None:
    await until(lambda: router.not_ready() is None)


async def discovery_status(router: Router) -> list[dict[str, Any]]:
    _, body = await admin(router, "/status")
    found: list[dict[str, Any]] = json.loads(body)["discovery"]
    return found


@pytest.fixture(autouse=True)
def _who_may_block(_no_blocking_calls: BlockBuster) -> None:
    """A start may read files; credentials are read in a thread with a loop of its own."""
    for function in _no_blocking_calls.functions.values():
        function.can_block_in("discovery/kubernetes_api.py", "_read_access")
        function.can_block_in("prefix_router/app.py", "__init__")
        function.can_block_in("tests/support/router.py", "settings_for")


@pytest.fixture(autouse=True)
def _files_are_looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "LOOK_SECONDS", 0.02)


async def test_a_router_starts_with_nobody_is_not_ready_and_serves_who_joins(tmp_path: Path) -> None:
    path = tmp_path / "backends.json"
    async with ScriptedBackend(answering()) as backend:
        async with running_router(discovery=by_file(path)) as router:
            assert router.not_ready() == "discovery has not answered yet"
            answer = await ask(router, chat())
            assert answer.status == 503
            write_list(path, a=backend.url)
            await ready(router)
            answer = await ask(router, chat())
            assert (answer.status, answer.header(BACKEND_HEADER)) == (200, "a")


async def test_a_source_that_never_answers_is_waited_for_only_so_long(tmp_path: Path) -> None:
    settings = by_file(tmp_path / "none", first_answer_seconds=0.05)
    async with ScriptedBackend(answering()) as backend:
        async with running_router(backend.url, discovery=settings) as router:
            await ready(router)


async def test_who_leaves_while_a_request_runs_finishes_it_and_who_stays_keeps_everything(
    tmp_path: Path,
) -> None:
    path = tmp_path / "backends.json"
    release = asyncio.Event()

    async def held(conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.method != "POST":
                await conversation.respond()
                continue
            await conversation.start_stream()
            await conversation.chunk(b"one")
            await release.wait()
            await conversation.chunk(b"two")
            await conversation.chunk(b"")

    async with ScriptedBackend(held) as leaving, ScriptedBackend(answering()) as staying:
        write_list(path, leaving=leaving.url)
        async with running_router(discovery=by_file(path)) as router:
            await ready(router)
            reader, writer = await connect(router)
            writer.write(request_bytes(chat(stream=True)))
            await asyncio.wait_for(reader.readuntil(b"one\r\n"), 5)
            write_list(path, leaving=leaving.url, staying=staying.url)
            await until(lambda: names(router) == ["leaving", "staying"])
            counter = router.store.fleet.by_name[BackendName("leaving")].in_flight
            assert counter.count == 1
            stayed = router.store.fleet.by_name[BackendName("staying")].in_flight
            assert router.set_draining("staying", True)
            write_list(path, staying=staying.url)
            await until(lambda: names(router) == ["staying"])
            member = router.store.fleet.by_name[BackendName("staying")]
            assert member.in_flight is stayed
            assert member.draining
            assert router.set_draining("staying", False)
            answer = await ask(router, chat("another"))
            assert answer.header(BACKEND_HEADER) == "staying"
            assert counter.count == 1
            release.set()
            assert b"two" in await reader.readuntil(b"0\r\n\r\n")
            await until(lambda: counter.count == 0)
            writer.close()


async def test_a_broken_source_keeps_its_set_says_so_and_heals(tmp_path: Path) -> None:
    path = tmp_path / "backends.json"
    async with ScriptedBackend(answering()) as one, ScriptedBackend(answering()) as two:
        write_list(path, a=one.url)
        async with running_router(discovery=by_file(path)) as router:
            await ready(router)
            path.write_text("- {url: http://h:1, wieght: 2}")
            await until(lambda: not router._discovery.statuses[0].up)
            assert b'discovery_up{source="file"} 0.0' in (await admin(router, "/metrics"))[1]
            assert (await ask(router, chat())).status == 200
            [status] = await discovery_status(router)
            assert (status["up"], status["backends"]) == (False, 1)
            assert status["error"].startswith(f"{path}:1: backends[0].wieght: unknown key")
            write_list(path, a=one.url, b=two.url)
            await until(lambda: names(router) == ["a", "b"])
            [status] = await discovery_status(router)
            assert (status["up"], status["backends"], status["error"]) == (True, 2, None)


async def test_all_sources_are_one_fleet_and_what_was_written_down_wins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "backends.json"
    async with (
        ScriptedBackend(answering()) as static,
        ScriptedBackend(answering()) as listed,
        ScriptedBackend(answering()) as named,
        ScriptedBackend(answering()) as pod,
        dns_server({("vllm.test", "A"): ["127.0.0.1"]}) as dns,
        kubernetes_api() as api,
    ):
        ports = {server: int(server.url.rpartition(":")[2]) for server in (named, pod)}
        document = endpoint_slice("vllm-1", endpoint("127.0.0.1", "pod-0"))
        api.store.create(ENDPOINT_SLICES, "default", document)
        kubeconfig = await asyncio.to_thread(api.write_kubeconfig, tmp_path / "kubeconfig")
        path.write_text(
            json.dumps([{"url": listed.url, "name": "listed", "weight": 3}, {"url": "h:9", "name": "a"}])
        )
        discovery = {
            **by_file(path),
            "dns": {"name": "vllm.test", "port": ports[named], "resolvers": [dns.address]},
            "kubernetes": {"service": "vllm", "port": ports[pod], "kubeconfig": str(kubeconfig)},
            "defaults": {"weight": 2, "models": ["m"]},
        }
        async with running_router(static.url, discovery=discovery) as router:
            await ready(router)
            members = router.store.fleet.members
            assert [(member.name, member.backend.weight, member.models) for member in members] == [
                ("a", 1, None),
                ("listed", 3, frozenset({"m"})),
                (f"127.0.0.1:{ports[named]}", 2, frozenset({"m"})),
                ("pod-0", 2, frozenset({"m"})),
            ]
            statuses = await discovery_status(router)
            assert [(status["source"], status["up"], status["backends"]) for status in statuses] == [
                ("file", True, 2),
                ("dns", True, 1),
                ("kubernetes", True, 1),
            ]
            told = [record.message for record in caplog.records if "is left out" in record.message]
            assert told == ["a, found by file, is left out: its name is that of a backend of static"]


async def test_a_reload_merges_with_what_was_found_and_restarts_only_the_sources_that_it_changes(
    tmp_path: Path,
) -> None:
    path, config = tmp_path / "backends.json", tmp_path / "router.json"
    async with (
        ScriptedBackend(answering()) as static,
        ScriptedBackend(answering()) as listed,
        dns_server({("one.test", "A"): ["127.0.0.2"], ("two.test", "A"): ["127.0.0.3"]}) as dns,
    ):
        write_list(path, listed=listed.url)

        def settings(name: str, **more: Any) -> dict[str, Any]:
            asked = {"name": name, "resolvers": [dns.address], "min_seconds": 60}
            return {"discovery": by_file(path, dns=asked), **more}

        async with finding_router(config, **settings("one.test")) as router:
            await until(lambda: names(router) == ["listed", "127.0.0.2:8000"])
            counters = [member.in_flight for member in router.store.fleet.members]
            assert router.set_draining("listed", True)
            backends = [{"url": static.url, "name": "a"}]
            write_settings(config, **settings("one.test", backends=backends))
            status, body = await admin(router, "/reload", b"")
            assert status == 200
            assert [change["path"] for change in json.loads(body)["applied"]] == ["backends[a]"]
            assert names(router) == ["a", "listed", "127.0.0.2:8000"]
            assert [member.in_flight for member in router.store.fleet.members[1:]] == counters
            assert router.store.fleet.by_name[BackendName("listed")].draining
            asked = dns.asked["one.test", "A"]
            assert asked == 1
            write_settings(config, **settings("two.test"))
            assert (await admin(router, "/reload", b""))[0] == 200
            await until(lambda: names(router) == ["listed", "127.0.0.3:8000"])
            assert dns.asked["one.test", "A"] == asked
            write_settings(config, discovery=PROMPT, backends=backends)
            assert (await admin(router, "/reload", b""))[0] == 200
            assert names(router) == ["a"]
            assert "discovery" not in json.loads((await admin(router, "/status"))[1])


async def test_a_found_backend_that_speaks_tls_is_trusted_by_the_files_of_backend_tls(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    context = authority.server(authority.issue("backend", "vllm.example"))
    path = tmp_path / "backends.json"
    write_list(path, gone="http://127.0.0.1:9")
    discovery = by_file(path, defaults={"server_name": "vllm.example", "authorization": "Bearer key"})
    async with ScriptedBackend(answering(), tls=context) as backend:
        async with running_router(discovery=discovery, backend_tls={"ca": str(authority.path)}) as router:
            await until(lambda: names(router) == ["gone"])
            write_list(path, a=backend.url)
            await until(lambda: names(router) == ["a"])
            answer = await ask(router, chat())
            assert (answer.status, answer.header(BACKEND_HEADER)) == (200, "a")
            assert backend.work[0].header("authorization") == "Bearer key"
            assert "Bearer key" not in json.dumps(await discovery_status(router))


async def test_dns_addresses_that_come_and_go_join_and_leave(tmp_path: Path) -> None:
    async with dns_server({("vllm.test", "A"): ["127.0.0.2", "127.0.0.3"]}) as dns:
        settings = {"name": "vllm.test", "resolvers": [dns.address], "min_seconds": 0.1}
        async with running_router(discovery={**PROMPT, "dns": settings}) as router:
            await until(lambda: names(router) == ["127.0.0.2:8000", "127.0.0.3:8000"])
            stayed = router.store.fleet.by_name[BackendName("127.0.0.3:8000")].in_flight
            dns.zone = {("vllm.test", "A"): ["127.0.0.3", "127.0.0.4"]}
            await until(lambda: names(router) == ["127.0.0.3:8000", "127.0.0.4:8000"])
            assert router.store.fleet.members[0].in_flight is stayed
            dns.zone = {}
            await until(lambda: not router._discovery.statuses[0].up)
            assert names(router) == ["127.0.0.3:8000", "127.0.0.4:8000"]


def pod(api: KubernetesApi, port: int, **conditions: bool) -> None:
    """Write the one slice with the one pod anew."""
    document = endpoint_slice(
        "vllm-1",
        endpoint("127.0.0.1", "pod-0", **conditions),
        ports=[{"name": "http", "port": port}],
    )
    if api.store.objects:
        api.store.replace(ENDPOINT_SLICES, "default", "vllm-1", document)
    else:
        api.store.create(ENDPOINT_SLICES, "default", document)
    api.tell()


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_router_process_follows_kubernetes_with_one_worker_and_with_two(
    tmp_path: Path, workers: str
) -> None:
    async with (
        ScriptedBackend(answering()) as one,
        ScriptedBackend(answering()) as two,
        kubernetes_api() as api,
    ):
        pod(api, int(one.url.rpartition(":")[2]), ready=False)
        kubeconfig = await asyncio.to_thread(api.write_kubeconfig, tmp_path / "kubeconfig")
        kubernetes = {"service": "vllm", "port": "http", "kubeconfig": str(kubeconfig)}
        config = tmp_path / "router.json"
        write_settings(config, discovery={**PROMPT, "believe_empty_seconds": 0, "kubernetes": kubernetes})
        async with router_process("--config", str(config), "--workers", workers) as router:
            await until(lambda: api.watches == 1, 20)
            assert await router.readiness() == 503
            pod(api, int(one.url.rpartition(":")[2]))
            await answers_by(router.port, one)
            pod(api, int(two.url.rpartition(":")[2]))
            await answers_by(router.port, two)
            assert await router.readiness() == 200
            api.drop_watches()
            pod(api, int(two.url.rpartition(":")[2]), ready=False)
            async with asyncio.timeout(10):
                while await status_of(router.port) != 503:
                    await asyncio.sleep(0.02)
            assert 'discovery_backends{source="kubernetes"} 0.0' in await router.metrics()


async def status_of(port: int) -> int:
    async with aiohttp.ClientSession() as session:
        async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=chat()) as answer:
            return answer.status


async def answers_by(port: int, backend: ScriptedBackend) -> None:
    """Wait until a request is answered by this backend."""
    async with asyncio.timeout(10):
        while True:
            before = posts(backend)
            if await status_of(port) == 200 and posts(backend) > before:
                return
            await asyncio.sleep(0.02)


def posts(backend: ScriptedBackend) -> int:
    return sum(request.method == "POST" for request in backend.requests)


class TestWatchingTheConfiguration:
    async def test_a_changed_file_is_reloaded_whole_and_its_difference_is_logged(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        config = tmp_path / "router.json"
        async with ScriptedBackend(answering()) as one, ScriptedBackend(answering()) as two:
            backends = [{"url": one.url, "name": "a"}]
            async with finding_router(config, backends=backends, reload={"watch": True}) as router:
                backends.append({"url": two.url, "name": "b"})
                write_settings(config, backends=backends, reload={"watch": True})
                await until(lambda: names(router) == ["a", "b"])
                logged = [record.message for record in caplog.records]
                assert f"{config} has changed: reloading" in logged
                assert any(line.startswith("changed backends[b]: (none) → ") for line in logged)

    async def test_a_file_with_a_mistake_changes_nothing_and_the_repaired_one_does(
        self, tmp_path: Path
    ) -> None:
        config = tmp_path / "router.json"
        async with ScriptedBackend(answering()) as one, ScriptedBackend(answering()) as two:
            backends = [{"url": one.url, "name": "a"}]
            async with finding_router(config, backends=backends, reload={"watch": True}) as router:
                backends.append({"url": two.url, "name": "b"})
                write_settings(config, backends=backends, reload={"watch": True}, retry={"max_attempts": 0})
                await until(lambda: not router.metrics.last_reload_succeeded)
                assert names(router) == ["a"]
                write_settings(config, backends=backends, reload={"watch": True})
                await until(lambda: names(router) == ["a", "b"])
                assert router.metrics.last_reload_succeeded

    async def test_the_file_of_a_mounted_config_map_is_watched_and_watching_can_be_turned_off(
        self, tmp_path: Path
    ) -> None:
        async with ScriptedBackend(answering()) as one:
            for version, watch in (("v1", True), ("v2", False)):
                (tmp_path / version).mkdir()
                write_settings(
                    tmp_path / version / "router.json",
                    backends=[{"url": one.url, "name": version}],
                    reload={"watch": watch},
                )
            (tmp_path / "..data").symlink_to("v1")
            config = tmp_path / "router.json"
            config.symlink_to("..data/router.json")
            file = await asyncio.to_thread(SeenFile.now, config)
            router = Router(await asyncio.to_thread(load, config), lambda: load(config), file)
            await router.start()
            try:
                (tmp_path / "new").symlink_to("v2")
                (tmp_path / "new").rename(tmp_path / "..data")
                await until(lambda: names(router) == ["v2"])
                assert router._watch._watching is None
                assert router.metrics.last_reload_succeeded
            finally:
                await router.stop(grace_seconds=0)
