"""The life of one request: accept it, read it, decide about it, have it dispatched; and report it once.

What a step cannot do is a value or an exception of its own room; this file says what the client gets for
it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Protocol

from aiohttp import HttpVersion10

from prefix_router.observe.events import Observer, Outcome, RequestRecord
from prefix_router.openai_api.errors import ErrorCode
from prefix_router.openai_api.forwarded import Forwarded, TrustedProxies
from prefix_router.openai_api.headers import is_valid_request_id, origin_form
from prefix_router.proxy.body import (
    BodyBrokenError,
    BodyTimeoutError,
    BodyTooLargeError,
    RequestBody,
    StreamedBody,
    WholeBody,
    is_streamed,
    read_whole,
    whole_at_hand,
)
from prefix_router.proxy.client_request import ClientRequest
from prefix_router.proxy.clients import needs_key
from prefix_router.proxy.decider import Subject
from prefix_router.proxy.dispatch import Dispatcher, Errand
from prefix_router.proxy.downstream import Downstream
from prefix_router.proxy.fleet_store import FleetSource
from prefix_router.proxy.local_answers import LocalAnswers
from prefix_router.proxy.policy import RequestLimits, RequestPolicy
from prefix_router.routing.fleet import BackendName

logger = logging.getLogger(__name__)

_random_bits = random.Random().getrandbits
"""Ids and draws need to differ, not to be secret: no system call for each request."""


class Holdings(Protocol):
    """Whoever knows what backends say they hold."""

    @property
    def wanted(self) -> bool:
        """Whether it is worth asking."""

    async def shares(self, subject: Subject, body: bytes) -> Mapping[BackendName, float] | None:
        """Return the share of a prompt, 0 to 1, that backends hold; None when that is not known."""


class Handler:
    """Serves requests of the data port. `active` counts those that run.

    `policy` is what the next request goes by; assign it to change the configuration.
    """

    def __init__(
        self,
        *,
        store: FleetSource,
        policy: RequestPolicy,
        dispatcher: Dispatcher,
        local_answers: LocalAnswers,
        holdings: Holdings,
        observer: Observer,
        clock: Callable[[], float],
    ) -> None:
        self.policy = policy
        self._store = store
        self._dispatcher = dispatcher
        self._local_answers = local_answers
        self._holdings = holdings
        self._observer = observer
        self._clock = clock
        self._drained = asyncio.Event()
        self.active = 0
        self.closing = False
        """Set while shutting down: responses then ask their clients to connect anew."""

    async def drained(self, seconds: float) -> bool:
        """Wait until no request runs, at most `seconds`; say whether that came true."""
        try:
            async with asyncio.timeout(seconds):
                while self.active:
                    self._drained.clear()
                    await self._drained.wait()
        except TimeoutError:
            return False
        return True

    async def __call__(self, request: ClientRequest) -> bool:
        """Serve one request; return whether another may follow on its connection."""
        started_at = self._clock()
        target = origin_form(request.target.encode("utf-8", "surrogateescape"))
        record = RequestRecord(_request_id(request), request.method, _path(target))
        record.client_address = request.remote
        policy = self.policy
        if policy.tracing is not None:
            record.trace = policy.tracing.begin(request.headers)
        downstream = Downstream(request, policy.limits.write_seconds)
        if self.closing or "Upgrade" in request.headers:  # aiohttp reads no request after an upgrade
            downstream.keep_alive = False
        self.active += 1
        try:
            errand = Errand(request, target, downstream, policy, record, started_at)
            if policy.proxies is not None:
                errand.forwarded = _judged(request, policy.proxies)
                record.client_address = errand.forwarded.address
            if policy.cors is not None:
                downstream.added += policy.cors.lines(request.headers.get("Origin"))
            await self._serve(errand)
        except asyncio.CancelledError:
            _disconnected(record)
            if not downstream.gone:  # the router stops: this is the end of its patience
                downstream.abort()
            raise
        except ConnectionError:
            _disconnected(record)
            downstream.keep_alive = False
        except Exception:
            logger.exception("request %s failed in the router", record.request_id)
            policy.replies.fail(
                record, downstream, ErrorCode.INTERNAL_ERROR, "The router failed; see its log."
            )
        finally:
            self.active -= 1
            if not self.active:
                self._drained.set()
            record.response_bytes = downstream.bytes_sent
            record.duration_seconds = self._clock() - started_at
            self._observer.request_finished(record)
        return downstream.keep_alive

    async def _serve(self, errand: Errand) -> None:
        request, record, downstream = errand.request, errand.record, errand.downstream
        replies, limits = errand.policy.replies, errand.policy.limits
        if errand.policy.cors is not None:
            # Before anybody asks for a key: a browser sends none with this question.
            lines = errand.policy.cors.preflight(request.method, request.headers)
            if lines is not None:
                replies.answer_preflight(record, downstream, lines)
                return
        clients = errand.policy.clients
        if clients is not None and needs_key(request.method, record.path):
            record.client = clients.name(request.headers)
            if record.client is None:
                if request.body_exists:
                    downstream.keep_alive = False  # nobody reads the body of a stranger
                record.api = "messages" if record.path == "/v1/messages" else record.api
                message = "A valid API key is needed: Authorization: Bearer KEY, or x-api-key: KEY."
                replies.fail(record, downstream, ErrorCode.INVALID_API_KEY, message)
                return
        answer = self._local_answers.answer(request.method, record.path, closing=self.closing)
        if answer is not None:
            replies.answer(record, downstream, answer)
            return
        if request.version < HttpVersion10:
            downstream.keep_alive = False
            replies.fail(record, downstream, ErrorCode.BAD_REQUEST, "HTTP before version 1.0 is not served.")
            return
        if request.method == "CONNECT" or request.headers.get("Upgrade", "").lower() == "websocket":
            downstream.keep_alive = False  # what follows may be meant for the tunnel
            message = "Tunnels and protocol upgrades are not supported."
            replies.fail(record, downstream, ErrorCode.NOT_IMPLEMENTED, message)
            return
        try:
            body = errand.body = _at_hand(request, limits) or await _read(request, downstream, limits)
            try:
                await self._route(errand)
            finally:
                record.request_bytes = body.bytes_read
                body.release()
        except BodyTooLargeError:
            code = ErrorCode.REQUEST_TOO_LARGE
            limit = limits.max_body_bytes
            message = f"The request body is larger than limits.max_body_bytes = {limit} bytes."
        except BodyBrokenError:
            code = ErrorCode.BAD_REQUEST
            message = "The request body's framing is not valid HTTP."
        except BodyTimeoutError:
            code = ErrorCode.REQUEST_TIMEOUT
            message = f"No byte of the request body came for {limits.body_idle_seconds:g} seconds."
        else:
            return
        downstream.keep_alive = False  # what is left of the body must not be taken for a request
        replies.fail(record, downstream, code, message)

    async def _route(self, errand: Errand) -> None:
        began = self._clock()
        request, record, policy = errand.request, errand.record, errand.policy
        decider, data = policy.decider, errand.body.data if isinstance(errand.body, WholeBody) else None
        subject = decider.read_at_once(request.method, record.path, request.headers, data)
        if subject is None:
            subject = await decider.read_by_turns(request.method, record.path, request.headers, data)
        errand.subject = subject
        model = record.model = subject.model
        record.api, record.stream = subject.api, subject.stream
        record.router_seconds += self._clock() - began
        if subject.invalid_header is not None:
            message = f"{subject.invalid_header} must be 1 to 64 printable ASCII characters."
            policy.replies.fail(record, errand.downstream, ErrorCode.INVALID_AFFINITY_ID, message)
            return
        if self._store.fleet.knows_no(model) and await self._still_knows_no(model):
            message = f"The model `{(model or '')[:256]}` does not exist."
            policy.replies.fail(record, errand.downstream, ErrorCode.MODEL_NOT_FOUND, message)
            return
        held = None
        if self._holdings.wanted and subject.chain is not None and isinstance(data, bytes):
            held = await self._holdings.shares(subject, data)
        query = decider.query(subject, self._store.fleet, draw=_random_bits(64), now=self._clock(), held=held)
        record.key = query.key
        chain = query.chain
        if chain is not None:
            record.prompt_length, record.shared_tokens = chain.tokens, decider.seen.shared_tokens(chain)
            if policy.records_chains:
                record.chain = chain
        await self._dispatcher.dispatch(errand, query)

    async def _still_knows_no(self, model: str | None) -> bool:
        await self._local_answers.refresh_models()
        return self._store.fleet.knows_no(model)


def _at_hand(request: ClientRequest, limits: RequestLimits) -> RequestBody | None:
    if is_streamed(request.headers.get("Content-Type")):
        return None
    return whole_at_hand(request, limits.max_body_bytes)


async def _read(request: ClientRequest, downstream: Downstream, limits: RequestLimits) -> RequestBody:
    limit, idle_seconds = limits.max_body_bytes, limits.body_idle_seconds
    streamed = is_streamed(request.headers.get("Content-Type"))
    body = StreamedBody(request, limit, idle_seconds) if streamed else None
    if "Expect" in request.headers:
        if (request.content_length or 0) > limit:
            raise BodyTooLargeError
        downstream.continue_100()
    return body if body is not None else await read_whole(request, limit, idle_seconds)


def _disconnected(record: RequestRecord) -> None:
    if record.outcome is not Outcome.COMPLETED:
        record.outcome = Outcome.CLIENT_DISCONNECTED


def _judged(request: ClientRequest, proxies: TrustedProxies) -> Forwarded:
    host = request.headers.get("Host")
    raw_host = None if host is None else host.encode("utf-8", "surrogateescape")
    return proxies.judge(request.remote, request.raw_headers, scheme=request.scheme, host=raw_host)


def _request_id(request: ClientRequest) -> str:
    given = request.headers.get("X-Request-Id")
    if given is not None and is_valid_request_id(given):
        return given
    return f"{_random_bits(128):032x}"


def _path(target: bytes) -> str:
    path = target.partition(b"?")[0].decode("utf-8", "replace")
    return path.rstrip("/") or "/"
