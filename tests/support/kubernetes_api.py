"""A Kubernetes API server on loopback: the list-watch protocol, for any resources, with its misfortunes.

    GET    …/{plural}          list: labelSelector, limit and continue, resourceVersion
    GET    …/{plural}?watch=1  events from a resourceVersion on: bookmarks, timeoutSeconds, 410 in both forms
    POST, GET, PUT, PATCH, DELETE of an object, PUT and PATCH of …/status
    the same for whatever else a test registers as a `Resource`

Misfortune is a matter of attributes: see `KubernetesApi`. `kubernetes_store` has the objects.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from tests.support.kubernetes_store import (
    ENDPOINT_SLICES,
    PODS,
    Change,
    Object,
    Resource,
    Selector,
    StatusError,
    Store,
)


class KubernetesApi:
    """The server. Tests change `store` directly, or over HTTP, and set what goes wrong.

    token: that every request must bear; None asks for none. refusals: statuses that the next requests get
    instead of an answer. silent: watches are accepted and nothing is ever sent on them. gone_as_event: how a
    version that is too old is told: as an ERROR event in a stream (200), or as the status 410.
    bookmarks_at_end: whether a watch that ends in order says where it was. requests: what has been asked:
    method, path, query.
    """

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.store = Store()
        self.token: str | None = None
        self.refusals: list[int] = []
        self.silent = False
        self.gone_as_event = False
        self.bookmarks_at_end = True
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.port = 0
        self.tls = False
        self._resources = {(resource.root, resource.plural): resource for resource in resources}
        self._watches: dict[asyncio.Transport, asyncio.Queue[bytes | None]] = {}
        self._continued: dict[str, tuple[int, list[Object]]] = {}
        self._changed = asyncio.Event()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def watches(self) -> int:
        """Watches that are open."""
        return len(self._watches)

    def asked(self, *, watch: bool) -> list[dict[str, str]]:
        """The queries of all lists, or of all watches, so far."""
        return [
            query for method, _, query in self.requests if method == "GET" and ("watch" in query) is watch
        ]

    def write_kubeconfig(self, path: Path, namespace: str = "default", user: Object | None = None) -> Path:
        """Write a kubeconfig for this server, with its token unless `user` says otherwise."""
        if user is None:
            user = {} if self.token is None else {"token": self.token}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": user}],
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def drop_watches(self) -> None:
        """Cut all watches as a load balancer does: no end of the stream, no last event."""
        for transport in list(self._watches):
            transport.abort()

    def send_raw(self, data: bytes) -> None:
        """Send bytes on all watches, whatever they mean."""
        for queue in self._watches.values():
            queue.put_nowait(data)

    def send_event(self, kind: str, document: Object) -> None:
        """Send an event of a test's own on all watches."""
        self.send_raw(_line(kind, document))

    def send_gone(self) -> None:
        """Tell all watches that their version is too old now, and end them."""
        self.send_event("ERROR", _gone().document())
        for queue in self._watches.values():
            queue.put_nowait(None)

    def bookmark(self) -> None:
        """Tell all watches how far they are."""
        version = str(self.store.version)
        self.send_event("BOOKMARK", {"metadata": {"resourceVersion": version}})

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        self.requests.append((request.method, request.path, dict(request.query)))
        try:
            if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
                raise StatusError(401, "Unauthorized", "Unauthorized")
            if self.refusals:
                code = self.refusals.pop(0)
                raise StatusError(code, "Refused", f"refused with {code} by the test")
            return await self._answer(request)
        except StatusError as error:
            headers = {"Retry-After": "1"} if error.code == 429 else {}
            return web.json_response(error.document(), status=error.code, headers=headers)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        resource, namespace, name, part = self._target(request.path)
        if name is None:
            if request.method == "POST" and namespace is not None:
                created = self.store.create(resource, namespace, await request.json())
                return self._written(created, 201)
            if request.method == "GET":
                if request.query.get("watch") in ("1", "true"):
                    return await self._watch(request, resource, namespace)
                return self._list(request, resource, namespace)
        elif namespace is not None:
            return await self._answer_for_object(request, resource, namespace, name, part)
        raise StatusError(405, "MethodNotAllowed", "the server does not allow this method on the resource")

    async def _answer_for_object(
        self, request: web.Request, resource: Resource, namespace: str, name: str, part: str | None
    ) -> web.Response:
        status = part == "status"
        if part is not None and not (status and resource.status):
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        match request.method:
            case "GET":
                return web.json_response(self.store.get(resource, namespace, name))
            case "PUT":
                document = await request.json()
                return self._written(self.store.replace(resource, namespace, name, document, status=status))
            case "PATCH":
                if "merge-patch+json" not in request.content_type:
                    raise StatusError(415, "UnsupportedMediaType", "only merge patches are understood here")
                patch = await request.json()
                return self._written(self.store.patch(resource, namespace, name, patch, status=status))
            case "DELETE":
                return self._written(self.store.delete(resource, namespace, name))
        raise StatusError(405, "MethodNotAllowed", "the server does not allow this method on the resource")

    def _written(self, document: Object, status: int = 200) -> web.Response:
        self.tell()
        return web.json_response(document, status=status)

    def _target(self, path: str) -> tuple[Resource, str | None, str | None, str | None]:
        """Take apart a path: resource, namespace, name, subresource."""
        for (root, plural), resource in self._resources.items():
            if not path.startswith(f"{root}/"):
                continue
            parts = path.removeprefix(f"{root}/").split("/")
            namespace = None
            if parts[0] == "namespaces" and len(parts) > 2:
                namespace, parts = parts[1], parts[2:]
            if parts[0] == plural and len(parts) <= 3:
                name, part = [*parts[1:], None, None][:2]
                return resource, namespace, name, part
        raise StatusError(404, "NotFound", "the server could not find the requested resource")

    def _list(self, request: web.Request, resource: Resource, namespace: str | None) -> web.Response:
        query = request.query
        selector = Selector(query.get("labelSelector", ""))
        token = query.get("continue")
        if token:
            version, items = self._continued.get(token, (0, []))
            if version < max(self.store.compacted, 1):
                raise StatusError(410, "Expired", "The provided continue parameter is too old")
        else:
            version = self.store.version
            items = [item for item in self.store.listed(resource, namespace) if selector.matches(item)]
        limit = int(query.get("limit", "0")) or len(items)
        metadata: Object = {"resourceVersion": str(version)}
        if items[limit:]:
            metadata["continue"] = f"after-{version}-{len(self._continued)}"
            metadata["remainingItemCount"] = len(items) - limit
            self._continued[metadata["continue"]] = (version, items[limit:])
        return web.json_response(
            {
                "kind": f"{resource.kind}List",
                "apiVersion": resource.api_version,
                "metadata": metadata,
                "items": items[:limit],
            }
        )

    async def _watch(
        self, request: web.Request, resource: Resource, namespace: str | None
    ) -> web.StreamResponse:
        selector = Selector(request.query.get("labelSelector", ""))
        since = int(request.query.get("resourceVersion") or 0)
        gone = 0 < since < self.store.compacted
        if gone and not self.gone_as_event:
            raise _gone()
        if since > self.store.version:
            raise StatusError(504, "Timeout", "Too large resource version")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if gone:
            await response.write(_line("ERROR", _gone().document()))
            return response
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        transport = request.transport
        if transport is None:
            return response  # the client has left
        self._watches[transport] = queue
        try:
            async with asyncio.timeout(float(request.query.get("timeoutSeconds", "3600"))):
                await self._send_events(response, queue, resource, namespace, selector, since)
        except TimeoutError:
            if self.bookmarks_at_end and request.query.get("allowWatchBookmarks") and not self.silent:
                version = str(self.store.version)
                await response.write(_line("BOOKMARK", {"metadata": {"resourceVersion": version}}))
        except ConnectionError:
            pass
        finally:
            del self._watches[transport]
        return response

    async def _send_events(
        self,
        response: web.StreamResponse,
        queue: asyncio.Queue[bytes | None],
        resource: Resource,
        namespace: str | None,
        selector: Selector,
        since: int,
    ) -> None:
        """Send all changes after `since`; for 0 what there is first. Returns when the queue says so."""
        if since == 0:
            since = self.store.version
            for item in self.store.listed(resource, namespace):
                if selector.matches(item):
                    await response.write(_line("ADDED", item))
        while True:
            changed = self._changed
            for change in list(self.store.log):
                if change.version <= since or change.resource != resource:
                    continue
                since = change.version
                shown = change.after or change.before
                assert shown is not None
                kind = _seen_as(change, selector)
                if (
                    kind is not None
                    and namespace in (None, shown["metadata"]["namespace"])
                    and not self.silent
                ):
                    document = {**shown, "metadata": {**shown["metadata"], "resourceVersion": str(since)}}
                    await response.write(_line(kind, document))
            waits = [asyncio.ensure_future(queue.get()), asyncio.ensure_future(changed.wait())]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if waits[0].done():
                    data = waits[0].result()
                    if data is None:
                        return
                    assert isinstance(data, bytes)
                    await response.write(data)
            finally:
                for wait in waits:
                    wait.cancel()

    def tell(self) -> None:
        """Let watches look at the log. Changes over HTTP do it by themselves."""
        self._changed.set()
        self._changed = asyncio.Event()


