"""The record of one request while it lives: what was decided, when things happened, how it ended.

Each step writes what it knows; `finished` turns the record into the one event that metrics, log line and
span are made from. It holds no prompt text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from prefix_router.observe.events import Outcome, RequestFinished, RetryCause
from prefix_router.openai_api.usage import Usage
from prefix_router.proxy.decider import Subject
from prefix_router.routing.decision import Decision

_UNREAD = Subject()


@dataclass(slots=True)
class Exchange:
    """Mutable scope of one request; times are seconds of the handler's clock."""

    started_at: float
    request_id: str
    method: str
    path: str
    subject: Subject = _UNREAD
    decision: Decision | None = None
    attempts: int = 0
    retry_causes: list[RetryCause] = field(default_factory=list)
    retry_denied: bool = False
    queue_seconds: float | None = None
    status: int = 0
    outcome: Outcome = Outcome.REJECTED
    error_code: str | None = None
    request_bytes: int = 0
    router_seconds: float = 0.0
    first_byte_at: float | None = None
    first_token_at: float | None = None
    usage: Usage | None = None

    def finished(self, now: float, response_bytes: int) -> RequestFinished:
        """Return the event for this request, ended at `now`."""
        decision, usage = self.decision, self.usage
        return RequestFinished(
            request_id=self.request_id,
            method=self.method,
            path=self.path,
            api=self.subject.api,
            model=self.subject.model,
            stream=self.subject.stream,
            status=self.status,
            outcome=self.outcome,
            backend=decision.member.name if decision else None,
            reason=decision.reason if decision else None,
            home=decision.home if decision else None,
            key=self.subject.key,
            attempts=self.attempts,
            retry_causes=tuple(self.retry_causes),
            request_bytes=self.request_bytes,
            response_bytes=response_bytes,
            duration_seconds=now - self.started_at,
            router_seconds=self.router_seconds,
            first_byte_seconds=self._since_start(self.first_byte_at),
            first_token_seconds=self._since_start(self.first_token_at),
            prompt_tokens=usage.prompt_tokens if usage else None,
            cached_tokens=usage.cached_tokens if usage else None,
            completion_tokens=usage.completion_tokens if usage else None,
            error_code=self.error_code,
            queue_seconds=self.queue_seconds,
            retry_denied=self.retry_denied,
        )

    def _since_start(self, at: float | None) -> float | None:
        return None if at is None else at - self.started_at
