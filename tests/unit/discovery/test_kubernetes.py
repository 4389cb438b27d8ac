"""List and watch against a stand-in of the API server that speaks the real protocol."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from prefix_router.discovery import kubernetes_api as kubernetes_api_module
from prefix_router.discovery import list_watch
from prefix_router.discovery.kubernetes import KubernetesOptions, KubernetesSource
from prefix_router.discovery.kubernetes_api import AccessOptions
from prefix_router.discovery.source import FoundSet, Trouble
from tests.support.certificates import Authority
from tests.support.kubernetes_api import KubernetesApi, endpoint, endpoint_slice, kubernetes_api
from tests.support.kubernetes_store import ENDPOINT_SLICES
from tests.support.waiting import until

SELECTOR = "kubernetes.io/service-name=vllm"


@pytest.fixture
async def api() -> AsyncIterator[KubernetesApi]:
    async with kubernetes_api() as api:
        yield api


class Listener:
    """Keeps the last set and all troubles of a source."""

    def __init__(self) -> None:
        self.found: FoundSet | None = None
        self.troubles: list[str] = []
        self.reports = 0

    @property
    def names(self) -> list[str] | None:
        return None if self.found is None else [backend.name for backend in self.found]

    async def listen(self, source: KubernetesSource) -> None:
        async for report in source.reports():
            self.reports += 1
            if isinstance(report, Trouble):
                self.troubles.append(report.message)
            else:
                self.found = report


@asynccontextmanager
async def following(
    api: KubernetesApi, tmp_path: Path, *, access: AccessOptions | None = None, **more: Any
) -> AsyncIterator[Listener]:
    if access is None:
        path = await asyncio.to_thread(api.write_kubeconfig, tmp_path / "kubeconfig")
        access = AccessOptions(str(path))
    source = KubernetesSource(KubernetesOptions(SELECTOR, access=access, first_pause_seconds=0.01, **more))
    listener = Listener()
    task = asyncio.create_task(listener.listen(source))
    try:
        yield listener
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def put(api: KubernetesApi, name: str, *pods: str, **more: Any) -> None:
    """Create or replace a slice with these pods, ready."""
    document = endpoint_slice(name, *(endpoint(f"10.0.0.{ord(pod[-1])}", pod) for pod in pods), **more)
    if (ENDPOINT_SLICES, "default", name) in api.store.objects:
        api.store.replace(ENDPOINT_SLICES, "default", name, document)
    else:
        api.store.create(ENDPOINT_SLICES, "default", document)
    api.tell()


async def test_slices_that_come_change_and_go_are_followed(api: KubernetesApi, tmp_path: Path) -> None:
    put(api, "vllm-1", "pod-a")
    put(api, "other-1", "pod-x", service="other")
    async with following(api, tmp_path) as listener:
        await until(lambda: listener.names == ["pod-a"])
        put(api, "vllm-2", "pod-b")
        await until(lambda: listener.names == ["pod-a", "pod-b"])
        put(api, "vllm-1", "pod-c")
        await until(lambda: listener.names == ["pod-b", "pod-c"])
        api.store.delete(ENDPOINT_SLICES, "default", "vllm-1")
        api.tell()
        await until(lambda: listener.names == ["pod-b"])
        assert listener.troubles == []
    assert len(api.asked(watch=False)) == 1
    await until(lambda: api.watches == 0)


async def test_a_long_list_comes_in_pages(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_watch, "PAGE", 2)
    for at in range(5):
        put(api, f"vllm-{at}", f"pod-{chr(97 + at)}")
    async with following(api, tmp_path) as listener:
        await until(lambda: listener.found is not None)
        assert listener.names == ["pod-a", "pod-b", "pod-c", "pod-d", "pod-e"]
    assert [query.get("limit") for query in api.asked(watch=False)] == ["2", "2", "2"]


async def test_a_list_whose_next_page_is_gone_begins_anew(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_watch, "PAGE", 1)
    put(api, "vllm-1", "pod-a")
    put(api, "vllm-2", "pod-b")
    served = api._list

    def compacting_once(*arguments: Any) -> Any:
        answer = served(*arguments)
        if len(api.asked(watch=False)) == 1:
            put(api, "vllm-3", "pod-c")
            api.store.compact()
        return answer

    monkeypatch.setattr(api, "_list", compacting_once)
    async with following(api, tmp_path) as listener:
        await until(lambda: listener.names == ["pod-a", "pod-b", "pod-c"])
        assert listener.troubles == []


async def test_a_watch_that_ends_in_order_goes_on_where_it_was(api: KubernetesApi, tmp_path: Path) -> None:
    put(api, "vllm-1", "pod-a")
    async with following(api, tmp_path, watch_seconds=0.1) as listener:
        await until(lambda: len(api.asked(watch=True)) == 2)
        put(api, "vllm-1", "pod-b")
        await until(lambda: listener.names == ["pod-b"])
        assert listener.troubles == []
    assert len(api.asked(watch=False)) == 1
    watch = api.asked(watch=True)[0]
    assert (watch["allowWatchBookmarks"], watch["timeoutSeconds"]) == ("true", "1")


async def test_a_watch_that_is_cut_goes_on_from_the_last_version_without_a_list(
    api: KubernetesApi, tmp_path: Path
) -> None:
    put(api, "vllm-1", "pod-a")
    async with following(api, tmp_path) as listener:
        await until(lambda: api.watches == 1)
        put(api, "vllm-1", "pod-b")
        await until(lambda: listener.names == ["pod-b"])
        at = str(api.store.version)
        api.drop_watches()
        await until(lambda: api.watches == 0)
        put(api, "vllm-1", "pod-c")
        await until(lambda: listener.names == ["pod-c"])
        assert len(listener.troubles) == 1
    assert len(api.asked(watch=False)) == 1
    assert api.asked(watch=True)[-1]["resourceVersion"] == at


async def test_an_event_that_was_cut_off_is_not_an_event(api: KubernetesApi, tmp_path: Path) -> None:
    put(api, "vllm-1", "pod-a")
    async with following(api, tmp_path) as listener:
        await until(lambda: api.watches == 1)
        api.send_raw(b'{"type": "DELETED", "object": {"metadata": {"name": "vllm-1", "names')
        await asyncio.sleep(0.05)
        api.drop_watches()
        await until(lambda: listener.troubles)
        put(api, "vllm-2", "pod-b")
        await until(lambda: listener.names == ["pod-a", "pod-b"])
    assert len(api.asked(watch=False)) == 1


async def test_a_bookmark_moves_the_version_on(api: KubernetesApi, tmp_path: Path) -> None:
    put(api, "vllm-1", "pod-a")
    async with following(api, tmp_path) as listener:
        await until(lambda: api.watches == 1)
        put(api, "other-1", "pod-x", service="other")
        reports = listener.reports
        api.bookmark()
        await until(lambda: listener.reports > reports)
        api.store.compact()
        api.drop_watches()
        await until(lambda: len(api.asked(watch=True)) == 2 and api.watches == 1)
    assert len(api.asked(watch=False)) == 1


@pytest.mark.parametrize("as_event", [True, False], ids=["as an event", "as a status"])
async def test_a_version_that_is_gone_is_listed_anew_and_what_vanished_meanwhile_is_gone(
    api: KubernetesApi, tmp_path: Path, as_event: bool
) -> None:
    api.gone_as_event = as_event
    put(api, "vllm-1", "pod-a")
    put(api, "vllm-2", "pod-b")
    async with following(api, tmp_path) as listener:
        await until(lambda: api.watches == 1)
        api.drop_watches()
        await until(lambda: api.watches == 0)
        api.store.delete(ENDPOINT_SLICES, "default", "vllm-1")
        put(api, "vllm-3", "pod-c")
        api.store.compact()
        await until(lambda: listener.names == ["pod-b", "pod-c"])
        put(api, "vllm-2", "pod-d")
        await until(lambda: listener.names == ["pod-c", "pod-d"])
        assert len(listener.troubles) == 1  # of the connection that was cut
    assert len(api.asked(watch=False)) == 2


async def test_a_running_watch_that_hears_gone_lists_anew(api: KubernetesApi, tmp_path: Path) -> None:
    put(api, "vllm-1", "pod-a")
    async with following(api, tmp_path) as listener:
        await until(lambda: api.watches == 1)
        api.send_gone()
        await until(lambda: len(api.asked(watch=False)) == 2 and api.watches == 1)
        assert listener.names == ["pod-a"]
        assert listener.troubles == []


async def test_another_error_in_a_watch_is_told_and_the_watch_goes_on(
    api: KubernetesApi, tmp_path: Path
) -> None:
    put(api, "vllm-1", "pod-a")
    async with following(api, tmp_path) as listener:
        await until(lambda: api.watches == 1)
        api.send_event("ERROR", {"kind": "Status", "code": 500, "message": "etcd is away"})
        await until(lambda: listener.troubles)
        assert listener.troubles == ["status 500 in a watch: etcd is away"]
        put(api, "vllm-1", "pod-b")
        await until(lambda: listener.names == ["pod-b"])
    assert len(api.asked(watch=False)) == 1


async def test_an_event_that_cannot_be_read_is_told_and_listed_anew(
    api: KubernetesApi, tmp_path: Path
) -> None:
    put(api, "vllm-1", "pod-a")
    async with following(api, tmp_path) as listener:
        await until(lambda: api.watches == 1)
        api.send_raw(b"<html>\n")
        await until(lambda: listener.troubles and api.watches == 1)
        assert "an answer that is none" in listener.troubles[0]
        assert listener.names == ["pod-a"]
    assert len(api.asked(watch=False)) == 2


async def test_events_of_a_later_protocol_are_passed_over(api: KubernetesApi, tmp_path: Path) -> None:
    put(api, "vllm-1", "pod-a")
    async with following(api, tmp_path) as listener:
        await until(lambda: api.watches == 1)
        api.send_raw(json.dumps({"type": "NEWS", "object": {}}).encode() + b"\n")
        put(api, "vllm-1", "pod-b")
        await until(lambda: listener.names == ["pod-b"])
        assert listener.troubles == []


@pytest.mark.parametrize("status", [403, 500, 429])
async def test_a_server_that_refuses_is_told_and_asked_again(
    api: KubernetesApi, tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(api, "vllm-1", "pod-a")
    api.refusals = [status]
    async with following(api, tmp_path) as listener:
        await until(lambda: listener.troubles)
        assert listener.troubles == [f"status {status}: refused with {status} by the test"]
        await until(lambda: listener.names == ["pod-a"])


async def test_a_server_that_is_not_there_is_told_and_found_when_it_is(tmp_path: Path) -> None:
    async with kubernetes_api() as gone:
        path = await asyncio.to_thread(gone.write_kubeconfig, tmp_path / "kubeconfig")
    async with kubernetes_api() as api:
        put(api, "vllm-1", "pod-a")
        async with following(api, tmp_path, access=AccessOptions(str(path))) as listener:
            await until(lambda: len(listener.troubles) > 1)
            # Credentials and address are read again after a failure.
            await asyncio.to_thread(api.write_kubeconfig, path)
            await until(lambda: listener.names == ["pod-a"])


async def test_a_kubeconfig_that_cannot_be_read_is_told(api: KubernetesApi, tmp_path: Path) -> None:
    access = AccessOptions(str(tmp_path / "none"))
    async with following(api, tmp_path, access=access) as listener:
        await until(lambda: listener.troubles)
        assert listener.troubles[0].startswith("cannot log in: ")


async def test_in_a_pod_the_service_account_logs_in_and_its_token_is_read_again_when_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("api", "127.0.0.1")
    async with kubernetes_api(tls=authority.server(files)) as api:
        (tmp_path / "token").write_text("first\n")
        (tmp_path / "namespace").write_text("serving\n")
        (tmp_path / "ca.crt").write_bytes(authority.path.read_bytes())
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
        api.token = "first"
        api.store.create(ENDPOINT_SLICES, "default", endpoint_slice("vllm-1", endpoint("10.0.0.9", "other")))
        api.store.create(ENDPOINT_SLICES, "serving", endpoint_slice("vllm-1", endpoint("10.0.0.1", "pod-a")))
        async with following(api, tmp_path, access=AccessOptions(service_account=tmp_path)) as listener:
            await until(lambda: listener.names == ["pod-a"])
            (tmp_path / "token").write_text("second")
            api.token = "second"
            api.drop_watches()
            api.store.create(
                ENDPOINT_SLICES, "serving", endpoint_slice("vllm-2", endpoint("10.0.0.2", "pod-b"))
            )
            api.tell()
            await until(lambda: listener.names == ["pod-a", "pod-b"])
            assert not any("first" in trouble for trouble in listener.troubles)


async def test_a_token_is_read_again_from_time_to_time(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_api_module, "CREDENTIALS_SECONDS", 0)
    token = tmp_path / "token"
    token.write_text("first")
    path = api.write_kubeconfig(tmp_path / "kubeconfig", user={"tokenFile": str(token)})
    api.token = "first"
    put(api, "vllm-1", "pod-a")
    async with following(api, tmp_path, access=AccessOptions(str(path)), watch_seconds=1) as listener:
        await until(lambda: api.watches == 1)
        token.write_text("second")
        api.token = "second"
        await until(lambda: len(api.asked(watch=True)) == 2)
        put(api, "vllm-1", "pod-b")
        await until(lambda: listener.names == ["pod-b"])
        assert listener.troubles == []


async def test_an_exec_plugin_logs_in_and_is_asked_again_when_its_token_is_refused(
    api: KubernetesApi, tmp_path: Path
) -> None:
    tokens = tmp_path / "token"
    tokens.write_text("first")
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        f"#!{sys.executable}\nimport json\n"
        f"token = open({str(tokens)!r}).read()\n"
        "print(json.dumps({'kind': 'ExecCredential', 'apiVersion': 'client.authentication.k8s.io/v1',"
        " 'status': {'token': token}}))\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    path = api.write_kubeconfig(tmp_path / "kubeconfig", user={"exec": command})
    put(api, "vllm-1", "pod-a")
    api.token = "first"
    async with following(api, tmp_path, access=AccessOptions(str(path))) as listener:
        await until(lambda: listener.names == ["pod-a"])
        tokens.write_text("second")
        api.token = "second"
        api.drop_watches()
        put(api, "vllm-1", "pod-b")
        await until(lambda: listener.names == ["pod-b"])
        assert not any("first" in trouble for trouble in listener.troubles)


async def test_what_a_plugin_prints_when_it_fails_is_not_told(api: KubernetesApi, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.sh"
    plugin.write_text("#!/bin/sh\necho a-secret >&2\nexit 3\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    path = api.write_kubeconfig(tmp_path / "kubeconfig", user={"exec": command})
    async with following(api, tmp_path, access=AccessOptions(str(path))) as listener:
        await until(lambda: listener.troubles)
        assert listener.troubles[0] == "cannot log in: exec: process returned 3"


async def test_a_port_that_is_not_clear_keeps_the_last_set(api: KubernetesApi, tmp_path: Path) -> None:
    put(api, "vllm-1", "pod-a")
    async with following(api, tmp_path) as listener:
        await until(lambda: listener.names == ["pod-a"])
        put(api, "vllm-1", "pod-a", ports=[{"name": "a", "port": 1}, {"name": "b", "port": 2}])
        await until(lambda: listener.troubles)
        assert "expected one port" in listener.troubles[0]
        assert listener.names == ["pod-a"]
