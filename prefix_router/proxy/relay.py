"""Body bytes on their way from a backend to its client, in the callback of the backend's socket.

No task wakes up for them: `take` writes them, looks at them from the side, and notes when the first ones
came. It runs for every piece of every stream, so it must stay short.
"""

from __future__ import annotations

from collections.abc import Callable

from prefix_router.observe.events import Outcome, RequestRecord
from prefix_router.openai_api.observer import ResponseObserver
from prefix_router.proxy.downstream import Downstream
from prefix_router.proxy.lease import Lease


class Relay:
    """Passes the body of one response on."""

    __slots__ = (
        "_clock",
        "_downstream",
        "_ended",
        "_lease",
        "_record",
        "_remember",
        "_started_at",
        "_watch",
    )

    def __init__(
        self,
        record: RequestRecord,
        downstream: Downstream,
        lease: Lease,
        watch: ResponseObserver,
        clock: Callable[[], float],
        started_at: float,
        remember: Callable[[str], None],
    ) -> None:
        """started_at: when the head of the request had been read, in seconds of `clock`.

        remember: takes the id of a response that can be continued.
        """
        self._record = record
        self._downstream = downstream
        self._lease = lease
        self._watch = watch
        self._clock = clock
        self._started_at = started_at
        self._remember = remember
        self._ended = False

    def take(self, chunk: bytes, last: bool) -> bool:
        """Pass the next bytes on; return whether the client takes more at once.

        Raises ConnectionResetError when the client has gone.
        """
        record, watch = self._record, self._watch
        if last:
            # A client may go on from a response as soon as it has it: what the response says is noted before.
            watch.feed(chunk)
            self.end()
            more = self._downstream.put(chunk, last)
        else:
            more = self._downstream.put(chunk)
            watch.feed(chunk)
        if record.first_byte_seconds is None:
            record.first_byte_seconds = self._clock() - self._started_at
            self._lease.prove()
        if record.first_token_seconds is None and watch.first_content:
            now = self._clock()
            record.first_token_seconds = now - self._started_at
            self._lease.first_token(now)
        if watch.terminal:
            # A client that closes right after the last event has got what it asked for.
            record.outcome = Outcome.COMPLETED
            self._note_id()
        return more

    def end(self) -> None:
        """Note what the whole of the body says, as far as it came. Further calls do nothing."""
        if self._ended:
            return
        self._ended = True
        self._watch.finish()
        usage, record = self._watch.usage, self._record
        if usage is not None:
            record.prompt_tokens, record.cached_tokens = usage.prompt_tokens, usage.cached_tokens
            record.completion_tokens = usage.completion_tokens
        self._note_id()

    def _note_id(self) -> None:
        if self._watch.response_id is not None:
            self._remember(self._watch.response_id)
