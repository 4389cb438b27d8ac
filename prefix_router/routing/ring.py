"""A consistent-hash ring over backend names: which backend is the home of a key, and who comes next.

uhashring places the points (a backend's name, numbered, through xxh3); this module freezes them into sorted
arrays. Why not ask uhashring at every request: it hashes a string for each lookup, copies its key list for
each walk, and a change in place could be seen half done by a decision. Here a key *is* a position on the
circle of 64-bit numbers, a lookup is one bisection, a walk is lazy, and a new membership is a new ring.

The points of a backend depend on its name, its weight and the number of virtual nodes: not on its URL, the
order of the configuration, the other backends or the process. So routers agree without talking, and a backend
that leaves takes nothing along but its own keys.

A lookup bisects only among the points that share the key's leading bits (at most a few hundred): about
a microsecond, however many backends. Memory is 16 bytes a point. A ring never changes once it is built.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING

from uhashring import HashRing
from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prefix_router.routing.fleet import BackendName

DEFAULT_VIRTUAL_NODES = 1280
"""Points for each share of weight; chosen in docs/decisions/0002-virtual-nodes.md."""

_SPACE = 1 << 64
_POINTS_PER_BUCKET = 256


def point_of(text: str) -> int:
    """The place of a text on the circle: its 64-bit xxh3, equal in every process and in every version.

    Any `str` has one: text from the wire may hold lone surrogates, and they hash like other characters.
    """
    return xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


class Ring:
    """Who owns which part of the circle of 64-bit keys.

    weights: whole shares by backend name, 1 or more; a backend gets `virtual_nodes` points for each share.
    When two names fall on the same point, the one that sorts first owns it. Raises ValueError for a weight
    or a `virtual_nodes` below 1. Building takes about a microsecond for each point (seven backends: ten
    milliseconds); from one membership to the next, `with_weights` costs far less.
    """

    def __init__(
        self, weights: Mapping[BackendName, int], virtual_nodes: int = DEFAULT_VIRTUAL_NODES
    ) -> None:
        if virtual_nodes < 1:
            raise ValueError(f"virtual_nodes must be at least 1, not {virtual_nodes}")
        owner_by_point = _place(weights, virtual_nodes)
        points = array("Q", sorted(owner_by_point))
        self._freeze(weights, virtual_nodes, points, [owner_by_point[point] for point in points])

    def _freeze(
        self,
        weights: Mapping[BackendName, int],
        virtual_nodes: int,
        points: array[int],
        owners: list[BackendName],
    ) -> None:
        self._weights = MappingProxyType(dict(weights))
        self._virtual_nodes = virtual_nodes
        self._points = points
        # One entry more than points: beyond the last point the circle begins again.
        self._owners = owners + owners[:1]
        bits = (len(points) // _POINTS_PER_BUCKET).bit_length()
        self._shift = 64 - bits
        # Where each bucket of keys with the same leading bits starts, and where the last one ends.
        self._starts = array("I", (bisect_left(points, b << self._shift) for b in range((1 << bits) + 1)))

    @property
    def weights(self) -> Mapping[BackendName, int]:
        """Whole shares by backend name, read-only."""
        return self._weights

    @property
    def virtual_nodes(self) -> int:
        """Points for each share of weight."""
        return self._virtual_nodes

    @property
    def point_count(self) -> int:
        """How many points the circle holds."""
        return len(self._points)

    @cached_property
    def shares(self) -> Mapping[BackendName, float]:
        """The exact fraction of all keys that each backend owns. O(points) once, then kept."""
        owned: defaultdict[BackendName, int] = defaultdict(int)
        before = self._points[-1] - _SPACE if self._points else 0
        for point, owner in zip(self._points, self._owners, strict=False):
            owned[owner] += point - before
            before = point
        return MappingProxyType({name: owned[name] / _SPACE for name in self._weights})

    def owner(self, key: int) -> BackendName | None:
        """The backend of the first point after `key` (0 ≤ key < 2⁶⁴); None on a ring without backends."""
        owners = self._owners
        return owners[self._position(key)] if owners else None

    def successors(self, key: int) -> Iterator[BackendName]:
        """Each backend once, in the order in which a walk from `key` meets it; the owner comes first.

        Lazy: the first few cost a microsecond or two. To meet all n takes about n·ln n steps.
        """
        owners = self._owners
        start = self._position(key)
        met: set[BackendName] = set()
        for position in chain(range(start, len(self._points)), range(start)):
            owner = owners[position]
            if owner not in met:
                yield owner
                met.add(owner)
                if len(met) == len(self._weights):
                    return

    def with_weights(self, weights: Mapping[BackendName, int]) -> Ring:
        """The ring over another membership: equal in all to `Ring(weights, ring.virtual_nodes)`, but cheaper.

        Only the backends that join, leave or change their weight are hashed; their points are spliced in and
        out. Where that would not pay, or where names share a point, the ring is built anew.
        """
        before = self._weights
        leaving = {name: weight for name, weight in before.items() if weights.get(name) != weight}
        joining = {name: weight for name, weight in weights.items() if before.get(name) != weight}
        point_count = self._virtual_nodes * sum(weights.values())
        moved_count = self._virtual_nodes * (sum(leaving.values()) + sum(joining.values()))
        if moved_count * 2 < point_count:
            points, owners = self._spliced(leaving, joining)
            # One missing means that a backend that stays or joins shares a point with another one.
            if len(points) == point_count:
                ring = Ring.__new__(Ring)
                ring._freeze(weights, self._virtual_nodes, points, owners)
                return ring
        return Ring(weights, self._virtual_nodes)

    def _spliced(
        self, leaving: Mapping[BackendName, int], joining: Mapping[BackendName, int]
    ) -> tuple[array[int], list[BackendName]]:
        """Points and owners after a change, in order. Of points that two names share, one is missing."""
        removed = _place(leaving, self._virtual_nodes)
        added = _place(joining, self._virtual_nodes)
        points: array[int] = array("Q")
        owners: list[BackendName] = []
        copied = 0
        for point in sorted(removed.keys() | added.keys()):
            position = bisect_left(self._points, point, copied)
            points.extend(self._points[copied:position])
            owners.extend(self._owners[copied:position])
            copied = position
            if point in removed:
                copied += 1
            if point in added and not (copied < self.point_count and self._points[copied] == point):
                points.append(point)
                owners.append(added[point])
        points.extend(self._points[copied:])
        owners.extend(self._owners[copied : self.point_count])
        return points, owners

    def _position(self, key: int) -> int:
        bucket = key >> self._shift
        starts = self._starts
        return bisect_right(self._points, key, starts[bucket], starts[bucket + 1])

    def __repr__(self) -> str:
        return f"Ring({dict(self._weights)!r}, virtual_nodes={self._virtual_nodes})"


def _place(weights: Mapping[BackendName, int], virtual_nodes: int) -> Mapping[int, BackendName]:
    """The points of some backends, by uhashring: the owner of each.

    uhashring lets the last writer keep a point that two names share; hence the descending order.
    """
    for name, weight in weights.items():
        if weight < 1:
            raise ValueError(f"the weight of backend {name!r} must be at least 1, not {weight}")
    nodes = {name: weights[name] for name in sorted(weights, reverse=True)}
    points: Mapping[int, BackendName] = HashRing(nodes, vnodes=virtual_nodes, hash_fn=point_of).ring
    return points
