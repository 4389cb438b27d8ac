"""Talking to a Kubernetes API server: who it is, who we are, one GET at a time.

Where the server is and how one logs in there (service account, kubeconfig, exec plugins) is read by
kubernetes_asyncio. Its generated client is not used: it would make objects of everything, and what a list and
a watch need is two GETs. What the library leaves to its user is done here:

- Credentials are read again after `CREDENTIALS_SECONDS`, because the token of a service account and what a
  plugin hands out expire; and at once after the server has refused them.
- When the server cannot be reached or fails, the connections are dropped, so that a new certificate authority
  or another address of the server takes effect.
- Reading files and running plugins happens in a thread with an event loop of its own, because the library
  does both where it is called. So does its import, which takes half a second.

A token is never logged and stands in no error.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CREDENTIALS_SECONDS = 60.0
REQUEST_SECONDS = 30.0
_CONNECT_SECONDS = 10.0
_SLACK_SECONDS = 15.0
"""How long a watch may outlive the time that the server was asked to end it at."""

MAX_BYTES = 64 * 1024 * 1024
"""Of one page of a list, or of one event."""


class ApiError(Exception):
    """A request has failed. status: of the answer, 0 without one. retry_seconds: what the server asks for."""

    def __init__(self, message: str, status: int = 0, retry_seconds: float = 0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_seconds = retry_seconds


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """kubeconfig: path of the file; None for the service account of the pod that this runs in.

    context: of the kubeconfig; None for its current one. namespace: that paths are about; None for the one of
    the login. service_account: directory of the pod's.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    service_account: Path = SERVICE_ACCOUNT


@dataclass(frozen=True, slots=True)
class _Access:
    """Everything that has been read about a server. headers: with the login."""

    host: str
    namespace: str
    tls: ssl.SSLContext | None
    server_name: str | None
    proxy: str | None
    headers: Mapping[str, str]


class KubernetesApi:
    """One API server. Close it. `{namespace}` in a path is completed here."""

    def __init__(self, options: AccessOptions) -> None:
        self._options = options
        self._access: _Access | None = None
        self._read_at = float("-inf")
        self._session: aiohttp.ClientSession | None = None

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the body of one answer. Raises ApiError."""
        body = bytearray()
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=_CONNECT_SECONDS)
        async with aclosing(self._chunks(path, query, timeout)) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > MAX_BYTES:
                    raise ApiError(f"an answer of more than {MAX_BYTES} bytes")
        return bytes(body)

    async def lines(self, path: str, query: Mapping[str, str], seconds: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of an answer as they come; what is behind the last line end is no line.

        Ends when the server ends it, or some time after `seconds`. Raises ApiError.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=seconds + _SLACK_SECONDS
        )
        rest = bytearray()
        async with aclosing(self._chunks(path, query, timeout)) as chunks:
            async for chunk in chunks:
                searched = len(rest)
                rest += chunk
                while (end := rest.find(b"\n", searched)) >= 0:
                    line = bytes(rest[:end])
                    del rest[: end + 1]
                    searched = 0
                    if line.strip():
                        yield line
                if len(rest) > MAX_BYTES:
                    raise ApiError(f"an event of more than {MAX_BYTES} bytes")

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _chunks(
        self, path: str, query: Mapping[str, str], timeout: aiohttp.ClientTimeout
    ) -> AsyncGenerator[bytes, None]:
        access = await self._current_access()
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=access.tls if access.tls is not None else True)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=True)
        try:
            async with self._session.get(
                access.host + path.format(namespace=self._options.namespace or access.namespace),
                params=dict(query),
                headers=access.headers,
                timeout=timeout,
                proxy=access.proxy,
                server_hostname=access.server_name,
                allow_redirects=False,
            ) as response:
                if response.status != 200:
                    raise await _refusal(response)
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            await self._forget()
            raise ApiError(f"{access.host}: {_reason(error)}") from None
        except ApiError as error:
            if error.status in (401, 403) or error.status >= 500:
                await self._forget()
            raise

    async def _forget(self) -> None:
        self._access = None
        await self.close()

    async def _current_access(self) -> _Access:
        now = asyncio.get_running_loop().time()
        if self._access is None or now - self._read_at > CREDENTIALS_SECONDS:
            try:
                access = await asyncio.to_thread(lambda: asyncio.run(_read_access(self._options)))
            except Exception as error:  # noqa: BLE001 - whatever a plugin, a file or the library makes of it
                await self._forget()
                raise ApiError(f"cannot log in: {_without_output(_reason(error))}") from None
            before, self._access = self._access, access
            self._read_at = now
            if before is not None and before.host != access.host:
                await self.close()
        return self._access


async def _read_access(options: AccessOptions) -> _Access:
    """Read everything anew. Blocks."""
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import load_incluster_config, load_kube_config

    configuration: Any = Configuration()
    if options.kubeconfig is None:
        files = options.service_account
        load_incluster_config(  # type: ignore[no-untyped-call]
            client_configuration=configuration,
            try_refresh_token=False,
            token_filename=str(files / "token"),
            cert_filename=str(files / "ca.crt"),
        )
        namespace = (files / "namespace").read_text().strip()
    else:
        loader: Any = await load_kube_config(
            config_file=options.kubeconfig,
            context=options.context,
            client_configuration=configuration,
            persist_config=False,
        )
        namespace = loader.current_context["context"].get("namespace") or "default"
    headers = {"Accept": "application/json", "User-Agent": "prefix-router"}
    if token := configuration.api_key.get("BearerToken"):
        headers["Authorization"] = token.strip()
    return _Access(
        host=configuration.host,
        namespace=namespace,
        tls=_tls(configuration) if configuration.host.startswith("https:") else None,
        server_name=configuration.tls_server_name or None,
        proxy=configuration.proxy or None,
        headers=headers,
    )


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _refusal(response: aiohttp.ClientResponse) -> ApiError:
    """Make an error of an answer that is none; a Status object says it best."""
    message = f"status {response.status}"
    try:
        body = await response.content.read(8192)
        import msgspec

        message += f": {msgspec.json.decode(body)['message']}"
    except (aiohttp.ClientError, OSError, ValueError, TypeError, KeyError):
        pass
    try:
        retry_seconds = max(float(response.headers.get("Retry-After", "0")), 0)
    except ValueError:
        retry_seconds = 0
    return ApiError(message, response.status, min(retry_seconds, 300))


def _without_output(message: str) -> str:
    """Leave out what a plugin has printed: nobody knows what is in it."""
    return message.partition(". ")[0] if message.startswith("exec: process returned") else message


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
