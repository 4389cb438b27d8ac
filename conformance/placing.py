"""Which backend a request goes to, and how many go where: what routing cases are made of.

Prompts are longer than any prefix that a router is likely to look at, so that a case says what differs: the
beginning (`head`) or only the end. With three backends and two dozen different beginnings, all of them on one
backend is no accident (one chance in 10^10).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from uuid import uuid4

from conformance.client import ClientConnection
from conformance.context import Context
from conformance.launchers.base import RunningRouter
from conformance.model import CaseFailed, NotApplicable, check
from conformance.sharing import Gate
from conformance.wire import Answer

HEAD_CHARACTERS = 8000
"""Twice what the longest default prefix of the routers known to us covers, in characters."""

GROUPS = 24


def head(characters: int = HEAD_CHARACTERS) -> str:
    """Return a beginning that nobody has sent before, different from its first character on."""
    word = uuid4().hex
    return (f"{word} " * (characters // 33 + 1))[:characters]


class Placing:
    """Sends requests one after the other on one connection and says who got each.

    router: another one than the case's own.
    """

    def __init__(self, ctx: Context, router: RunningRouter | None = None) -> None:
        self._ctx = ctx
        self._router = router or ctx.router
        self._connection: ClientConnection | None = None

    async def ask(self, data: bytes) -> tuple[str, Answer]:
        """Send a request; return the name of the backend that got it, and the answer. Raises CaseFailed."""
        before = _counts(self._ctx)
        answer = await self.send(data)
        got = [name for name, count in _counts(self._ctx).items() if count > before[name]]
        if len(got) != 1:
            raise CaseFailed(f"{len(got)} backends got a request; it ended in {answer}")
        return got[0], answer

    async def of(self, data: bytes) -> str:
        """As `ask`, for requests that must be answered with 200."""
        name, answer = await self.ask(data)
        check(answer.status == 200 and answer.complete, str(answer))
        return name

    async def of_all(self, requests: Iterable[bytes]) -> list[str]:
        """Return where each request went."""
        return [await self.of(data) for data in requests]

    async def send(self, data: bytes) -> Answer:
        """Send a request and return the answer, wherever it went. Raises CaseFailed."""
        if self._connection is None or self._connection.inbox.ended:
            await self.open()
        assert self._connection is not None, "opened above"
        await self._connection.send(data)
        return await self._ctx.answer(self._connection)

    async def open(self) -> None:
        """Connect anew. Raises CaseFailed."""
        self.close()
        if self._router is self._ctx.router:
            self._connection = await self._ctx.connect()
            return
        try:
            self._connection = await ClientConnection.open(self._router.host, self._router.port)
        except OSError as error:
            raise CaseFailed(f"another router takes no connection: {error!r}") from error

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def expect_spread(ctx: Context, names: Sequence[str], what: str) -> str:
    """Check that `names` are not all one backend; return evidence.

    Raises NotApplicable for a router that gives all work to one backend as long as the fleet is idle: there
    it cannot be seen what keeps two requests apart.
    """
    counts = sorted(Counter(names).values(), reverse=True)
    if len(counts) == 1 and ctx.router.uses is not None and len(ctx.router.uses) == 1:
        raise NotApplicable("the policy gives different prompts to one backend while the fleet is idle")
    check(len(counts) > 1, f"all {len(names)} {what} went to one backend")
    return f"{len(names)} {what} spread {counts}"


def expect_same(first: Sequence[str], second: Sequence[str], what: str, *, tolerate: float = 0.0) -> str:
    """Check that requests went where their predecessors did, but for a fraction; return evidence."""
    same = sum(one == other for one, other in zip(first, second, strict=True))
    enough = same >= len(first) * (1 - tolerate)
    check(enough, f"{what}: only {same} of {len(first)} went to the same backend as before")
    return f"{what}: {same} of {len(first)} to the same backend"


@contextlib.asynccontextmanager
async def held(
    ctx: Context, requests: Sequence[bytes], *, gate: Gate | None = None
) -> AsyncIterator[Counter[str]]:
    """Have all `requests` at backends at a time, one after the other; give who holds how many.

    They are let go, and their answers read, at the end. gate: for backends whose scripts the case sets.
    """
    if gate is None:
        gate = Gate()
        ctx.script_all(gate.script)
    before = _counts(ctx)
    clients = []
    for at, data in enumerate(requests):
        clients.append(await ctx.start(data))
        if at % 32 == 31:
            await asyncio.sleep(0)
    wanted = sum(before.values()) + len(requests)
    await ctx.wait_until(lambda: ctx.work_count >= wanted, f"{len(requests)} requests at the backends")
    after = _counts(ctx)
    try:
        yield Counter({name: after[name] - before[name] for name in after})
    finally:
        gate.open()
    answers = await asyncio.gather(*(ctx.answer(client) for client in clients))
    bad = [answer for answer in answers if answer.status != 200]
    check(not bad, f"{len(bad)} of {len(answers)} failed: {next(iter(bad), None)}")
    for client in clients:
        client.close()


def expect_bounded(counts: Counter[str], backends: int, factor: float) -> str:
    """Check that nobody has more than `factor` times a fair share; return evidence."""
    total = counts.total()
    shares = sorted((counts[name] for name in counts), reverse=True)
    check(
        shares[0] * backends <= factor * total,
        f"shares {shares}: the largest is {shares[0] * backends / total:.2f} times a fair one",
    )
    return f"shares {shares} of {total}"


def _counts(ctx: Context) -> dict[str, int]:
    return {backend.name: len(backend.exchanges) for backend in ctx.backends}
