"""The life of one request, in order: read it, decide, lease, send, relay; and report it once.

What a step cannot do is a value or an exception of its own room; this file says what the client gets for
it. The only awaits are for bytes: between the decision and the lease there is none.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web

from prefix_router.observe.events import Observer, Outcome, RetryCause
from prefix_router.openai_api.errors import ErrorCode
from prefix_router.openai_api.headers import (
    header,
    is_valid_request_id,
    origin_form,
    request_head,
    response_headers,
)
from prefix_router.openai_api.observer import response_observer
from prefix_router.proxy.body import (
    BodyBrokenError,
    BodyTimeoutError,
    BodyTooLargeError,
    StreamedBody,
    is_streamed,
    read_whole,
)
from prefix_router.proxy.continuations import Continuations
from prefix_router.proxy.decider import Decider
from prefix_router.proxy.downstream import Downstream
from prefix_router.proxy.exchange import Exchange
from prefix_router.proxy.fleet_store import FleetStore
from prefix_router.proxy.lease import Lease
from prefix_router.proxy.local_answers import LocalAnswers
from prefix_router.proxy.upstreams import Upstreams
from prefix_router.routing.decision import Decision, Query, Reason
from prefix_router.routing.health import HealthEvent
from prefix_router.routing.retry import Failure, Verdict, verdict
from prefix_router.upstream.connection import Response
from prefix_router.upstream.errors import ErrorKind, UpstreamError

logger = logging.getLogger(__name__)

_BACK_PRESSURE = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)

_FAILURE_OF = {
    ErrorKind.UNREACHABLE: Failure.UNREACHABLE,
    ErrorKind.CONNECT_TIMEOUT: Failure.CONNECT_TIMEOUT,
    ErrorKind.RESET: Failure.RESET,
    ErrorKind.BAD_RESPONSE: Failure.BAD_RESPONSE,
    ErrorKind.FIRST_BYTE_TIMEOUT: Failure.FIRST_BYTE_TIMEOUT,
    ErrorKind.TRUNCATED: Failure.BROKEN_STREAM,
    ErrorKind.IDLE_TIMEOUT: Failure.BROKEN_STREAM,
}

_RETRY_CAUSE_OF = {
    Failure.UNREACHABLE: RetryCause.CONNECT,
    Failure.CONNECT_TIMEOUT: RetryCause.CONNECT,
    Failure.STALE_CONNECTION: RetryCause.REUSED_CONNECTION,
    Failure.RESET: RetryCause.RESET,
    Failure.BAD_RESPONSE: RetryCause.RESET,
    Failure.BACK_PRESSURE: RetryCause.BACK_PRESSURE,
}


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """What of the configuration the data path needs.

    body_idle_seconds: how long a client may pause while sending its body, 0 for no bound.
    decision_headers: whether responses carry `x-prefix-router-backend` and `-reason`.
    """

    max_body_bytes: int
    body_idle_seconds: float
    max_attempts: int
    decision_headers: bool


class _AttemptFailedError(Exception):
    """An attempt ended without a byte for the client."""

    def __init__(self, failure: Failure, detail: str) -> None:
        super().__init__(detail)
        self.failure = failure
        self.detail = detail


class Handler:
    """Serves requests of the data port. `active` counts those that run."""

    def __init__(
        self,
        *,
        store: FleetStore,
        upstreams: Upstreams,
        decider: Decider,
        local_answers: LocalAnswers,
        observer: Observer,
        options: ProxyOptions,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._upstreams = upstreams
        self._decider = decider
        self._local_answers = local_answers
        self._observer = observer
        self._options = options
        self._clock = clock
        self._continuations = Continuations()
        self._drained = asyncio.Event()
        self.active = 0
        self.closing = False
        """Set while shutting down: responses then ask their clients to connect anew."""

    async def drained(self, seconds: float) -> bool:
        """Wait until no request runs, at most `seconds`; say whether that came true."""
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(deadline):
                while self.active:
                    self._drained.clear()
                    await self._drained.wait()
        except TimeoutError:
            return False
        return True

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve one request."""
        target = request.raw_path.encode("utf-8", "surrogateescape")
        exchange = Exchange(self._clock(), _request_id(request), request.method, _path(target))
        downstream = Downstream(request)
        if self.closing:
            downstream.keep_alive = False
        self.active += 1
        try:
            await self._serve(request, origin_form(target), exchange, downstream)
        except asyncio.CancelledError:
            self._disconnected(exchange)
            if not downstream.gone:  # the router stops: this is the end of its patience
                downstream.abort()
            raise
        except ConnectionError:
            self._disconnected(exchange)
            downstream.keep_alive = False
        except Exception:
            logger.exception("request %s failed in the router", exchange.request_id)
            self._fail(exchange, downstream, ErrorCode.INTERNAL_ERROR, "The router failed; see its log.")
        finally:
            self.active -= 1
            if not self.active:
                self._drained.set()
            self._observer.request_finished(exchange.finished(self._clock(), downstream.bytes_sent))
        return downstream.delivered()

    async def _serve(
        self, request: web.BaseRequest, target: bytes, exchange: Exchange, downstream: Downstream
    ) -> None:
        answer = self._local_answers.answer(request.method, exchange.path)
        if answer is not None:
            exchange.status, exchange.outcome = answer.status, answer.outcome
            exchange.subject = answer.subject
            self._send(exchange, downstream, answer.status, answer.body, answer.headers)
            return
        if request.method == "CONNECT" or request.headers.get("Upgrade", "").lower() == "websocket":
            downstream.keep_alive = False
            message = "Tunnels and protocol upgrades are not supported."
            self._fail(exchange, downstream, ErrorCode.NOT_IMPLEMENTED, message)
            return
        try:
            body = await self._read(request, downstream)
            try:
                await self._route(request, target, body, exchange, downstream)
            finally:
                exchange.request_bytes = len(body) if isinstance(body, bytes) else body.bytes_read
        except BodyTooLargeError:
            downstream.keep_alive = False
            limit = self._options.max_body_bytes
            message = f"The request body is larger than limits.max_body_bytes = {limit} bytes."
            self._fail(exchange, downstream, ErrorCode.REQUEST_TOO_LARGE, message)
        except BodyBrokenError:
            downstream.keep_alive = False
            self._fail(
                exchange, downstream, ErrorCode.BAD_REQUEST, "The request body's framing is not valid HTTP."
            )
        except BodyTimeoutError:
            downstream.keep_alive = False
            seconds = self._options.body_idle_seconds
            message = f"No byte of the request body came for {seconds:g} seconds."
            self._fail(exchange, downstream, ErrorCode.REQUEST_TIMEOUT, message)

    async def _read(self, request: web.BaseRequest, downstream: Downstream) -> bytes | StreamedBody:
        limit, idle_seconds = self._options.max_body_bytes, self._options.body_idle_seconds
        streamed = is_streamed(request.headers.get("Content-Type"))
        body = StreamedBody(request, limit, idle_seconds) if streamed else None
        if "Expect" in request.headers:
            if (request.content_length or 0) > limit:
                raise BodyTooLargeError
            downstream.continue_100()
        return body if body is not None else await read_whole(request, limit, idle_seconds)

    async def _route(
        self,
        request: web.BaseRequest,
        target: bytes,
        body: bytes | StreamedBody,
        exchange: Exchange,
        downstream: Downstream,
    ) -> None:
        began = self._clock()
        subject = exchange.subject = self._decider.read(
            request.method, exchange.path, request.headers, body if isinstance(body, bytes) else None
        )
        if subject.invalid_header is not None:
            message = f"{subject.invalid_header} must be 1 to 64 printable ASCII characters."
            self._fail(exchange, downstream, ErrorCode.INVALID_AFFINITY_ID, message)
            return
        if self._store.fleet.knows_no(subject.model):
            await self._local_answers.refresh_models()
        if self._store.fleet.knows_no(subject.model):
            name = (subject.model or "")[:256]
            self._fail(exchange, downstream, ErrorCode.MODEL_NOT_FOUND, f"The model `{name}` does not exist.")
            return
        query = Query(
            key=subject.key, model=subject.model, session=subject.session, draw=secrets.randbits(64)
        )
        exchange.router_seconds += self._clock() - began
        await self._attempts(request, target, body, query, exchange, downstream)

    async def _attempts(
        self,
        request: web.BaseRequest,
        target: bytes,
        body: bytes | StreamedBody,
        query: Query,
        exchange: Exchange,
        downstream: Downstream,
    ) -> None:
        last: _AttemptFailedError | None = None
        while (decision := self._decide(query, exchange)) is not None:
            exchange.attempts += 1
            exchange.decision = decision
            name = decision.member.name
            with Lease(decision.member.in_flight):
                try:
                    await self._attempt(request, target, body, query, decision, exchange, downstream)
                except _AttemptFailedError as error:
                    last = error
                else:
                    return
            refused = last.failure is Failure.BACK_PRESSURE
            if not refused and self._verdict(last.failure, body, exchange) is not Verdict.NEXT_BACKEND:
                break
            query = query.after_refusal(name) if refused else query.after_failure(name)
            if self._decide(query, exchange) is None:
                break
            exchange.retry_causes.append(_RETRY_CAUSE_OF[last.failure])
        if last is None:
            self._fail_unroutable(exchange, downstream)
        else:
            self._fail_upstream(last, exchange, downstream)

    def _decide(self, query: Query, exchange: Exchange) -> Decision | None:
        fleet = self._store.fleet
        if exchange.subject.continues is not None:
            name = self._continuations.backend(exchange.subject.continues)
            member = None if name is None else fleet.by_name.get(name)
            if member is not None and member.admits() and name not in query.failed | query.refused:
                return Decision(member, Reason.CONTINUATION)
        return self._decider.strategy.choose(query, fleet)

    async def _attempt(
        self,
        request: web.BaseRequest,
        target: bytes,
        body: bytes | StreamedBody,
        query: Query,
        decision: Decision,
        exchange: Exchange,
        downstream: Downstream,
    ) -> None:
        """Send to one backend and relay its answer. Raises _AttemptFailedError before the first byte."""
        response = await self._send_upstream(request, target, body, decision, exchange)
        received = self._clock()
        backend = decision.member.backend
        if response.status in _BACK_PRESSURE:
            elsewhere = self._verdict(Failure.BACK_PRESSURE, body, exchange) is Verdict.NEXT_BACKEND
            if elsewhere and self._decide(query.after_refusal(backend.name), exchange) is not None:
                response.abort()
                raise _AttemptFailedError(Failure.BACK_PRESSURE, f"answered {response.status}")
        elif response.status >= 500:
            self._store.report(backend, HealthEvent.REQUEST_BAD, f"status {response.status}")
        else:
            self._store.report(backend, HealthEvent.REQUEST_OK)
        exchange.status = response.status
        try:
            await self._relay(response, received, decision, exchange, downstream)
        except UpstreamError as error:
            self._store.report(backend, HealthEvent.REQUEST_BAD, error.kind.value)
            logger.warning("response of %s to %s broke off: %s", backend.name, exchange.request_id, error)
            exchange.outcome = Outcome.UPSTREAM_TRUNCATED
            exchange.error_code = error.kind.value
            downstream.abort()
        finally:
            response.abort()

    async def _send_upstream(
        self,
        request: web.BaseRequest,
        target: bytes,
        body: bytes | StreamedBody,
        decision: Decision,
        exchange: Exchange,
    ) -> Response:
        began = self._clock()
        backend = decision.member.backend
        upstream = self._upstreams.of(backend)
        method = request.method.encode()
        head = request_head(
            method,
            upstream.target(target),
            request.raw_headers,
            host=upstream.address.host_header,
            body_length=len(body) if isinstance(body, bytes) else body.length,
            request_id=exchange.request_id.encode(),
            client_address=(request.remote or "").encode(),
            client_host=header(request.raw_headers, b"host"),
        )
        exchange.router_seconds += self._clock() - began
        fresh = False
        while True:
            try:
                wire = body if isinstance(body, bytes) else body.wire()
                return await upstream.pool.send(method, head, wire, fresh=fresh)
            except UpstreamError as error:
                failure = _FAILURE_OF[error.kind]
                if failure is Failure.RESET and error.reused:
                    failure = Failure.STALE_CONNECTION
                if self._verdict(failure, body, exchange) is Verdict.SAME_BACKEND:
                    exchange.retry_causes.append(RetryCause.REUSED_CONNECTION)
                    fresh = True
                    continue
                unreachable = failure is Failure.UNREACHABLE
                event = HealthEvent.UNREACHABLE if unreachable else HealthEvent.REQUEST_BAD
                self._store.report(backend, event, error.detail)
                logger.info("%s failed for %s: %s", backend.name, exchange.request_id, error)
                raise _AttemptFailedError(failure, error.detail) from error

    def _verdict(self, failure: Failure, body: bytes | StreamedBody, exchange: Exchange) -> Verdict:
        return verdict(
            failure,
            attempt=exchange.attempts,
            max_attempts=self._options.max_attempts,
            replayable=isinstance(body, bytes) or not body.started,
            repeatable=exchange.subject.repeatable,
        )

    async def _relay(
        self,
        response: Response,
        received: float,
        decision: Decision,
        exchange: Exchange,
        downstream: Downstream,
    ) -> None:
        headers = response_headers(response.headers)
        watch = response_observer(
            _text(header(response.headers, b"content-type")),
            _text(header(response.headers, b"content-encoding")),
            response.status,
        )
        headers += self._router_headers(exchange, decision)
        downstream.start(response.status, response.reason, headers, response.content_length)
        exchange.router_seconds += self._clock() - received
        try:
            while chunk := await response.read():
                await downstream.write(chunk)
                if exchange.first_byte_at is None:
                    exchange.first_byte_at = self._clock()
                watch.feed(chunk)
                if exchange.first_token_at is None and watch.first_content:
                    exchange.first_token_at = self._clock()
                if watch.terminal:
                    # A client that closes right after the last event has got what it asked for.
                    exchange.outcome = Outcome.COMPLETED
            downstream.finish()
            exchange.outcome = Outcome.COMPLETED
        finally:
            watch.finish()
            exchange.usage = watch.usage
            if watch.response_id is not None:
                self._continuations.remember(watch.response_id, decision.member.name)

    def _router_headers(self, exchange: Exchange, decision: Decision | None) -> list[tuple[bytes, bytes]]:
        headers = [(b"x-request-id", exchange.request_id.encode())]
        if decision is not None and self._options.decision_headers:
            headers.append((b"x-prefix-router-backend", decision.member.name.encode()))
            headers.append((b"x-prefix-router-reason", decision.reason.value.encode()))
        return headers

    def _send(
        self,
        exchange: Exchange,
        downstream: Downstream,
        status: int,
        body: bytes,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        reason = HTTPStatus(status).phrase.encode()
        all_headers = [(b"Content-Type", b"application/json"), *headers]
        all_headers += self._router_headers(exchange, None)
        downstream.send(status, reason, all_headers, body)

    def _fail(
        self,
        exchange: Exchange,
        downstream: Downstream,
        code: ErrorCode,
        message: str,
        outcome: Outcome = Outcome.REJECTED,
    ) -> None:
        """Answer with an error of the router's own, or break off an answer that has begun."""
        exchange.outcome = outcome
        exchange.error_code = code.value
        exchange.status = code.status
        if downstream.started:
            downstream.abort()
            return
        if downstream.gone:
            self._disconnected(exchange)
            return
        headers = ((b"Retry-After", b"1"),) if code.status == HTTPStatus.SERVICE_UNAVAILABLE else ()
        body = code.body(message, anthropic=exchange.subject.api == "messages")
        self._send(exchange, downstream, code.status, body, headers)

    def _disconnected(self, exchange: Exchange) -> None:
        if exchange.outcome is not Outcome.COMPLETED:
            exchange.outcome = Outcome.CLIENT_DISCONNECTED

    def _fail_unroutable(self, exchange: Exchange, downstream: Downstream) -> None:
        members = self._store.fleet.members
        if not members:
            code, message = ErrorCode.NO_BACKEND_CONFIGURED, "No backend is configured."
        else:
            states = [
                "draining" if member.draining else member.state.value
                for member in members
                if member.serves(exchange.subject.model)
            ]
            counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
            code = ErrorCode.NO_BACKEND_AVAILABLE
            message = f"No backend can take this request now ({counts}). Try again shortly."
        self._fail(exchange, downstream, code, message)

    def _fail_upstream(self, last: _AttemptFailedError, exchange: Exchange, downstream: Downstream) -> None:
        attempts = f"after {exchange.attempts} attempt" + ("s" if exchange.attempts > 1 else "")
        match last.failure:
            case Failure.FIRST_BYTE_TIMEOUT:
                code, what = ErrorCode.BACKEND_TIMEOUT, "The backend did not answer in time"
            case Failure.BAD_RESPONSE:
                code, what = ErrorCode.BACKEND_BAD_RESPONSE, "The backend's answer is not valid HTTP"
            case Failure.BACK_PRESSURE:
                code, what = ErrorCode.NO_BACKEND_AVAILABLE, "All backends that can answer are full"
            case _:
                code, what = ErrorCode.BACKEND_UNREACHABLE, "No backend could be reached"
        self._fail(exchange, downstream, code, f"{what} ({attempts}).", Outcome.UPSTREAM_FAILED)


def _request_id(request: web.BaseRequest) -> str:
    given = header(request.raw_headers, b"x-request-id")
    if given is not None and is_valid_request_id(given):
        return given.decode("ascii")
    return secrets.token_hex(16)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _path(target: bytes) -> str:
    path = origin_form(target).partition(b"?")[0].decode("utf-8", "replace")
    return path.rstrip("/") or "/"
