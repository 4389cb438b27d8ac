"""From a query to a delivered response: decide, lease, send, relay, and again elsewhere when that may be.

The loop asks and obeys: the gate gives a decision of the strategy and the lease that goes with it, after a
wait if need be; the retry table and the retry budget say whether once more; the health table hears what
happened. Between a decision and its lease there is no await, so the next decision counts this request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from http import HTTPStatus

from prefix_router.observe.events import Outcome, RequestRecord, RetryCause
from prefix_router.openai_api.errors import ErrorCode
from prefix_router.openai_api.forwarded import Forwarded
from prefix_router.openai_api.headers import (
    has_dot_segments,
    named_by_connection,
    request_head,
    response_lines,
)
from prefix_router.openai_api.observer import response_observer
from prefix_router.openai_api.trace_context import HEADERS as TRACE_HEADERS
from prefix_router.proxy.body import RequestBody
from prefix_router.proxy.client_request import ClientRequest
from prefix_router.proxy.continuations import Continuations
from prefix_router.proxy.cors import CORS_HEADERS
from prefix_router.proxy.decider import Subject
from prefix_router.proxy.downstream import Downstream
from prefix_router.proxy.fleet_store import FleetSource
from prefix_router.proxy.gate import Entry, Gate, Question, Refusal
from prefix_router.proxy.lease import Lease
from prefix_router.proxy.policy import RequestPolicy
from prefix_router.proxy.relay import Relay
from prefix_router.proxy.tracing import lines_for_backend
from prefix_router.proxy.upstreams import Upstream, Upstreams
from prefix_router.routing.admission import Needs, Room, room_for
from prefix_router.routing.decision import Decision, Query
from prefix_router.routing.fleet import Backend, BackendName
from prefix_router.routing.health import HealthEvent
from prefix_router.routing.retry import Failure, Verdict, verdict
from prefix_router.routing.retry_budget import CHARGED, RetryBudget
from prefix_router.upstream.errors import ErrorKind, UpstreamError
from prefix_router.upstream.response import Response

logger = logging.getLogger(__name__)

_BACK_PRESSURE = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)

_NONE: frozenset[bytes] = frozenset()

_FAILURE_OF = {
    ErrorKind.UNREACHABLE: Failure.UNREACHABLE,
    ErrorKind.CONNECT_FAILED: Failure.CONNECT_FAILED,
    ErrorKind.BAD_CERTIFICATE: Failure.BAD_CERTIFICATE,
    ErrorKind.EXHAUSTED: Failure.EXHAUSTED,
    ErrorKind.RESET: Failure.RESET,
    ErrorKind.BAD_RESPONSE: Failure.BAD_RESPONSE,
    ErrorKind.FIRST_BYTE_TIMEOUT: Failure.FIRST_BYTE_TIMEOUT,
    ErrorKind.TRUNCATED: Failure.BROKEN_STREAM,
    ErrorKind.IDLE_TIMEOUT: Failure.BROKEN_STREAM,
}

_RETRY_CAUSE_OF = {
    Failure.UNREACHABLE: RetryCause.CONNECT,
    Failure.CONNECT_FAILED: RetryCause.CONNECT,
    Failure.BAD_CERTIFICATE: RetryCause.CONNECT,
    Failure.STALE_CONNECTION: RetryCause.REUSED_CONNECTION,
    Failure.RESET: RetryCause.RESET,
    Failure.BACK_PRESSURE: RetryCause.BACK_PRESSURE,
}


TRIAL_SECONDS = 3.0
"""How long one request may be the only one that a half-open backend gets."""

_STALE_SECONDS = 1.0
"""A reused connection that dies within this time was closing already; later, the backend may have worked."""


@dataclass(slots=True)
class Errand:
    """One request on its way: what came in, where the answer goes, and the record of it.

    target: path and query in origin form. policy: the one that was in force when the request came in.
    started_at: when its head had been read, in seconds of the handler's clock. forwarded: who the client is,
    where that has been judged. body and subject are set as soon as they are read.
    """

    request: ClientRequest
    target: bytes
    downstream: Downstream
    policy: RequestPolicy
    record: RequestRecord
    started_at: float
    forwarded: Forwarded | None = None
    body: RequestBody = field(init=False)
    subject: Subject = field(init=False)


class _AttemptFailedError(Exception):
    """An attempt ended without a byte for the client."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.value)
        self.failure = failure


