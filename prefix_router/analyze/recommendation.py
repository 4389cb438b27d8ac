"""Which prefix length and which concurrency threshold to set, and why, from what the simulations gave.

A length: the shortest with nearly the best hit rate that loads no replica much more than the others. Short
keys are the safer ones: whatever is shared is shared by them, too. Automatic depth wins where it is as
good, because nobody has to look again when the traffic changes.

A threshold: the one nearest to the router's default among those where neither hits nor the slowest first
tokens suffer; what makes no difference should not be changed. All numbers that decide are here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from prefix_router.analyze.contenders import Contender

Row = dict[str, Any]

GOOD_HIT_SHARE = 0.98
"""Of the best hit rate among the lengths: what a length must reach."""

MOST_LOAD_RATIO = 1.5
"""Of a fair share: what the busiest replica may get."""

GOOD_REGRET = 1.05
"""How much worse than the best a threshold may be, in hits and in P99."""

DEFAULT_THRESHOLD = 64
"""The router's own."""

SMALL_HIT_RATE = 0.005
"""Below this the best length has nothing to choose by."""


@dataclass(frozen=True, slots=True)
class LengthChoice:
    """A contender for the key's length, and why it. met: whether it keeps to the bounds above."""

    contender: Contender
    row: Row
    why: str
    met: bool = True


@dataclass(frozen=True, slots=True)
class ThresholdChoice:
    """A concurrency threshold, and why it. rows: of all candidates."""

    threshold: int
    why: str
    rows: Mapping[int, Row]


def choose_length(results: Sequence[tuple[Contender, Row]], replicas: int) -> LengthChoice:
    """The choice among the results of one load that are of strategy prefix_aware, shortest length first."""
    own = [(contender, row) for contender, row in results if contender.strategy == "prefix_aware"]
    best = max(row["hit_rate"] for _, row in own)
    if best < SMALL_HIT_RATE:
        contender, row = min(own, key=lambda result: abs((result[0].prefix_tokens or 0) - 1024))
        return LengthChoice(contender, row, "No length finds anything: none is better than another.")

    def fits(row: Row) -> bool:
        return bool(row["share_max"] * replicas <= MOST_LOAD_RATIO)

    good = [(contender, row) for contender, row in own if row["hit_rate"] >= GOOD_HIT_SHARE * best]
    fitting = [(contender, row) for contender, row in good if fits(row)]
    auto = next((result for result in fitting if result[0].depth_auto), None)
    fixed = next((result for result in fitting if not result[0].depth_auto), None)
    if auto is not None:
        as_good = (
            f"{fixed[0].prefix_tokens:,} tokens would do as well today, but auto follows when prompts change."
            if fixed is not None
            else "no fixed length does both."
        )
        return LengthChoice(
            *auto, f"It hits {_hits(auto[1], best)} and {_load(auto[1], replicas)}; {as_good}"
        )
    if fixed is not None:
        why = f"The shortest that hits {_hits(fixed[1], best)} and {_load(fixed[1], replicas)}."
        return LengthChoice(*fixed, why)
    contender, row = min(good, key=lambda result: result[1]["share_max"])
    why = (
        f"It hits {_hits(row, best)}, but {_load(row, replicas)}: nothing that hits as much is more even. "
        "Too few beginnings share the traffic."
    )
    return LengthChoice(contender, row, why, met=False)


def choose_threshold(rows: Mapping[int, Row]) -> ThresholdChoice:
    """The choice among rows by threshold, of one contender at one load."""
    best_hits = max(row["hit_rate"] for row in rows.values())
    times = [row["ttft_ms"]["p99"] for row in rows.values() if row["ttft_ms"]["p99"]]
    best_time = min(times, default=None)

    def regret(threshold: int) -> float:
        row = rows[threshold]
        hits = best_hits / row["hit_rate"] if row["hit_rate"] else (1.0 if not best_hits else float("inf"))
        time = row["ttft_ms"]["p99"]
        return max(hits, time / best_time if time and best_time else 1.0)

    good = [threshold for threshold in rows if regret(threshold) <= GOOD_REGRET]
    if not good:
        threshold = min(rows, key=regret)
        why = (
            "No value is best for hits and for the slowest first tokens; this one loses least: "
            f"hit rate {rows[threshold]['hit_rate']:.1%} of at best {best_hits:.1%}, "
            f"P99 {_ms(rows[threshold]['ttft_ms']['p99'])} of at best {_ms(best_time)}."
        )
        return ThresholdChoice(threshold, why, rows)
    threshold = min(good, key=lambda value: abs(log(value / DEFAULT_THRESHOLD)))
    if len(good) == len(rows):
        why = (
            f"From {min(good)} to {max(good)} makes no difference: at this load hardly any home is that busy."
        )
    else:
        row, worse = rows[threshold], ", ".join(str(value) for value in rows if value not in good)
        why = (
            f"Hit rate {row['hit_rate']:.1%} and P99 {_ms(row['ttft_ms']['p99'])} are within "
            f"{GOOD_REGRET - 1:.0%} of the best, as with {', '.join(map(str, good))}; worse with {worse}."
        )
    return ThresholdChoice(threshold, why, rows)


def _hits(row: Row, best: float) -> str:
    if row["hit_rate"] >= best:
        return f"most ({row['hit_rate']:.1%} of the prompt tokens)"
    return f"{row['hit_rate']:.1%} of the prompt tokens (at best {best:.1%})"


def _load(row: Row, replicas: int) -> str:
    return f"gives the busiest replica {row['share_max'] * replicas:.2f} times its fair share"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"
