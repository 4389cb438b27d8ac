"""The verdict: what to expect, in a word and a sentence. It must be as ready to say "little" as "a lot".

What counts is not how much recurs but how much more of it the router finds than chance does: where
everybody begins with one system prompt, nearly all recurs, and every replica has it anyway. `SCALE` and the
numbers below it are all there is to judge by.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, Any]


class Expectation(Enum):
    """What to expect of prefix-aware routing."""

    LITTLE = "little"
    SOME = "some"
    MUCH = "much"
    A_LOT = "a lot"


SCALE = (
    # Prompt tokens that the router finds and chance does not, as a share of all: at least this much.
    (0.40, Expectation.A_LOT),
    (0.15, Expectation.MUCH),
    (0.05, Expectation.SOME),
)
"""From which gain on to expect what; below the last, little."""

LITTLE_RECURS = 0.05
"""Below this share of recurring tokens nothing else needs to be looked at."""

FEW_REQUESTS = 200
"""With fewer requests the numbers are anecdotes."""

CLEAR_FACTOR = 1.10
"""Times to first token that differ by this factor are worth a word."""

KEEPS_UP = 0.95
"""Of the other's throughput: who has less cannot take the load, and its times only say how long the run
was.
"""

AS_MANY_HITS = 0.95
"""Of the recommended hit rate: what a strategy needs to be called better for its times."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """expectation: in a word. headline, sentence: for people, the second goes on where the first ends.
    remarks: what must be said along with it. gained: share of the prompt tokens that is found beyond
    chance."""

    expectation: Expectation
    headline: str
    sentence: str
    gained: float
    remarks: tuple[str, ...] = ()


def judge(
    recurring_share: float, requests: int, baseline: Row, recommended: Row, others: Sequence[Row] = ()
) -> Verdict:
    """The verdict on traffic.

    recurring_share: of its prompt tokens. requests: that were simulated. baseline, recommended, others:
    rows of one load; others are ways to route that the recommendation leaves aside.
    """
    gained = round(recommended["hit_rate"] - baseline["hit_rate"], 4)
    expectation = Expectation.LITTLE
    if recurring_share >= LITTLE_RECURS:
        expectation = next((word for least, word in SCALE if gained >= least), Expectation.LITTLE)
    headline = f"Expect {expectation.value}: {_percent(recurring_share)} of your prompt tokens recur"
    if expectation is Expectation.LITTLE and recurring_share >= LITTLE_RECURS:
        headline += ", but chance finds nearly as many of them"
    return Verdict(
        expectation,
        headline,
        _sentence(baseline, recommended),
        gained,
        (*_few(requests), *_slower(baseline, recommended), *_better(recommended, others)),
    )


def _sentence(baseline: Row, recommended: Row) -> str:
    names = recommended["strategy"], baseline["strategy"]
    hits = f"{names[0]} finds {_percent(recommended['hit_rate'])} in a cache"
    parts = [f"{hits} where {names[1]} finds {_percent(baseline['hit_rate'])}"]
    times = []
    for percentile, name in (("p50", "median"), ("p99", "P99")):
        before, after = baseline["ttft_ms"][percentile], recommended["ttft_ms"][percentile]
        if before and after:
            times.append(f"{name} {before:,.0f} → {after:,.0f} ms")
    if times:
        parts.append(f"time to first token: {', '.join(times)}")
    return f"{'; '.join(parts)}."


def _percent(share: float) -> str:
    """Whole percents, except where they would hide that there is something."""
    return f"{share:.1%}" if 0 < share < 0.01 else f"{share:.0%}"


def _few(requests: int) -> list[str]:
    few = f"Only {requests:,} requests were simulated: take this as a first impression."
    return [few] if requests < FEW_REQUESTS else []


def _slower(baseline: Row, recommended: Row) -> list[str]:
    """What is to be said of the times of the two."""
    name = baseline["strategy"]
    done, needed = (row["throughput_tokens_per_second"] for row in (baseline, recommended))
    if done < KEEPS_UP * needed:
        said = f"{name} cannot keep up with this load ({done:,.0f} of {needed:,.0f} tokens a second)"
        return [f"{said}: its times say how long the run was, and have no size of their own."]
    before, after = baseline["ttft_ms"]["p99"], recommended["ttft_ms"]["p99"]
    if before and after and after > CLEAR_FACTOR * before:
        said = f"P99 {before:,.0f} ms → {after:,.0f} ms"
        return [f"The slowest first tokens come later than with {name}: {said}."]
    return []


def _better(recommended: Row, others: Sequence[Row]) -> list[str]:
    """Who has clearly sooner first tokens, in the middle or at the end, with about as many hits."""
    remarks = []
    for row in others:
        if row["hit_rate"] < AS_MANY_HITS * recommended["hit_rate"]:
            continue
        ahead = []
        for percentile in ("p50", "p99"):
            ours, theirs = recommended["ttft_ms"][percentile], row["ttft_ms"][percentile]
            if ours and theirs and theirs * CLEAR_FACTOR < ours:
                ahead.append(f"{percentile.upper()} {ours:,.0f} ms → {theirs:,.0f} ms")
        if ahead:
            remarks.append(f"{row['strategy']} brings first tokens sooner still: {', '.join(ahead)}.")
    return remarks
