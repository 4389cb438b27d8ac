"""Which backends answer cold although they should be warm: the evidence, and when to speak of it.

One surprise means little: two requests with one beginning may arrive together, and an engine evicts what it
likes. So each backend is judged by its last `WINDOW_REQUESTS` answers that should have been warm, that is, of
which `SURPRISE_TOKENS` or more were expected to be cached. Half of them cold begins a spell; a fifth or less
ends it, so that a backend in between does not flicker. A strategy that learns soon expects nothing of a cold
backend, and then there is no new evidence for or against it: evidence of which the newest is older than
`FORGET_SECONDS` is dropped, which ends a spell as well.

Pure: time comes in as an argument. O(1) for each request, and one small object for each backend of the fleet.
Never keeps anything of a request but whether it was cold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefix_router.observe.expectation import SURPRISE_TOKENS, Comparison, Surprise

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefix_router.routing.fleet import BackendName

WINDOW_REQUESTS = 20
BEGIN_REQUESTS = 10
"""So many cold ones of the last `WINDOW_REQUESTS` begin a spell. Fewer than that are never spoken of."""
END_REQUESTS = 4
"""So many, or fewer, end it."""
REPEAT_SECONDS = 60.0
"""At most once in so many seconds is a backend's spell spoken of."""
FORGET_SECONDS = 300.0

_WINDOW_MASK = (1 << WINDOW_REQUESTS) - 1


@dataclass(frozen=True, slots=True)
class Finding:
    """What there is to say: of the last `requests` answers that should have been warm, `cold` were cold.

    over: whether this is the end of a spell that was spoken of.
    """

    cold: int
    requests: int
    over: bool


@dataclass(slots=True, eq=False)
class _Window:
    """The last answers of one backend, newest in the lowest bit; set for cold ones."""

    answers: int = 0
    requests: int = 0
    newest_at: float = float("-inf")
    spoken_at: float = float("-inf")
    spoken: bool = False

    def take(self, *, cold: bool, now: float) -> None:
        """Add one answer."""
        self.answers = (self.answers << 1 | cold) & _WINDOW_MASK
        self.requests = min(self.requests + 1, WINDOW_REQUESTS)
        self.newest_at = now

    def empty(self) -> None:
        """Drop all answers. When was last spoken of them is kept: that limit holds for the backend."""
        self.answers = self.requests = 0


class ColdSpells:
    """Judges the backends of the fleet."""

    def __init__(self) -> None:
        self._windows: dict[BackendName, _Window] = {}

    def set_backends(self, names: Iterable[BackendName]) -> None:
        """Judge exactly these backends from now on; those that stay keep their evidence."""
        self._windows = {name: self._windows.get(name) or _Window() for name in names}

    def note(self, name: BackendName, comparison: Comparison, now: float) -> Finding | None:
        """Take one answer as evidence. Returns what is to be said now, None for nothing.

        A backend outside the fleet (it left while its last request ran) is not judged.
        """
        window = self._windows.get(name)
        if window is None:
            return None
        if now - window.newest_at > FORGET_SECONDS:
            window.empty()
        should_be_warm = comparison.expected >= SURPRISE_TOKENS
        if should_be_warm:
            window.take(cold=comparison.surprise is Surprise.COLD, now=now)
        cold = window.answers.bit_count()
        if window.spoken and cold <= END_REQUESTS:
            window.spoken = False
            return Finding(cold, window.requests, over=True)
        if should_be_warm and cold >= BEGIN_REQUESTS and now - window.spoken_at >= REPEAT_SECONDS:
            window.spoken, window.spoken_at = True, now
            return Finding(cold, window.requests, over=False)
        return None

    def restarted(self, name: BackendName) -> None:
        """Drop the evidence about an engine that is gone; its successor is another one, and rightly cold."""
        window = self._windows.get(name)
        if window is not None:
            window.empty()
            window.spoken = False
