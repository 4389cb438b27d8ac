"""What the router itself says to a client: its few answers, and every error of its own.

Errors are OpenAI-shaped JSON (Anthropic's shape on `/v1/messages`) with a code from a closed set; the same
code is the metric label. An error that comes after the response has begun cannot be said any more: the
response is broken off instead.
"""

from __future__ import annotations

from http import HTTPStatus

from prefix_router.observe.events import Outcome, RequestRecord
from prefix_router.openai_api.errors import ErrorCode
from prefix_router.proxy.downstream import Downstream
from prefix_router.proxy.gate import Refusal
from prefix_router.proxy.local_answers import Answer
from prefix_router.routing.decision import Decision, Reason
from prefix_router.routing.fleet import Fleet
from prefix_router.routing.retry import Failure

RETRY_AFTER_SECONDS = 1
"""What a 503 recommends: probes look at a backend that is out of service about once a second."""

_UPSTREAM_ERRORS = {
    Failure.FIRST_BYTE_TIMEOUT: (ErrorCode.BACKEND_TIMEOUT, "The backend did not answer in time"),
    Failure.BAD_RESPONSE: (ErrorCode.BACKEND_BAD_RESPONSE, "The backend's answer is not valid HTTP"),
    Failure.BAD_CERTIFICATE: (
        ErrorCode.BACKEND_BAD_CERTIFICATE,
        "The backend's certificate is not accepted, or it does not accept the router's",
    ),
    Failure.EXHAUSTED: (ErrorCode.NO_BACKEND_AVAILABLE, "The router has no socket left"),
    Failure.BACK_PRESSURE: (ErrorCode.NO_BACKEND_AVAILABLE, "All backends that can answer are full"),
}
_OVERLOAD_ERRORS = {
    Refusal.QUEUE_FULL: (
        ErrorCode.QUEUE_FULL,
        "The backends are at their limits, and as many requests wait as queue.max_waiting allows.",
    ),
    Refusal.QUEUE_TIMEOUT: (
        ErrorCode.QUEUE_TIMEOUT,
        "The backends are at their limits; no place became free within queue.timeout_seconds.",
    ),
}
_TRY_AGAIN_STATUSES = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_REASONS = {reason: reason.value.encode() for reason in Reason}
_UNREACHABLE = (ErrorCode.BACKEND_UNREACHABLE, "No backend could be reached")


class Replies:
    """Writes the router's own responses. decision_headers: whether responses name backend and reason."""

    def __init__(self, *, decision_headers: bool) -> None:
        self._decision_headers = decision_headers

    def lines(self, record: RequestRecord, decision: Decision | None) -> bytes:
        """Return the header lines that the router adds to every response."""
        request_id = record.request_id.encode()
        if decision is None or not self._decision_headers:
            return b"x-request-id: %b\r\n" % request_id
        return b"x-request-id: %b\r\nx-prefix-router-backend: %b\r\nx-prefix-router-reason: %b\r\n" % (
            request_id,
            decision.member.backend.name.encode(),
            _REASONS[decision.reason],
        )

    def answer(self, record: RequestRecord, downstream: Downstream, answer: Answer) -> None:
        """Send an answer of the router's own."""
        record.status, record.outcome = answer.status, answer.outcome
        record.api = answer.subject.api
        self._send(record, downstream, answer.status, answer.body, answer.headers)

    def answer_preflight(self, record: RequestRecord, downstream: Downstream, lines: bytes) -> None:
        """Answer a browser that asks what a page may do. lines: of `proxy.cors`."""
        record.status, record.outcome = HTTPStatus.NO_CONTENT.value, Outcome.ANSWERED
        downstream.send(record.status, b"No Content", lines + self.lines(record, None), b"")

    def fail(
        self,
        record: RequestRecord,
        downstream: Downstream,
        code: ErrorCode,
        message: str,
        outcome: Outcome = Outcome.REJECTED,
        retry_after_seconds: int = RETRY_AFTER_SECONDS,
    ) -> None:
        """Answer with an error, or break off an answer that has begun.

        retry_after_seconds: what a 503 or 429 recommends.
        """
        record.outcome, record.error_code = outcome, code.value
        if downstream.started:
            downstream.abort()
            return
        record.status = code.status
        if downstream.gone:
            record.outcome = Outcome.CLIENT_DISCONNECTED
            return
        headers: tuple[tuple[bytes, bytes], ...] = ()
        if code.status in _TRY_AGAIN_STATUSES:
            headers = ((b"Retry-After", b"%d" % retry_after_seconds),)
        elif code is ErrorCode.INVALID_API_KEY:
            headers = ((b"WWW-Authenticate", b"Bearer"),)
        if self._decision_headers:
            # Where a backend answers, this header says why it was chosen; here, why none was.
            headers += ((b"x-prefix-router-reason", code.value.encode()),)
        body = code.body(message, anthropic=record.api == "messages")
        self._send(record, downstream, code.status, body, headers)

    def fail_unroutable(self, record: RequestRecord, downstream: Downstream, fleet: Fleet) -> None:
        """Say that no backend can take the request, and what is the matter with them."""
        if not fleet.members:
            self.fail(record, downstream, ErrorCode.NO_BACKEND_CONFIGURED, "No backend is configured.")
            return
        states = [
            "draining" if member.draining else member.state.value
            for member in fleet.members
            if member.serves(record.model)
        ]
        counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        message = f"No backend can take this request now ({counts}). Try again shortly."
        self.fail(record, downstream, ErrorCode.NO_BACKEND_AVAILABLE, message)

    def fail_overload(
        self, record: RequestRecord, downstream: Downstream, refusal: Refusal, retry_after_seconds: int
    ) -> None:
        """Say that limits of the router's own are reached, and when to come again."""
        code, message = _OVERLOAD_ERRORS[refusal]
        self.fail(record, downstream, code, message, retry_after_seconds=retry_after_seconds)

    def fail_upstream(self, record: RequestRecord, downstream: Downstream, failure: Failure) -> None:
        """Say that backends were tried in vain; `failure` is what the last one did."""
        code, what = _UPSTREAM_ERRORS.get(failure, _UNREACHABLE)
        attempts = f"after {record.attempts} attempt{'s' if record.attempts > 1 else ''}"
        self.fail(record, downstream, code, f"{what} ({attempts}).", Outcome.UPSTREAM_FAILED)

    def _send(
        self,
        record: RequestRecord,
        downstream: Downstream,
        status: int,
        body: bytes,
        headers: tuple[tuple[bytes, bytes], ...],
    ) -> None:
        phrase = HTTPStatus(status).phrase.encode()
        own = b"".join([b"%b: %b\r\n" % pair for pair in ((b"Content-Type", b"application/json"), *headers)])
        downstream.send(status, phrase, own + self.lines(record, None), body)
