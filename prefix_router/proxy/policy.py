"""What the configuration says about a request, as one immutable value.

A request takes the policy once, when its head has been read, and ends under it: attempts, limits and timeouts
of one request never come from two configurations. A reload builds the next policy aside and puts it in place
by one assignment (`Handler.policy`), so no request ever sees half of a change and none takes a lock.

What is here must not hold state of single requests. State that outlives a configuration (the turns of
`round_robin`) lives in the strategy object, which the next policy may carry on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefix_router.openai_api.forwarded import TrustedProxies
    from prefix_router.proxy.clients import Clients
    from prefix_router.proxy.cors import Cors
    from prefix_router.proxy.decider import Decider
    from prefix_router.proxy.replies import Replies
    from prefix_router.proxy.tracing import Tracing
    from prefix_router.routing.admission import AdmissionLimits
    from prefix_router.routing.retry_budget import RetryAllowance
    from prefix_router.tls import Tls
    from prefix_router.upstream.pool import Timeouts


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What a client may send, and how slow it may be (seconds, 0 for no bound).

    body_idle_seconds: how long it may pause in its body. write_seconds: how long it may take nothing of a
    response that waits for it.
    """

    max_body_bytes: int
    body_idle_seconds: float
    write_seconds: float


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How requests are read, decided, sent and answered.

    timeouts: of the exchange with a backend. max_attempts: backends that one request may be sent to.
    records_chains: whether the chain of a prompt is wanted in the record of its request.
    tracing: how requests are traced, None for not at all.
    admission, retry_allowance: what all requests together may take; they hold for those under way as well.
    proxies: whose word about clients is taken, None to judge nobody. cors: which pages may call from a
    browser, None to leave that to backends. drops_credentials: whether the client's keys were for the router,
    and go no further. clients: who may send requests, None for everybody. listener_tls, backend_tls: what is
    spoken with whoever is connected to from now on; None for plain HTTP, and for the system's authorities.
    """

    decider: Decider
    replies: Replies
    limits: RequestLimits
    timeouts: Timeouts
    max_attempts: int
    records_chains: bool
    admission: AdmissionLimits
    retry_allowance: RetryAllowance
    tracing: Tracing | None = None
    proxies: TrustedProxies | None = None
    cors: Cors | None = None
    drops_credentials: bool = False
    clients: Clients | None = None
    listener_tls: Tls | None = None
    backend_tls: Tls | None = None
