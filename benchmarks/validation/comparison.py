"""Request by request: what vLLM said and what the model said."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.validation.served import Predicted, Served

SHOWN_MISMATCHES = 50
"""How many are listed. One of them can shift the evictions of all that follow."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A request about which the two disagree. Tokens; replicas are None where there was no router."""

    number: int
    kind: str
    prompt_tokens: int
    vllm_cached_tokens: int
    model_cached_tokens: int
    vllm_backend: str | None
    model_backend: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came out of comparing a sequence.

    with_hits: requests of which vLLM had something cached. by_kind: kind -> (matches, requests).
    """

    requests: int
    matches: int
    with_hits: int
    prompt_tokens: int
    cached_tokens: int
    by_kind: dict[str, tuple[int, int]]
    mismatches: tuple[Mismatch, ...]

    def document(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "requests": self.requests,
            "matches": self.matches,
            "requests_with_hits": self.with_hits,
            "prompt_tokens": self.prompt_tokens,
            "vllm_cached_tokens": self.cached_tokens,
            "by_kind": {
                kind: {"matches": matches, "requests": requests}
                for kind, (matches, requests) in self.by_kind.items()
            },
            "mismatches": [
                {name: getattr(mismatch, name) for name in Mismatch.__slots__}
                for mismatch in self.mismatches[:SHOWN_MISMATCHES]
            ],
        }


def compare(served: Sequence[Served], predicted: Sequence[Predicted]) -> Comparison:
    """Compare replica and cached tokens of each request. Raises ValueError unless both are of one length."""
    mismatches = []
    asked: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for real, model in zip(served, predicted, strict=True):
        kind = real.kind.value
        asked[kind] += 1
        if (real.cached_tokens, real.backend) == (model.cached_tokens, model.backend):
            continue
        missed[kind] += 1
        mismatches.append(
            Mismatch(
                real.number,
                kind,
                len(real.prompt),
                real.cached_tokens,
                model.cached_tokens,
                real.backend,
                model.backend,
            )
        )
    return Comparison(
        requests=len(served),
        matches=len(served) - len(mismatches),
        with_hits=sum(real.cached_tokens > 0 for real in served),
        prompt_tokens=sum(len(real.prompt) for real in served),
        cached_tokens=sum(real.cached_tokens for real in served),
        by_kind={kind: (asked[kind] - missed[kind], asked[kind]) for kind in sorted(asked)},
        mismatches=tuple(mismatches),
    )
