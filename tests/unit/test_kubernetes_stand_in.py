"""The stand-in of the API server keeps the promises of the real one, as far as clients rely on them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.support.kubernetes_api import KubernetesApi, kubernetes_api
from tests.support.kubernetes_store import Object, Resource, Selector
from tests.support.waiting import until

FLEETS = Resource("example.org", "v1", "fleets", "Fleet", status=True)
NOTES = Resource("", "v1", "notes", "Note")
PATH = "/apis/example.org/v1/namespaces/default/fleets"


@pytest.fixture
async def api() -> AsyncIterator[KubernetesApi]:
    async with kubernetes_api(FLEETS, NOTES) as api:
        yield api


@pytest.fixture
async def session(api: KubernetesApi) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(api.url) as session:
        yield session


def fleet(name: str, replicas: int = 1, **metadata: Any) -> Object:
    return {"metadata": {"name": name, **metadata}, "spec": {"replicas": replicas}}


async def send(
    session: aiohttp.ClientSession, method: str, path: str, document: Object | None = None
) -> tuple[int, Any]:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    data = None if document is None else json.dumps(document)
    async with session.request(method, path, data=data, headers={"Content-Type": kind}) as answer:
        return answer.status, await answer.json()


class Watch:
    """The events of one watch so far."""

    def __init__(self, session: aiohttp.ClientSession, **query: str) -> None:
        self.events: list[tuple[str, str]] = []
        self.last: Object = {}
        self.status = 0
        self._session = session
        self._query = {"watch": "1", **query}
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async with self._session.get(PATH, params=self._query) as answer:
            self.status = answer.status
            async for line in answer.content:
                event = json.loads(line)
                self.last = event.get("object", event)
                self.events.append((event.get("type", ""), self.last.get("metadata", {}).get("name", "")))


async def test_an_object_lives_from_post_to_delete_and_every_change_has_a_version(
    session: aiohttp.ClientSession,
) -> None:
    status, made = await send(session, "POST", PATH, fleet("a"))
    assert (status, made["kind"], made["apiVersion"]) == (201, "Fleet", "example.org/v1")
    assert (await send(session, "POST", PATH, fleet("a")))[1]["reason"] == "AlreadyExists"
    made["spec"]["replicas"] = 2
    status, changed = await send(session, "PUT", f"{PATH}/a", made)
    assert (status, changed["metadata"]["generation"]) == (200, 2)
    assert int(changed["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    assert (await send(session, "PUT", f"{PATH}/a", changed))[1] == changed  # no change, no new version
    assert (await send(session, "DELETE", f"{PATH}/a"))[0] == 200
    assert (await send(session, "GET", f"{PATH}/a"))[0] == 404


async def test_who_writes_over_what_he_has_not_seen_is_told_of_a_conflict(
    session: aiohttp.ClientSession,
) -> None:
    _, made = await send(session, "POST", PATH, fleet("a"))
    await send(session, "PATCH", f"{PATH}/a", {"spec": {"replicas": 5}})
    status, answer = await send(session, "PUT", f"{PATH}/a", made)
    assert (status, answer["reason"]) == (409, "Conflict")
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "spec": {"replicas": 6}}
    assert (await send(session, "PATCH", f"{PATH}/a", stale))[0] == 409
    assert (await send(session, "PUT", f"{PATH}/a", fleet("a")))[0] == 422


async def test_status_is_written_alone_and_moves_no_generation(session: aiohttp.ClientSession) -> None:
    _, made = await send(session, "POST", PATH, {**fleet("a"), "status": {"ready": 9}})
    assert "status" not in made
    both = {"spec": {"replicas": 7}, "status": {"ready": 1}}
    status, changed = await send(session, "PATCH", f"{PATH}/a/status", both)
    assert (status, changed["spec"], changed["status"]) == (200, {"replicas": 1}, {"ready": 1})
    assert changed["metadata"]["generation"] == 1
    _, changed = await send(session, "PATCH", f"{PATH}/a", {"spec": {"replicas": 3}, "status": {"ready": 0}})
    assert (changed["status"], changed["metadata"]["generation"]) == ({"ready": 1}, 2)


async def test_an_object_with_finalizers_is_gone_when_the_last_one_is(session: aiohttp.ClientSession) -> None:
    await send(session, "POST", PATH, fleet("a", finalizers=["example.org/f"]))
    _, marked = await send(session, "DELETE", f"{PATH}/a")
    assert "deletionTimestamp" in marked["metadata"]
    assert (await send(session, "GET", f"{PATH}/a"))[0] == 200
    await send(session, "PATCH", f"{PATH}/a", {"metadata": {"finalizers": []}})
    assert (await send(session, "GET", f"{PATH}/a"))[0] == 404


async def test_a_list_comes_in_pages_of_one_state_which_a_compaction_ends(
    api: KubernetesApi, session: aiohttp.ClientSession
) -> None:
    for name in "abc":
        api.store.create(FLEETS, "default", fleet(name))
    _, first = await send(session, "GET", f"{PATH}?limit=2")
    assert first["metadata"]["remainingItemCount"] == 1
    api.store.create(FLEETS, "default", fleet("d"))
    more = f"{PATH}?limit=2&continue={first['metadata']['continue']}"
    _, second = await send(session, "GET", more)
    names = [item["metadata"]["name"] for page in (first, second) for item in page["items"]]
    assert names == ["a", "b", "c"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    api.store.compact()
    assert (await send(session, "GET", more))[0] == 410


async def test_a_watch_tells_what_has_changed_since_a_version_for_who_sees_only_what_matches(
    api: KubernetesApi, session: aiohttp.ClientSession
) -> None:
    made = api.store.create(FLEETS, "default", fleet("a", labels={"app": "x"}))
    version = made["metadata"]["resourceVersion"]
    await send(session, "PATCH", f"{PATH}/a", {"spec": {"replicas": 2}})
    watch = Watch(session, resourceVersion=version, labelSelector="app=x")
    await until(lambda: watch.events == [("MODIFIED", "a")])
    await send(session, "PATCH", f"{PATH}/a", {"metadata": {"labels": {"app": "y"}}})
    await send(session, "POST", PATH, fleet("b", labels={"app": "y"}))
    await send(session, "PATCH", f"{PATH}/b", {"metadata": {"labels": {"app": "x"}}})
    await send(session, "DELETE", f"{PATH}/b")
    await until(lambda: len(watch.events) == 4)
    assert watch.events[1:] == [("DELETED", "a"), ("ADDED", "b"), ("DELETED", "b")]
    assert watch.last["metadata"]["resourceVersion"] == str(api.store.version)
    api.drop_watches()
    await asyncio.gather(watch.task, return_exceptions=True)
    await until(lambda: api.watches == 0)


async def test_a_watch_ends_when_it_is_asked_to_and_says_where_it_was(
    api: KubernetesApi, session: aiohttp.ClientSession
) -> None:
    api.store.create(FLEETS, "default", fleet("a"))
    watch = Watch(session, timeoutSeconds="0.05", allowWatchBookmarks="true")
    await watch.task
    assert watch.events == [("ADDED", "a"), ("BOOKMARK", "")]
    assert watch.last["metadata"]["resourceVersion"] == str(api.store.version)


@pytest.mark.parametrize("as_event", [True, False])
async def test_a_version_that_was_compacted_is_gone_in_either_form(
    api: KubernetesApi, session: aiohttp.ClientSession, as_event: bool
) -> None:
    api.gone_as_event = as_event
    version = api.store.create(FLEETS, "default", fleet("a"))["metadata"]["resourceVersion"]
    api.store.create(FLEETS, "default", fleet("b"))
    api.store.compact()
    watch = Watch(session, resourceVersion=version)
    await watch.task
    assert (watch.status, watch.last["code"]) == ((200, 410) if as_event else (410, 410))


async def test_misfortune_is_a_matter_of_attributes(
    api: KubernetesApi, session: aiohttp.ClientSession
) -> None:
    api.refusals = [500, 403]
    assert [(await send(session, "GET", PATH))[0] for _ in range(3)] == [500, 403, 200]
    api.silent = True
    watch = Watch(session, resourceVersion=str(api.store.version))
    await until(lambda: api.watches == 1)
    await send(session, "POST", PATH, fleet("a"))
    api.bookmark()
    await until(lambda: watch.events)
    assert watch.events == [("BOOKMARK", "")]
    api.send_gone()
    await watch.task
    assert watch.last["code"] == 410
    api.token = "secret"
    assert (await send(session, "GET", PATH))[0] == 401
    session.headers["Authorization"] = "Bearer secret"
    assert (await send(session, "GET", PATH))[0] == 200


async def test_other_resources_and_unknown_paths(api: KubernetesApi, session: aiohttp.ClientSession) -> None:
    assert (await send(session, "POST", "/api/v1/namespaces/other/notes", {"metadata": {"name": "n"}}))[
        0
    ] == 201
    _, everywhere = await send(session, "GET", "/api/v1/notes")
    assert [item["metadata"]["namespace"] for item in everywhere["items"]] == ["other"]
    assert (await send(session, "GET", "/api/v1/namespaces/default/notes"))[1]["items"] == []
    assert (await send(session, "GET", "/apis/example.org/v1/namespaces/default/ships"))[0] == 404
    assert (await send(session, "GET", f"{PATH}/a/scale"))[0] == 404


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("a=1", True),
        ("a==1,b", True),
        ("a!=1", False),
        ("c!=1,!c", True),
        ("a in (1, 2),b notin (x)", True),
        ("a in (2)", False),
        ("c", False),
    ],
)
def test_selectors(selector: str, matches: bool) -> None:
    assert Selector(selector).matches({"metadata": {"labels": {"a": "1", "b": "2"}}}) is matches
