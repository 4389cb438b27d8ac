"""From a request to what a strategy needs to know about it.

One place joins the wire formats and the key, so that the data path, `explain` on the command line and
`/explain` on the admin listener cannot answer differently. No I/O.

A large body is read in steps and by turns with everything else (`TurnTaker`), so that no body holds up the
event loop; its key is the same as if it were read at once.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from http.cookies import CookieError, SimpleCookie

from msgspec import Struct

from prefix_router.openai_api.condense import LARGE_BYTES
from prefix_router.openai_api.json_scan import ByteSource, WholeBytes, finish
from prefix_router.openai_api.request import Api, RoutingRequest, parse, parse_large
from prefix_router.proxy.turn_taker import TurnTaker
from prefix_router.routing.chain import BYTES_PER_TOKEN, LONGEST_TOKENS, PrefixChain, prefix_chain
from prefix_router.routing.decision import Query, Strategy
from prefix_router.routing.depth import Depth
from prefix_router.routing.fleet import BackendName, Fleet
from prefix_router.routing.key import PrefixKey, PrefixRule, PrefixUnit, TokenEncoder, key_steps, prefix_key
from prefix_router.routing.seen import Seen

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_LABELS = {api: api.value for api in Api}
_RESPONSES_PREFIX = "/v1/responses/"


class Subject(Struct, frozen=True):
    """What the router knows about a request.

    api: the metric label of its API. key: None for a request without one, and where `Decider.query` makes
    it. chain: of its prompt, if anybody wants to know. session: the session id.
    continues: id of the response it continues or asks for. repeatable: doing it twice does no harm.
    invalid_header: name of an affinity header with an unusable value.
    """

    api: str = "other"
    model: str | None = None
    stream: bool = False
    key: int | None = None
    chain: PrefixChain | None = None
    cache_salt: str | None = None
    session: str | None = None
    continues: str | None = None
    repeatable: bool = False
    invalid_header: str | None = None


class Decider:
    """Reads requests by one rule, for one strategy.

    depth: what says how deep a key looks; None for keys of the rule's fixed length. chains: whether chains
    are wanted although the key needs none. seen: what came before, to be carried on.
    """

    def __init__(
        self,
        strategy: Strategy,
        rule: PrefixRule,
        encoder: TokenEncoder | None = None,
        *,
        depth: Depth | None = None,
        chains: bool = False,
        seen: Seen | None = None,
        session_header: str = "x-session-id",
        session_cookie: str | None = None,
    ) -> None:
        self.strategy = strategy
        self.rule = rule
        self.encoder = encoder
        self._session_header = session_header
        self._session_cookie = session_cookie
        self.depth = depth
        self.seen = Seen() if seen is None else seen
        self.makes_chains = chains or depth is not None
        self._head_bytes = rule.head_bytes(exact=encoder is not None)
        if self.makes_chains:
            self._head_bytes = max(self._head_bytes, LONGEST_TOKENS * BYTES_PER_TOKEN)
        self._turns = TurnTaker()

    def parse(self, path: str, headers: Mapping[str, str], body: bytes | bytearray) -> RoutingRequest:
        """Return the routing request of a body. Never raises."""
        content_type = headers.get("Content-Type")
        if len(body) <= LARGE_BYTES:
            return parse(path, content_type, body, headers)
        return finish(parse_large(path, content_type, WholeBytes(body), headers, self._head_bytes))

    def read(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | bytearray | None
    ) -> Subject:
        """Return what is known of a request; body is None when it is passed on unread. Never raises."""
        if body is None or method in _SAFE_METHODS:
            return self._unread(method, path, headers)
        request = self.parse(path, headers, body)
        key = prefix_key(request, self.rule, body, self.encoder) if self.depth is None else None
        return self._subject(path, headers, request, key)

    def query(
        self,
        subject: Subject,
        fleet: Fleet,
        *,
        draw: int,
        now: float,
        held: Mapping[BackendName, float] | None = None,
        count: bool = True,
    ) -> Query:
        """Return what the strategy is asked about a request, which is counted unless `count` is false.

        held: the share of the prompt that backends say they hold.
        """
        key, key_tokens, popular_tokens = subject.key, 0, 0
        chain = subject.chain
        if self.depth is not None and chain is not None:
            choose = self.depth.key if count else self.depth.peek
            key, key_tokens, popular_tokens = choose(chain, len(fleet.members))
        return Query(
            key,
            subject.model,
            draw,
            subject.session,
            chain=chain,
            key_tokens=key_tokens,
            popular_tokens=popular_tokens,
            held=held,
            now=now,
        )

    def read_at_once(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | ByteSource | None
    ) -> Subject | None:
        """Return the same as `read` if that takes little time, None for a large body."""
        if body is None or method in _SAFE_METHODS:
            return self._unread(method, path, headers)
        if isinstance(body, bytes) and len(body) <= LARGE_BYTES:
            return self.read(method, path, headers, body)
        return None

    async def read_by_turns(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | ByteSource | None
    ) -> Subject:
        """Return the same as `read`; let others run while a large body is read."""
        subject = self.read_at_once(method, path, headers, body)
        if subject is None:
            assert body is not None
            source = WholeBytes(body) if isinstance(body, bytes) else body
            subject = await self._turns.finish(self._steps(path, headers, source))
        return subject

    def _steps(
        self, path: str, headers: Mapping[str, str], body: ByteSource
    ) -> Generator[int | None, None, Subject]:
        content_type = headers.get("Content-Type")
        request = yield from parse_large(path, content_type, body, headers, self._head_bytes)
        yield None
        key = None
        if self.depth is None:
            raw_head = body.read(0, self.rule.length if self.rule.unit is PrefixUnit.BYTES else 0)
            key = yield from key_steps(request, self.rule, raw_head, self.encoder)
        return self._subject(path, headers, request, key)

    def _unread(self, method: str, path: str, headers: Mapping[str, str]) -> Subject:
        safe = method in _SAFE_METHODS
        return Subject(session=self._session(headers), continues=_continued(path), repeatable=safe)

    def _subject(
        self, path: str, headers: Mapping[str, str], request: RoutingRequest, key: PrefixKey | None
    ) -> Subject:
        return Subject(
            api=_LABELS[request.api],
            model=request.model,
            stream=request.stream,
            key=None if key is None else key.value,
            chain=prefix_chain(request) if self.makes_chains else None,
            cache_salt=request.cache_salt,
            session=self._session(headers),
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
