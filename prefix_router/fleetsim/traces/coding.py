"""Coding-agent traces (kv-cache-tester): JSON lines, a session a line, with an id for each 64 tokens.

`hr` lists the ids of the full blocks of a prompt as [first id, how many] pairs; what follows the last full
block has no id, and here blocks that nobody shares. Ids belong to one session. Sessions with equal
`tool_tokens` and `system_tokens` are taken to begin with the same text, which the file does not say. A
request of type `subagent` has requests of its own, with times from its start and a preamble of its own.

Sessions were recorded one by one. Here a number of agents work at a time and take one session after the other
in random order. Pauses are as recorded up to five minutes, and cut to that where somebody went home.
"""

from __future__ import annotations

from itertools import count, islice, pairwise
from random import Random
from typing import TYPE_CHECKING, Annotated

import msgspec

from prefix_router.fleetsim.request import BLOCK_TOKENS, SimulatedRequest
from prefix_router.fleetsim.traces.block_parts import BlockParts
from prefix_router.fleetsim.traces.lines import decode
from prefix_router.fleetsim.workloads.conversations import Turn, interleave

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prefix_router.fleetsim.traces.lines import Line

HASH_TOKENS = 64
"""Tokens that one id stands for."""
LONGEST_PAUSE_SECONDS = 300.0
REQUESTS_PER_AGENT = 30
"""An agent works at the same time for each so many requests; a session has 45 in the middle."""

_SESSION_IDS = 2**40
"""Ids that a session may use; those of preambles, which sessions share, are below the first one's."""
_PREAMBLE_IDS = 2**20
_FIRST_UNSHARED = 2**60

_Tokens = Annotated[int, msgspec.Meta(ge=0)]
_Runs = list[tuple[Annotated[int, msgspec.Meta(ge=0, lt=_SESSION_IDS)], Annotated[int, msgspec.Meta(ge=1)]]]


class _Request(msgspec.Struct):
    """One that names its prompt."""

    t: Annotated[float, msgspec.Meta(ge=0)]
    prompt_tokens: Annotated[int, msgspec.Meta(ge=1)] = msgspec.field(name="in")
    output_tokens: _Tokens = msgspec.field(name="out")
    hr: _Runs


class _Plain(_Request, tag_field="type", tag="n"):
    """Answered in one piece."""


class _Streamed(_Request, tag_field="type", tag="s"):
    """Answered as a stream."""


class _Subagent(msgspec.Struct, tag_field="type", tag="subagent"):
    t: Annotated[float, msgspec.Meta(ge=0)]
    tool_tokens: _Tokens
    system_tokens: _Tokens
    requests: list[_Plain | _Streamed]


class _Session(msgspec.Struct):
    id: str
    block_size: int
    tool_tokens: _Tokens
    system_tokens: _Tokens
    requests: list[_Plain | _Streamed | _Subagent]


_SESSION = msgspec.json.Decoder(_Session)


def coding_requests(lines: Iterable[Line], requests: int, seed: int) -> list[SimulatedRequest]:
    """At most `requests` requests, in order of arrival. Raises TraceError."""
    sessions = [_session(line) for line in lines]
    random = Random(f"coding {seed}")
    random.shuffle(sessions)
    names = _Names()
    turns = (_turns(session, number, names) for number, session in enumerate(sessions, 1))
    agents = max(requests // REQUESTS_PER_AGENT, 1)
    return interleave(lambda: next(turns, None), agents, requests, random, LONGEST_PAUSE_SECONDS)


def _session(line: Line) -> _Session:
    session = decode(line, _SESSION)
    if session.block_size != HASH_TOKENS:
        raise line.error(f"block_size must be {HASH_TOKENS}, got {session.block_size}")
    if not session.requests:
        raise line.error("a session without requests")
    for request in _flat(session):
        blocks = sum(length for _, length in request.hr)
        if blocks != request.prompt_tokens // HASH_TOKENS:
            raise line.error(f"{request.prompt_tokens} tokens do not have {blocks} full blocks")
    return session


def _flat(session: _Session) -> Iterator[_Request]:
    for request in session.requests:
        if isinstance(request, _Subagent):
            yield from request.requests
        else:
            yield request


class _Names:
    """Ids of 16-token blocks: those of a session apart from all others', those of a preamble shared."""

    def __init__(self) -> None:
        self._preambles: dict[tuple[int, int], int] = {}
        self._unshared = count(_FIRST_UNSHARED)

    def preamble(self, tool_tokens: int, system_tokens: int, ids: Iterable[int]) -> Mapping[int, int]:
        """The shared ids for those of a session's ids, of a whole first prompt, that are of its preamble."""
        kind = self._preambles.setdefault((tool_tokens, system_tokens), len(self._preambles))
        length = (tool_tokens + system_tokens) // HASH_TOKENS
        return {own: kind * _PREAMBLE_IDS + place for place, own in zip(range(length), ids, strict=False)}

    def fresh(self, number: int) -> Iterator[int]:
        """Ids of `number` blocks that nobody shares."""
        return islice(self._unshared, number)


def _turns(session: _Session, number: int, names: _Names) -> Iterator[Turn]:
    """The requests of a session and its sub-agents in order of time, with pauses that are not too long."""
    due: list[tuple[float, _Request]] = []
    shared: dict[int, int] = {}
    own = [request for request in session.requests if not isinstance(request, _Subagent)]
    shared |= names.preamble(session.tool_tokens, session.system_tokens, _first_ids(own))
    due += [(request.t, request) for request in own]
    for agent in session.requests:
        if isinstance(agent, _Subagent):
            shared |= names.preamble(agent.tool_tokens, agent.system_tokens, _first_ids(agent.requests))
            due += [(agent.t + request.t, request) for request in agent.requests]
    due.sort(key=lambda item: item[0])
    times = [seconds for seconds, _ in due]
    pauses = [min(later - earlier, LONGEST_PAUSE_SECONDS) for earlier, later in pairwise(times)]
    pauses.append(LONGEST_PAUSE_SECONDS)
    seconds = 0.0
    parts = BlockParts(HASH_TOKENS)
    for (_, request), pause in zip(due, pauses, strict=True):
        blocks = parts.of(_ids(request, shared, number * _SESSION_IDS))
        blocks += names.fresh(-(-request.prompt_tokens // BLOCK_TOKENS) - len(blocks))
        output_tokens = max(request.output_tokens, 1)
        yield Turn(
            SimulatedRequest(seconds, tuple(blocks), request.prompt_tokens, output_tokens, session.id), pause
        )
        seconds += pause


def _ids(request: _Request, shared: Mapping[int, int], first: int) -> Iterator[int]:
    """The ids of a prompt for all sessions, where `first` is added to those that are the session's own."""
    for start, length in request.hr:
        for own in range(start, start + length):
            yield shared[own] if own in shared else first + own


def _first_ids(requests: Sequence[_Request]) -> Iterator[int]:
    for start, length in requests[0].hr if requests else ():
        yield from range(start, start + length)
