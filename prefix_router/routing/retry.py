"""What to do after a failed attempt, as a table.

The rule behind the table: a request is sent again only while its client has not seen a byte of an
answer, and, once a backend may have begun to work on it, only if doing the work twice does no harm.
A timeout is not repeated: the next backend would need as long, and the fleet would do the work twice
just when it is slow.
"""

from __future__ import annotations

from enum import Enum

MAX_WORKED_ATTEMPTS = 2
"""Backends that may break over one request after having got it whole: a prompt that crashes engines must not
be carried through the fleet."""


class Failure(Enum):
    """How an attempt ended."""

    UNREACHABLE = "unreachable"
    CONNECT_FAILED = "connect_failed"
    BAD_CERTIFICATE = "bad_certificate"
    """One side does not accept the other's certificate: no work was done."""
    EXHAUSTED = "exhausted"
    """The router has no socket left: the next backend would meet the same."""
    STALE_CONNECTION = "stale_connection"
    """A reused connection ended before any response byte: most likely it was already closing."""
    RESET = "reset"
    """A fresh connection ended before any response byte."""
    BAD_RESPONSE = "bad_response"
    """Part of a response head, or bytes that are none: the backend has answered, if badly."""
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    BACK_PRESSURE = "back_pressure"
    """Answered 503 or 429: alive, but full."""
    BROKEN_STREAM = "broken_stream"
    """Ended after the first response byte went to the client."""


class Verdict(Enum):
    """What to do next."""

    SAME_BACKEND = "same_backend"
    """Send again to the same backend on a fresh connection."""
    NEXT_BACKEND = "next_backend"
    GIVE_UP = "give_up"


class _Needs(Enum):
    NOTHING = 0
    REPLAY = 1
    """The body is still at hand."""
    REPEAT = 2
    """The body is still at hand, and the work may be done twice."""


_TABLE: dict[Failure, tuple[Verdict, _Needs]] = {
    Failure.UNREACHABLE: (Verdict.NEXT_BACKEND, _Needs.NOTHING),
    Failure.CONNECT_FAILED: (Verdict.NEXT_BACKEND, _Needs.NOTHING),
    Failure.BAD_CERTIFICATE: (Verdict.NEXT_BACKEND, _Needs.REPLAY),
    Failure.EXHAUSTED: (Verdict.GIVE_UP, _Needs.NOTHING),
    Failure.STALE_CONNECTION: (Verdict.SAME_BACKEND, _Needs.REPLAY),
    Failure.RESET: (Verdict.NEXT_BACKEND, _Needs.REPEAT),
    Failure.BAD_RESPONSE: (Verdict.GIVE_UP, _Needs.NOTHING),
    Failure.FIRST_BYTE_TIMEOUT: (Verdict.GIVE_UP, _Needs.NOTHING),
    Failure.BACK_PRESSURE: (Verdict.NEXT_BACKEND, _Needs.REPLAY),
    Failure.BROKEN_STREAM: (Verdict.GIVE_UP, _Needs.NOTHING),
}


def verdict(
    failure: Failure, *, attempt: int, max_attempts: int, replayable: bool, repeatable: bool
) -> Verdict:
    """Say what follows a failed attempt.

    attempt: how many backends have been tried, 1 after the first. replayable: the request body can be
    sent again. repeatable: doing the work twice does no harm (an inference request, or a safe method).
    A stale connection is not a failed attempt: it is answered by a fresh one whatever the count, and a
    fresh connection cannot be stale.
    """
    action, needs = _TABLE[failure]
    if action is Verdict.SAME_BACKEND:
        return action if replayable else Verdict.GIVE_UP
    if action is Verdict.GIVE_UP or attempt >= max_attempts:
        return Verdict.GIVE_UP
    if needs is not _Needs.NOTHING and not replayable:
        return Verdict.GIVE_UP
    if needs is _Needs.REPEAT and (not repeatable or attempt >= MAX_WORKED_ATTEMPTS):
        return Verdict.GIVE_UP
    return action
