"""Which keys are asked for most, among any number of keys, in fixed memory.

The space-saving counter of Metwally, Agrawal and El Abbadi ("Efficient computation of frequent and top-k
elements in data streams", 2005): `CAPACITY` keys are counted; a key that is not among them takes the place,
and the count, of the least frequent one. So a count is too high by at most `error`, and every key with more
than 1 / `CAPACITY` of all requests is there.

Counts fade: half of one is left after `HALF_LIFE_SECONDS`. Instead of making old counts smaller, new ones are
made larger, which leaves the order as it is (forward decay: Cormode, Shkapenyuk, Srivastava and Xu, 2009);
once in a while all are scaled back.

A known key costs O(1), another one O(log CAPACITY) amortized: the heap holds the count a key had when it was
put there, and what turns out to have grown is put back. Never keeps text: a key is a hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappush, heapreplace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from prefix_router.observe.events import BackendChanged, EngineSample, RequestRecord
    from prefix_router.routing.fleet import BackendName

CAPACITY: Final = 256
HALF_LIFE_SECONDS: Final = 600.0
MAX_PLACES: Final = 16
"""So many backends are told apart for one key."""
_RESCALE_AT: Final = 2.0**20


@dataclass(slots=True, eq=False)
class _Entry:
    """A key. Numbers are scaled. at: whom it went to, of those with the most."""

    count: float
    error: float
    home: BackendName | None = None
    prompt: float = 0.0
    cached: float = 0.0
    at: dict[BackendName, float] = field(default_factory=dict)

    def scale(self, factor: float) -> None:
        self.count *= factor
        self.error *= factor
        self.prompt *= factor
        self.cached *= factor
        self.at = {name: count * factor for name, count in self.at.items()}


class HotKeys:
    """Counts the keys of finished requests. An `Observer`. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._entries: dict[int, _Entry] = {}
        self._heap: list[tuple[float, int]] = []
        self._total = 0.0
        self._fleet: frozenset[BackendName] = frozenset()

    def set_backends(self, names: Iterable[BackendName]) -> None:
        """Name exactly these backends from now on."""
        fleet = self._fleet = frozenset(names)
        for entry in self._entries.values():
            entry.at = {name: count for name, count in entry.at.items() if name in fleet}
            if entry.home not in fleet:
                entry.home = None

    def request_finished(self, event: RequestRecord) -> None:
        """Count the key of one request; a request without one is not counted."""
        key = event.key
        if key is None or event.backend is None:
            return
        weight = self._weight()
        self._total += weight
        entry = self._entries.get(key) or self._admit(key)
        entry.count += weight
        if event.home is not None and event.home in self._fleet:
            entry.home = event.home
        if event.backend in self._fleet:
            _count_place(entry.at, event.backend, weight)
        if event.prompt_tokens is not None and event.cached_tokens is not None:
            entry.prompt += event.prompt_tokens * weight
            entry.cached += event.cached_tokens * weight

    def backend_changed(self, event: BackendChanged) -> None:
        """Nothing is kept of it."""

    def engine_sampled(self, event: EngineSample) -> None:
        """Nothing is kept of it."""

    def document(self, limit: int) -> dict[str, Any]:
        """Return the `/keys` document: at most `limit` keys, the most frequent first.

        `requests` fades and is no whole number; it is too high by at most `error`.
        """
        weight = self._weight()
        entries = sorted(self._entries.items(), key=lambda item: -item[1].count)[:limit]
        return {
            "half_life_seconds": HALF_LIFE_SECONDS,
            "requests": round(self._total / weight, 2),
            "counted_keys": len(self._entries),
            "keys": [self._entry(key, entry, weight) for key, entry in entries],
        }

    def _entry(self, key: int, entry: _Entry, weight: float) -> dict[str, Any]:
        places = sorted(entry.at.items(), key=lambda item: -item[1])
        sent = sum(entry.at.values())
        return {
            "key": f"{key:016x}",
            "requests": round(entry.count / weight, 2),
            "error": round(entry.error / weight, 2),
            "share": round(entry.count / self._total, 4) if self._total else 0.0,
            "home": entry.home,
            "backends": {name: round(count / sent, 4) for name, count in places},
            "hit_rate": round(entry.cached / entry.prompt, 4) if entry.prompt else None,
        }

    def _weight(self) -> float:
        """What a request counts now; scales everything back before numbers grow out of hand."""
        now = self._clock()
        weight: float = 2.0 ** ((now - self._began) / HALF_LIFE_SECONDS)
        if weight < _RESCALE_AT:
            return weight
        self._began, factor = now, 1 / weight
        self._total *= factor
        for entry in self._entries.values():
            entry.scale(factor)
        self._heap = [(entry.count, key) for key, entry in self._entries.items()]
        heapify(self._heap)
        return 1.0

    def _admit(self, key: int) -> _Entry:
        """Begin to count a key, in the place of the least frequent one when there is no other."""
        if len(self._entries) < CAPACITY:
            entry = self._entries[key] = _Entry(0.0, 0.0)
            heappush(self._heap, (0.0, key))
            return entry
        while True:
            count, least = self._heap[0]
            found = self._entries[least].count
            if found == count:
                break
            heapreplace(self._heap, (found, least))
        del self._entries[least]
        entry = self._entries[key] = _Entry(count, count)
        heapreplace(self._heap, (count, key))
        return entry


def _count_place(places: dict[BackendName, float], name: BackendName, weight: float) -> None:
    if name not in places and len(places) >= MAX_PLACES:
        del places[min(places, key=places.__getitem__)]
    places[name] = places.get(name, 0.0) + weight
