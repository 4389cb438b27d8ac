"""How deep a key looks: past the beginnings that are too popular to live on one backend, and no further.

With one prefix length for everybody, some length is wrong for each kind of traffic. Where all requests begin
alike, with a system prompt or the tools of an agent, a short key sends everything to one backend; a long one
scatters those that share less. So a prompt has several candidates for its key: its beginnings of 64, 128,
192, 256, 320, … tokens, four to a doubling, and up to the first ends of its turns. The key is the one behind
the last beginning that is popular and branches; where there is none, it is the first.

Popular is what more than `POPULAR_SHARE / backends` of the recent requests begin with, a small part of what
one backend should get, and at least `LEAST_COUNT` of them. A popular beginning is computed on several
backends then, which costs little, because it is popular. Keys below that spread evenly: with K keys of one
size, the requests of a backend deviate from their mean by the square root of that part, 20% here. To stop
being popular takes less than half of it, so that a beginning on the edge does not go back and forth.

A beginning branches when those who begin so go on in different ways. One that does not, such as a long
conversation that grows from turn to turn, gains nothing from a deeper key: it would only move as it grows. So
for each beginning two numbers are kept: how often the next candidate was the usual one, and how often
another.

Counts are kept in two generations of requests, of which the older one is dropped whole when the younger one
is full. Each request adds at most its candidates, some 15 to 60, and a generation has at most half a window
of requests, so there is a bound whatever comes. Routers count for themselves. They agree as far as the shares
of what they see do; where they do not, a beginning lives on one backend more. No clock: what is recent is
counted in requests. Cost: three lookups for each candidate.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from prefix_router.routing.chain import LEVEL_TOKENS, MOST_ENDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefix_router.routing.chain import PrefixChain

POPULAR_SHARE = 0.04
LEAST_COUNT = 8
LEAST_WINDOW = 2048
"""Requests in both generations; more in a large fleet, so that what is popular there can be told at all."""

_STEPS_PER_DOUBLING = 4
LONGEST_KEY_TOKENS = 1 << 16
_HYSTERESIS = 0.5
_BRANCHING_SHARE = 1 / 8
_LEAST_OTHERS = 2
_WAYS_MEMORY = 64
"""When so many ways on were counted, both numbers are halved: what is usual may change."""

_STEPS = tuple(
    (level, tokens)
    for level, tokens in enumerate(LEVEL_TOKENS)
    if tokens % max((1 << (tokens.bit_length() - 1)) // _STEPS_PER_DOUBLING, 1) == 0
    and tokens <= LONGEST_KEY_TOKENS
)


class DepthKey(NamedTuple):
    """A key.

    tokens: how much of the prompt it covers. popular_tokens: how much is a popular beginning that branches.
    """

    value: int
    tokens: int
    popular_tokens: int = 0


def candidates(chain: PrefixChain) -> Iterator[tuple[int, int]]:
    """The beginnings that may become the key, shortest first: name and tokens of each; at least one.

    Of the ends only the first few: they stay the same ones while a conversation grows.
    """
    names = chain.names
    ends = islice(chain.ends, MOST_ENDS)
    end = next(ends, None)
    for level, tokens in _STEPS:
        if level >= len(names):
            break
        while end is not None and end.tokens <= tokens:
            yield end.name, end.tokens
            end = next(ends, None)
        yield names[level], tokens
    while end is not None:
        yield end.name, end.tokens
        end = next(ends, None)


class _Ways:
    """How those go on who have one beginning. usual: the name of the next candidate that most have."""

    __slots__ = ("others", "usual", "usually")

    def __init__(self, usual: int) -> None:
        self.usual = usual
        self.usually = 1.0
        self.others = 0.0

    def count(self, name: int) -> bool:
        """Count one that goes on with this name; say whether they branch."""
        if name == self.usual:
            self.usually += 1
        else:
            self.others += 1
            if self.others > self.usually:
                self.usual = name
                self.usually, self.others = self.others, self.usually
        if self.usually + self.others > _WAYS_MEMORY:
            self.usually /= 2
            self.others /= 2
        return self.others >= _LEAST_OTHERS and self.branch()

    def branch(self) -> bool:
        """Whether those who begin so go on in different ways."""
        return self.others >= _LEAST_OTHERS and self.others >= _BRANCHING_SHARE * (self.usually + self.others)


class Depth:
    """Counts beginnings and chooses the key of each request."""

    def __init__(self, popular_share: float = POPULAR_SHARE, least_count: int = LEAST_COUNT) -> None:
        """popular_share: of what one backend should get. least_count: requests that make popular at least."""
        self._popular_share = popular_share
        self._least_count = least_count
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}
        self._young_requests = self._old_requests = 0
        self._popular: set[int] = set()
        self._ways: dict[int, _Ways] = {}

    def __len__(self) -> int:
        """How many beginnings are counted; those that are in both generations count twice."""
        return len(self._young) + len(self._old)

    def key(self, chain: PrefixChain, backends: int) -> DepthKey:
        """The key of the next request, in a fleet of so many backends (at least 1); counts it, too."""
        share = self._popular_share / max(backends, 1)
        if self._young_requests * 2 >= max(LEAST_WINDOW, round(2 * self._least_count / share)):
            self._turn_over()
        self._young_requests += 1
        most = share * (self._young_requests + self._old_requests)
        enough = max(self._least_count, most) * _HYSTERESIS
        young, old, ways, popular = self._young, self._old, self._ways, self._popular
        known = self._least_count / 2
        key: tuple[int, int] | None = None
        popular_tokens = 0
        above = above_tokens = 0
        follows = False
        is_popular = True
        beginnings = candidates(chain)
        for name, tokens in beginnings:
            count = young.get(name, 0) + 1
            young[name] = count
            count += old.get(name, 0)
            if key is None:
                key = name, tokens
            elif follows:
                way = ways.get(above)
                if way is None:
                    ways[above] = _Ways(name)
                elif way.count(name) and is_popular:
                    key, popular_tokens = (name, tokens), above_tokens
            if count == 1 < known:
                # Whoever has a longer beginning has this one, too: the others are as new.
                young.update(dict.fromkeys([name for name, _ in beginnings], 1))
                break
            if is_popular and not (name in popular and count >= enough):
                is_popular = self._judge(name, count, most)
            follows = count >= known
            above, above_tokens = name, tokens
        assert key is not None
        return DepthKey(*key, popular_tokens)

    def peek(self, chain: PrefixChain, backends: int) -> DepthKey:
        """The key that the request would have if it came now; counts nothing."""
        most = self._popular_share / max(backends, 1) * (self._young_requests + self._old_requests + 1)
        key: tuple[int, int] | None = None
        popular_tokens = above_tokens = 0
        way: _Ways | None = None
        for name, tokens in candidates(chain):
            if key is None:
                key = name, tokens
            elif way is not None and way.branch():
                key, popular_tokens = (name, tokens), above_tokens
            count = self._young.get(name, 0) + self._old.get(name, 0) + 1
            edge = _HYSTERESIS if name in self._popular else 1.0
            if count < self._least_count * edge or count <= most * edge:
                break
            way, above_tokens = self._ways.get(name), tokens
        assert key is not None
        return DepthKey(*key, popular_tokens)

    def _judge(self, name: int, count: int, most: float) -> bool:
        """Whether a beginning is popular from now on; one that is and has enough to stay so is not judged."""
        if name in self._popular:
            self._popular.discard(name)
            return False
        if count < self._least_count or count <= most:
            return False
        self._popular.add(name)
        return True

    def _turn_over(self) -> None:
        self._old, self._young = self._young, {}
        self._old_requests, self._young_requests = self._young_requests, 0
        self._popular &= self._old.keys()
        self._ways = {name: way for name, way in self._ways.items() if name in self._old}
