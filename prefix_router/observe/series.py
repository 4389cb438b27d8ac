"""One hour of something, cut into slots of equal length, of which the oldest is overwritten by the newest.

A slot is made when the first request falls into it, so an idle hour costs nothing. Quantiles of a slot that
is over are worked out once and replace its sketch's counts as what is read: they never change again.

Bounded: `slots` slots, each one object with at most one sketch. Adding is O(1). Slots are numbered from the
start of the clock, so that numbers of one process can be compared and a reader can ask for what is newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from prefix_router.observe.events import Outcome
from prefix_router.observe.sketch import Sketch, merged, new_sketch, quantiles
from prefix_router.routing.decision import Reason

REASONS = tuple(Reason)
OUTCOMES = tuple(Outcome)


@dataclass(slots=True, eq=False)
class Slot:
    """What ended within one slot. `number` says which one.

    errors: requests that did not end as their client wanted, and were not the client's own doing. prompt,
    cached: tokens, of responses that report both. first_token: of streams. reasons, outcomes: requests, in
    the order of the enums; only where a series counts them.
    """

    number: int
    requests: int = 0
    errors: int = 0
    prompt: int = 0
    cached: int = 0
    first_token: Sketch | None = None
    reasons: list[int] | None = None
    outcomes: list[int] | None = None
    _final: tuple[float, ...] | None = field(default=None, repr=False)

    def add_first_token(self, bucket: int) -> None:
        """Count the first token of one stream."""
        if self.first_token is None:
            self.first_token = new_sketch()
        self.first_token[bucket] += 1

    def quantiles(self, *, over: bool) -> tuple[float, ...] | None:
        """Return the quantiles of the time to first token. over: whether nothing can be added any more."""
        if self._final is not None or self.first_token is None:
            return self._final
        found = quantiles(self.first_token)
        if over:
            self._final = found
        return found


class Series:
    """The slots of one backend, or of the fleet. seconds: the length of a slot."""

    def __init__(self, seconds: float, slots: int, *, kinds: bool = False) -> None:
        """kinds: whether reasons and outcomes are counted, too."""
        self.seconds = seconds
        self.length = slots
        self._kinds = kinds
        self._slots: list[Slot | None] = [None] * slots

    def number(self, now: float) -> int:
        """Return which slot a time falls into."""
        return int(now // self.seconds)

    def at(self, now: float) -> Slot:
        """Return the slot to add to."""
        number = int(now // self.seconds)
        slot = self._slots[number % self.length]
        if slot is None or slot.number != number:
            slot = Slot(number)
            if self._kinds:
                slot.reasons, slot.outcomes = [0] * len(REASONS), [0] * len(OUTCOMES)
            self._slots[number % self.length] = slot
        return slot

    def between(self, first: int, last: int) -> Iterator[Slot | None]:
        """Yield the slots of these numbers, both included; None for one in which nothing ended."""
        for number in range(first, last + 1):
            slot = self._slots[number % self.length]
            yield slot if slot is not None and slot.number == number else None

    def columns(self, now: float, since: int = 0) -> dict[str, Any]:
        """Return the slots from number `since` on as columns, oldest first.

        Also `first`, the number of the first one. The last one is not over yet.
        """
        last = self.number(now)
        first = max(since, last - self.length + 1)
        slots = list(self.between(first, last))
        found = [None if slot is None else slot.quantiles(over=slot.number < last) for slot in slots]
        document: dict[str, Any] = {"seconds": self.seconds, "length": self.length, "first": first}
        for name in ("requests", "errors", "prompt", "cached"):
            document[name] = [0 if slot is None else getattr(slot, name) for slot in slots]
        for at, name in enumerate(("p50", "p90", "p99")):
            document[name] = [None if values is None else values[at] for values in found]
        if self._kinds:
            document["reasons"] = _kinds(REASONS, [None if slot is None else slot.reasons for slot in slots])
            document["outcomes"] = _kinds(
                OUTCOMES, [None if slot is None else slot.outcomes for slot in slots]
            )
        return document

    def recent(self, now: float, seconds: float) -> dict[str, Any]:
        """Return the sums and quantiles of the last so many seconds, whole slots and the present one."""
        last = self.number(now)
        count = min(int(seconds // self.seconds), self.length - 1)
        slots = [slot for slot in self.between(last - count, last) if slot is not None]
        prompt, cached = sum(slot.prompt for slot in slots), sum(slot.cached for slot in slots)
        found = quantiles(merged(slot.first_token for slot in slots if slot.first_token is not None))
        return {
            "requests": sum(slot.requests for slot in slots),
            "errors": sum(slot.errors for slot in slots),
            "hit_rate": round(cached / prompt, 4) if prompt else None,
            "first_token_seconds": None if found is None else list(found),
        }


def _kinds(kinds: Iterable[Reason | Outcome], slots: list[list[int] | None]) -> dict[str, list[int]]:
    """One column for each kind that occurs at all."""
    columns = {
        kind.value: [0 if slot is None else slot[at] for slot in slots] for at, kind in enumerate(kinds)
    }
    return {name: column for name, column in columns.items() if any(column)}