class Dispatcher:
    """Sends errands to backends, each by its own policy."""

    def __init__(
        self,
        *,
        store: FleetSource,
        upstreams: Upstreams,
        clock: Callable[[], float],
        continuations: Continuations,
        gate: Gate,
        retry_budget: RetryBudget,
    ) -> None:
        self._store = store
        self._upstreams = upstreams
        self._clock = clock
        self._continuations = continuations
        self._gate = gate
        self._retry_budget = retry_budget

    async def dispatch(self, errand: Errand, query: Query) -> None:
        """Deliver a response for `errand`: a backend's, or an error."""
        record, replies = errand.record, errand.policy.replies
        strategy = errand.policy.decider.strategy
        last: Failure | None = None
        self._retry_budget.count_request(self._clock())
        continues = errand.subject.continues
        pinned = None if continues is None else await self._pinned(continues)
        attempt = self._attempt if record.trace is None else self._traced_attempt
        question = Question(query, strategy, pinned, errand.subject.stream)
        entry: Entry | Refusal | None = self._gate.enter_at_once(question)
        if entry is None:
            entry = await self._gate.enter(question, record)
        while isinstance(entry, Entry):
            with entry.lease as lease:
                decision = entry.decision
                lease.record = record
                record.expected_tokens = None if decision.visit is None else decision.visit.expected_tokens
                record.backend, record.reason = decision.member.backend.name, decision.reason
                record.home = decision.home
                record.attempts += 1
                if lease.on_trial:
                    lease.limit_trial(asyncio.get_running_loop(), TRIAL_SECONDS)
                if last is not None:
                    record.retry_causes += (_RETRY_CAUSE_OF[last],)
                try:
                    await attempt(errand, query, decision, lease)
                except _AttemptFailedError as error:
                    last = error.failure
                else:
                    return
            name = decision.member.name
            if last is Failure.BACK_PRESSURE:
                query = query.after_refusal(name)
            elif self._verdict(last, errand) is Verdict.NEXT_BACKEND:
                query = query.after_failure(name)
                if not self._may_retry(last, query, record):
                    break
            else:
                break
            query = query._replace(now=self._clock())
            question = Question(query, strategy, pinned, errand.subject.stream)
            entry = await self._gate.enter(question, record)
        if isinstance(entry, Refusal) and entry is not Refusal.UNROUTABLE:
            replies.fail_overload(record, errand.downstream, entry, self._gate.retry_after_seconds())
        elif last is None:
            replies.fail_unroutable(record, errand.downstream, self._store.fleet)
        else:
            # Somebody who is merely full can be asked again soon; that is what the client should hear.
            full = Failure.BACK_PRESSURE if query.refused else last
            replies.fail_upstream(record, errand.downstream, full)

    async def _pinned(self, continues: str) -> BackendName | None:
        """Return the backend that made the response which the request continues, if that is known."""
        await self._continuations.recall(continues)
        return self._continuations.backend(continues)

    def _may_retry(self, failure: Failure, query: Query, record: RequestRecord) -> bool:
        """Whether the fleet can bear another attempt; `query` is the one for it."""
        needs = Needs(query.model, query.failed | query.refused)
        if failure not in CHARGED or room_for(needs, self._store.fleet) is Room.NONE:
            return True  # it costs the fleet nothing, or there will be none
        if self._retry_budget.take(self._clock()):
            return True
        record.retry_denied = True
        return False

    async def _traced_attempt(self, errand: Errand, query: Query, decision: Decision, lease: Lease) -> None:
        """Do the same, and write down when and how it went. Raises what `_attempt` does."""
        tracing, trace = errand.policy.tracing, errand.record.trace
        assert tracing is not None
        assert trace is not None
        attempt = tracing.attempt(trace, decision, self._clock() - errand.started_at)
        try:
            await self._attempt(errand, query, decision, lease)
        except _AttemptFailedError as error:
            attempt.failure = error.failure.value
            raise
        finally:
            attempt.ended_seconds = self._clock() - errand.started_at

    async def _attempt(self, errand: Errand, query: Query, decision: Decision, lease: Lease) -> None:
        """Send to one backend and relay its answer. Raises _AttemptFailedError before the first byte."""
        upstream = self._upstreams.of(decision.member.backend)
        if upstream.address.path and has_dot_segments(errand.target):
            message = "The path must not contain . or .. segments."
            errand.policy.replies.fail(errand.record, errand.downstream, ErrorCode.BAD_REQUEST, message)
            return
        response = await self._send(errand, decision.member.backend, upstream)
        received = self._clock()
        backend = decision.member.backend
        record = errand.record
        if record.trace is not None:
            record.trace.attempts[-1].status = response.status
        if response.status in _BACK_PRESSURE:
            again = self._verdict(Failure.BACK_PRESSURE, errand) is Verdict.NEXT_BACKEND
            tried = query.failed | query.refused | {backend.name}
            again = again and bool(self._store.fleet.routable(query.model, tried))
            if again and self._may_retry(Failure.BACK_PRESSURE, query.after_refusal(backend.name), record):
                response.abort()
                raise _AttemptFailedError(Failure.BACK_PRESSURE)
        errand.body.release()
        record.status = response.status
        try:
            await self._relay(errand, decision, response, received, lease)
        except UpstreamError as error:
            self._store.report(backend, HealthEvent.REQUEST_BAD, error.kind.value, record.key)
            logger.warning("response of %s to %s broke off: %s", backend.name, record.request_id, error)
            record.outcome, record.error_code = Outcome.UPSTREAM_TRUNCATED, error.kind.value
            errand.downstream.abort()
        else:
            self._judge(backend, response.status, record)
        finally:
            response.abort()

    def _judge(self, backend: Backend, status: int, record: RequestRecord) -> None:
        """Tell the health table of a response that was delivered whole. Back-pressure is not judged."""
        if status in _BACK_PRESSURE or status == HTTPStatus.NOT_IMPLEMENTED:
            return
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._store.report(backend, HealthEvent.REQUEST_BAD, f"status {status}", record.key)
        else:
            self._store.report(backend, HealthEvent.REQUEST_OK)

    async def _send(self, errand: Errand, backend: Backend, upstream: Upstream) -> Response:
        began = self._clock()
        request, record, body = errand.request, errand.record, errand.body
        method = request.method.encode()
        ends_here, trace_lines = _named(request.headers.getall("Connection", ())), b""
        if record.trace is not None:
            ends_here, trace_lines = ends_here | TRACE_HEADERS, lines_for_backend(record.trace)
        authorization = upstream.authorization
        if authorization is None and errand.policy.drops_credentials:
            authorization = b""
        head = request_head(
            method,
            upstream.target(errand.target),
            request.raw_headers,
            host=upstream.address.host_header,
            body_length=body.length,
            request_id=record.request_id.encode(),
            client_address=request.remote.encode(),
            client_host=_raw(request.headers.get("Host")),
            client_scheme=request.scheme,
            authorization=authorization,
            forwarded=errand.forwarded,
            named=ends_here,
            added=trace_lines,
        )
        sent_at = self._clock()
        record.router_seconds += sent_at - began
        fresh = False
        while True:
            try:
                return await upstream.pool.send(
                    method, head, body.wire(), fresh=fresh, timeouts=errand.policy.timeouts
                )
            except UpstreamError as error:
                failure = _FAILURE_OF[error.kind]
                at_once = self._clock() - sent_at < _STALE_SECONDS
                if failure is Failure.RESET and error.reused and (at_once or errand.subject.repeatable):
                    failure = Failure.STALE_CONNECTION
                if self._verdict(failure, errand) is Verdict.SAME_BACKEND:
                    record.retry_causes += (RetryCause.REUSED_CONNECTION,)
                    fresh = True
                    continue
                if failure is Failure.UNREACHABLE:
                    self._store.report(backend, HealthEvent.UNREACHABLE, error.detail)
                elif failure is not Failure.EXHAUSTED:
                    self._store.report(backend, HealthEvent.REQUEST_BAD, error.detail, record.key)
                logger.info("%s failed for %s: %s", backend.name, record.request_id, error)
                raise _AttemptFailedError(failure) from error

    def _verdict(self, failure: Failure, errand: Errand) -> Verdict:
        return verdict(
            failure,
            attempt=errand.record.attempts,
            max_attempts=errand.policy.max_attempts,
            replayable=errand.body.replayable,
            repeatable=errand.subject.repeatable,
        )

    async def _relay(
        self, errand: Errand, decision: Decision, response: Response, received: float, lease: Lease
    ) -> None:
        record, downstream = errand.record, errand.downstream
        watch = response_observer(response.content_type, response.content_encoding, response.status)
        named = named_by_connection(response.connection) if response.connection else _NONE
        if errand.policy.cors is not None:
            named |= CORS_HEADERS
        lines = response_lines(response.headers, named) + errand.policy.replies.lines(record, decision)
        downstream.start(response.status, response.reason, lines, response.content_length)
        if not response.waiting:
            downstream.flush()
        record.router_seconds += self._clock() - received
        name = decision.member.name
        relay = Relay(
            record,
            downstream,
            lease,
            watch,
            self._clock,
            errand.started_at,
            lambda response_id: self._continuations.remember(response_id, name),
        )
        try:
            while not await response.pour(relay.take):
                await downstream.drain()
            relay.end()
            downstream.finish()
            record.outcome = Outcome.COMPLETED
        finally:
            relay.end()


def _named(values: Collection[str]) -> frozenset[bytes]:
    if not values:
        return _NONE
    return named_by_connection(value.encode("utf-8", "surrogateescape") for value in values)


def _raw(value: str | None) -> bytes | None:
    return None if value is None else value.encode("utf-8", "surrogateescape")
