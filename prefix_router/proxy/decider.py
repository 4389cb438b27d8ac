"""From a request to what a strategy needs to know about it.

One place joins the wire formats and the key, so that the data path, `explain` on the command line and
`/explain` on the admin listener cannot answer differently. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from prefix_router.openai_api.request import Api, RoutingRequest, parse
from prefix_router.routing.decision import Strategy
from prefix_router.routing.key import PrefixRule, TokenEncoder, prefix_key

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_RESPONSES_PREFIX = "/v1/responses/"


@dataclass(frozen=True, slots=True)
class Subject:
    """What the router knows about a request.

    api: the metric label of its API. key: None for a request without one. session: the session id.
    continues: id of the response it continues or asks for. repeatable: doing it twice does no harm.
    invalid_header: name of an affinity header with an unusable value.
    """

    api: str = "other"
    model: str | None = None
    stream: bool = False
    key: int | None = None
    session: str | None = None
    continues: str | None = None
    repeatable: bool = False
    invalid_header: str | None = None


class Decider:
    """Reads requests by one rule, for one strategy."""

    def __init__(
        self,
        strategy: Strategy,
        rule: PrefixRule,
        encoder: TokenEncoder | None = None,
        *,
        session_header: str = "x-session-id",
        session_cookie: str | None = None,
    ) -> None:
        self.strategy = strategy
        self.rule = rule
        self.encoder = encoder
        self._session_header = session_header
        self._session_cookie = session_cookie

    def parse(self, path: str, headers: Mapping[str, str], body: bytes) -> RoutingRequest:
        """Return the routing request of a body. Never raises."""
        return parse(path, headers.get("Content-Type"), body, headers)

    def read(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Subject:
        """Return what is known of a request; body is None when it is passed on unread. Never raises."""
        session = self._session(headers)
        safe = method in _SAFE_METHODS
        if body is None or safe:
            return Subject(session=session, continues=_continued(path), repeatable=safe)
        request = self.parse(path, headers, body)
        key = prefix_key(request, self.rule, body, self.encoder)
        return Subject(
            api=request.api.value,
            model=request.model,
            stream=request.stream,
            key=None if key is None else key.value,
            session=session,
            continues=request.previous_response_id or _continued(path),
            repeatable=request.api is not Api.OTHER,
            invalid_header=request.invalid_affinity_header,
        )

    def _session(self, headers: Mapping[str, str]) -> str | None:
        if self.strategy.name != "session":
            return None
        session = headers.get(self._session_header)
        if session is None and self._session_cookie is not None:
            try:
                morsel = SimpleCookie(headers.get("Cookie", "")).get(self._session_cookie)
            except CookieError:
                return None
            session = morsel.value if morsel is not None else None
        return session or None


def _continued(path: str) -> str | None:
    if not path.startswith(_RESPONSES_PREFIX):
        return None
    return path.removeprefix(_RESPONSES_PREFIX).partition("/")[0] or None
