"""Body bytes on their way from a backend to its client, in the callback of the backend's socket.

No task wakes up for them: `take` writes them, looks at them from the side, and notes when the first ones
came. It runs for every piece of every stream, so it must stay short.
"""

from __future__ import annotations

from collections.abc import Callable

from prefix_router.observe.events import Outcome
from prefix_router.openai_api.observer import ResponseObserver
from prefix_router.proxy.downstream import Downstream
from prefix_router.proxy.exchange import Exchange
from prefix_router.proxy.lease import Lease


class Relay:
    """Passes the body of one response on."""

    __slots__ = ("_clock", "_downstream", "_exchange", "_lease", "_watch")

    def __init__(
        self,
        exchange: Exchange,
        downstream: Downstream,
        lease: Lease,
        watch: ResponseObserver,
        clock: Callable[[], float],
    ) -> None:
        self._exchange = exchange
        self._downstream = downstream
        self._lease = lease
        self._watch = watch
        self._clock = clock

    def take(self, chunk: bytes, last: bool) -> bool:
        """Pass the next bytes on; return whether the client takes more at once.

        Raises ConnectionResetError when the client has gone.
        """
        more = self._downstream.put(chunk, last)
        exchange, watch = self._exchange, self._watch
        if exchange.first_byte_at is None:
            exchange.first_byte_at = self._clock()
            self._lease.prove()
        watch.feed(chunk)
        if exchange.first_token_at is None and watch.first_content:
            exchange.first_token_at = self._clock()
        if watch.terminal:
            # A client that closes right after the last event has got what it asked for.
            exchange.outcome = Outcome.COMPLETED
        return more
