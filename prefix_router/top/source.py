"""Asks a router's admin listener for its numbers. Blocks, for a few seconds at most."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

TIMEOUT_SECONDS: Final = 3.0


class NotReachedError(Exception):
    """There is no usable answer; the text says why."""


class _NoRedirect(HTTPRedirectHandler):
    """Follows nothing: a token must not go elsewhere."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Take the redirect for the answer."""


class Source:
    """One router. url: of its admin listener. token: None for none."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._opener = build_opener(ProxyHandler({}), _NoRedirect())
        self._seen: dict[str, Any] = {}

    def read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return `/status` and what is new of `/history`. Raises NotReachedError."""
        status = self._get("/status")
        history = self._get(f"/history?{urlencode(self._seen)}" if self._seen else "/history")
        self._seen = {"since": history.get("next", 0), "epoch": history.get("epoch", "")}
        return status, history

    def _get(self, path: str) -> dict[str, Any]:
        try:
            request = Request(self.url + path, headers=self._headers)
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                document = json.load(response)
        except HTTPError as error:
            with error:
                hint = ": give --token-file" if error.code == HTTPStatus.UNAUTHORIZED else ""
            raise NotReachedError(f"{self.url}{path} answers {error.code}{hint}") from None
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise NotReachedError(f"{self.url}: {reason}") from None
        if not isinstance(document, dict):
            raise NotReachedError(f"{self.url}{path} is not a router's: its answer is no object")
        return document