def _seen_as(change: Change, selector: Selector) -> str | None:
    """What a change is for somebody who sees only what matches; None for nothing."""
    before, after = selector.matches(change.before), selector.matches(change.after)
    if before:
        return "MODIFIED" if after else "DELETED"
    return "ADDED" if after else None


def _gone() -> StatusError:
    return StatusError(410, "Expired", "too old resource version")


def _line(kind: str, document: Object) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


@asynccontextmanager
async def kubernetes_api(
    *resources: Resource, tls: ssl.SSLContext | None = None
) -> AsyncIterator[KubernetesApi]:
    """Run a server on a free loopback port, with endpoint slices and pods unless told otherwise."""
    api = KubernetesApi(resources or (ENDPOINT_SLICES, PODS))
    application = web.Application(client_max_size=16 * 1024 * 1024)
    application.router.add_route("*", "/{path:.*}", api.serve)
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    api.port, api.tls = runner.addresses[0][1], tls is not None
    try:
        yield api
    finally:
        api.drop_watches()
        await runner.cleanup()


def endpoint_slice(
    name: str,
    *addresses: str | Object,
    service: str = "vllm",
    kind: str = "IPv4",
    ports: Iterable[Object] = ({"name": "http", "port": 8000, "protocol": "TCP"},),
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Object:
    """An EndpointSlice; each address is a ready endpoint, or a whole endpoint of a test's own."""
    metadata: Object = {
        "name": name,
        "labels": {"kubernetes.io/service-name": service, **(labels or {})},
    }
    if annotations:
        metadata["annotations"] = annotations
    endpoints = [endpoint(address) if isinstance(address, str) else address for address in addresses]
    return {"metadata": metadata, "addressType": kind, "endpoints": endpoints, "ports": list(ports)}


def endpoint(address: str, pod: str | None = None, **conditions: Any) -> Object:
    """An endpoint as the controller writes it; ready unless `conditions` say otherwise."""
    document: Object = {
        "addresses": [address],
        "conditions": {"ready": True, "serving": True, "terminating": False, **conditions},
    }
    if pod is not None:
        document["targetRef"] = {"kind": "Pod", "namespace": "default", "name": pod, "uid": f"uid-of-{pod}"}
    return document
