"""What a strategy expected a backend to have cached, against what the backend's engine said it had.

A strategy counts in the tokens of the prompt chain, which are estimates; an engine counts in its own. Only
shares of the prompt can be compared, so the expectation is scaled to the length that the engine reports. What
is left of the difference is noise (the resolution of the chain, the engine's blocks, a last block that is
computed in any case) up to `SURPRISE_TOKENS`, and a surprise from there on.

Pure; O(1).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from prefix_router.observe.events import RequestRecord

SURPRISE_TOKENS = 256
"""From this difference on, the router's view of a backend's cache was wrong. Less is also not worth much."""


class Surprise(Enum):
    """In which direction an expectation was wrong. The values are metric labels."""

    __hash__ = object.__hash__  # members are compared by identity; Enum's own hash is a call in Python

    COLD = "cold"
    """The backend had less cached than expected."""
    WARM = "warm"
    """The backend had more cached than expected."""


class Comparison(NamedTuple):
    """Cached tokens of one request, expected and observed, both in the tokens of the backend's engine."""

    expected: int
    observed: int

    @property
    def surprise(self) -> Surprise | None:
        """The direction in which the expectation was wrong; None where it was right."""
        missing = self.expected - self.observed
        if missing >= SURPRISE_TOKENS:
            return Surprise.COLD
        return Surprise.WARM if -missing >= SURPRISE_TOKENS else None


def compare(event: RequestRecord) -> Comparison | None:
    """Return both counts of one finished request; None where one of them is not known."""
    expected, length = event.expected_tokens, event.prompt_length
    prompt, cached = event.prompt_tokens, event.cached_tokens
    if expected is None or not length or prompt is None or cached is None:
        return None
    return Comparison(min(round(expected * prompt / length), prompt), cached)
