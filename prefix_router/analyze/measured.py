"""What the fleet does today, as far as a capture has measured it: hit rate and time to first token."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prefix_router.fleetsim.result import QUANTILES, quantile

if TYPE_CHECKING:
    from prefix_router.analyze.record import RecordedRequest


@dataclass(slots=True)
class Measured:
    """Adds up. counted_tokens, cached_tokens: of requests that say both. estimated_tokens: the estimate for
    them.
    """

    counted_tokens: int = 0
    cached_tokens: int = 0
    estimated_tokens: int = 0
    first_token_seconds: array[float] = field(default_factory=lambda: array("d"))

    def add(self, request: RecordedRequest) -> None:
        """Take what a request says."""
        if request.counted_tokens is not None and request.cached_tokens is not None:
            self.counted_tokens += request.counted_tokens
            self.cached_tokens += request.cached_tokens
            self.estimated_tokens += request.tokens
        if request.first_token_seconds is not None:
            self.first_token_seconds.append(request.first_token_seconds)

    @property
    def hit_rate(self) -> float | None:
        """Share of the prompt tokens that were cached; None when no request says."""
        return self.cached_tokens / self.counted_tokens if self.counted_tokens else None

    @property
    def tokens_per_estimate(self) -> float | None:
        """Tokens as engines counted them for each one that was estimated; None when no request says."""
        return self.counted_tokens / self.estimated_tokens if self.estimated_tokens else None

    def ttft_ms(self) -> dict[str, float | None]:
        """Quantiles of the time to first token, as in a row of the simulator."""
        ascending = sorted(self.first_token_seconds)
        found = {name: quantile(ascending, share) for name, share in QUANTILES.items()}
        return {name: None if value is None else round(value * 1e3, 2) for name, value in found.items()}
