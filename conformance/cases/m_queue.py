"""Section M: limits on requests in flight, the line behind them, and what is said to those turned away."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import Counter

from conformance.client import ClientConnection
from conformance.context import Context
from conformance.endpoints import Endpoint
from conformance.exchange import Exchange
from conformance.model import Capability, Evidence, Variant, check
from conformance.placing import head
from conformance.profile import Profile
from conformance.registry import case, every_kind, stream_and_whole
from conformance.wire import Answer, BrokenError, ClosedError, request_bytes

LINE = Profile(max_in_flight=2, queue_length=4, queue_timeout_seconds=20)
SHORT_PATIENCE = Profile(max_in_flight=2, queue_length=4, queue_timeout_seconds=0.5)
"""Routers that count whole seconds get one second."""

NO_LINE_SET = Profile(max_in_flight=2)
CAPPED = Profile(max_in_flight_per_backend=2, queue_length=4, queue_timeout_seconds=20)

REFUSED = (429, 503)

_NUMBER = re.compile(rb"number=(\d+);")
"""In the prompt, because not every router passes headers on."""


class Turnstile:
    """A script that holds each request until it is let go, one at a time or all."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self._exits: list[asyncio.Event] = []
        self._all = False

    async def script(self, exchange: Exchange) -> None:
        """Note who has come; wait; answer."""
        leave = asyncio.Event()
        found = _NUMBER.search(exchange.body)
        self.arrived.append(found[1].decode() if found else "")
        self._exits.append(leave)
        if not self._all:
            await leave.wait()
        await exchange.respond(200, b"{}")

    def let_go(self, which: int) -> None:
        """Let the request that came as `which`-th leave."""
        self._exits[which].set()

    async def let_go_and_wait(self, ctx: Context, which: int) -> None:
        """Let one leave, and wait until another has come."""
        wanted = len(self.arrived) + 1
        self.let_go(which)
        await ctx.wait_until(lambda: len(self.arrived) >= wanted, "the next in line at a backend")

    def open(self) -> None:
        """Let all go, also those to come."""
        self._all = True
        for leave in self._exits:
            leave.set()


def _numbered(ctx: Context, number: int) -> bytes:
    return ctx.request(ctx.unique(f"number={number};"))


async def _queue_up(ctx: Context, turnstile: Turnstile, running: int, waiting: int) -> list[ClientConnection]:
    """Start `running` requests that reach backends, then `waiting` more, in order."""
    ctx.script_all(turnstile.script)
    clients = []
    for number in range(running + waiting):
        clients.append(await ctx.start(_numbered(ctx, number)))
        if number < running:
            await ctx.wait_until(lambda: len(turnstile.arrived) == len(clients), "a request at a backend")
        else:
            await asyncio.sleep(0.03)  # they must arrive in this order
    return clients


def _expect_refusal(answer: Answer) -> str:
    check(answer.status in REFUSED, str(answer))
    wait = answer.get("retry-after")
    check(wait is not None and wait.isdigit() and 0 < int(wait) <= 3600, f"Retry-After {wait!r} on {answer}")
    check("json" in (answer.get("content-type") or ""), f"not JSON: {answer}")
    check(answer.json().get("error"), f"no error object: {answer}")
    return f"{answer.status}, Retry-After {wait}"


@case(
    "M1",
    "P1",
    "More requests than the limit",
    "At most as many as allowed are at backends; the others wait and are served in the order they came.",
    variants=every_kind(),
    profile=LINE,
    needs={Capability.QUEUE},
    disturbs=True,
)
async def first_come_first_served(ctx: Context) -> Evidence:
    """Two run, four wait; one leaves at a time."""
    turnstile = Turnstile()
    clients = await _queue_up(ctx, turnstile, 2, 4)
    check(len(turnstile.arrived) == 2, f"{len(turnstile.arrived)} at backends, 2 are allowed")
    for leaving in range(4):
        await turnstile.let_go_and_wait(ctx, leaving)
        check(ctx.running_count <= 2, f"{ctx.running_count} at backends, 2 are allowed")
    turnstile.open()
    answers = [await ctx.answer(client) for client in clients]
    check(all(answer.status == 200 for answer in answers), f"statuses {[a.status for a in answers]}")
    order = [int(number) for number in turnstile.arrived]
    check(order == sorted(order), f"served in the order {order}")
    return f"served in the order {order}, never more than 2 at a time"


@case(
    "M1b",
    "P1",
    "More requests than may wait",
    "The next one is turned away at once with 429 or 503; those in line are served.",
    variants=stream_and_whole(),
    profile=LINE,
    needs={Capability.QUEUE},
    disturbs=True,
)
async def line_is_full(ctx: Context) -> Evidence:
    """Two run, four wait, five more come."""
    turnstile = Turnstile()
    clients = await _queue_up(ctx, turnstile, 2, 4)
    began = time.monotonic()
    turned_away = [await ctx.ask(_numbered(ctx, 99), seconds=3) for _ in range(5)]
    seconds = time.monotonic() - began
    statuses = [answer.status for answer in turned_away]
    check(all(status in REFUSED for status in statuses), f"statuses {statuses}")
    turnstile.open()
    answers = [await ctx.answer(client) for client in clients]
    check(all(answer.status == 200 for answer in answers), f"in line: {[a.status for a in answers]}")
    return f"5 turned away with {statuses[0]} in {seconds:.2f} s, 6 served"


@case(
    "M1c",
    "P1",
    "A limit for each backend",
    "No backend has more requests than that at a time; the others wait, and all are served.",
    variants=stream_and_whole("one prefix", "different"),
    profile=CAPPED,
    disturbs=True,
)
async def limit_per_backend(ctx: Context) -> Evidence:
    """Ten requests on three backends that take two each; a hot prefix goes elsewhere and does not wait."""
    turnstile = Turnstile()
    ctx.script_all(turnstile.script)
    hot = head()
    texts = [f"{hot} {at}" if ctx.variant.option == "one prefix" else ctx.unique() for at in range(10)]
    clients = [await ctx.start(ctx.request(text)) for text in texts]
    await ctx.wait_until(lambda: ctx.running_count >= 6, "6 requests at backends, 2 on each")
    await asyncio.sleep(0.1)
    running = Counter({backend.name: len(backend.running) for backend in ctx.backends})
    check(max(running.values()) <= 2, f"{sorted(running.values())} at backends, 2 are allowed on each")
    turnstile.open()
    answers = [await ctx.answer(client) for client in clients]
    check(all(answer.status == 200 for answer in answers), f"statuses {[a.status for a in answers]}")
    most = max(backend.highest_concurrency for backend in ctx.backends)
    check(most <= 2, f"{most} at one backend")
    return f"{sorted(running.values())} at backends, 4 waited, all 10 served"


@case(
    "M1d",
    "P1",
    "A client leaves the line",
    "Its place is given to the next, and no backend ever sees its request.",
    variants=stream_and_whole(),
    profile=LINE,
    needs={Capability.QUEUE},
    disturbs=True,
)
async def leaving_the_line(ctx: Context) -> Evidence:
    """Four wait, the second and the third leave, one more comes."""
    turnstile = Turnstile()
    clients = await _queue_up(ctx, turnstile, 2, 4)
    for leaving in clients[3:5]:
        leaving.close()
    await asyncio.sleep(0.3)
    clients += [await ctx.start(_numbered(ctx, number)) for number in (6, 7)]
    await asyncio.sleep(0.1)
    turnstile.open()
    staying = [client for at, client in enumerate(clients) if at not in (3, 4)]
    answers = [await ctx.answer(client) for client in staying]
    check(all(answer.status == 200 for answer in answers), f"statuses {[a.status for a in answers]}")
    seen = sorted(turnstile.arrived)
    check(seen == ["0", "1", "2", "5", "6", "7"], f"backends saw {seen}")
    await ctx.expect_nothing_in_flight()
    return "two left, two took their places, backends never saw the two"


@case(
    "M3",
    "P1",
    "What somebody who is turned away hears",
    "429 or 503 with Retry-After and an error in the API's form, both when the line is full and too slow.",
    variants=(
        *every_kind("full"),
        *stream_and_whole("too slow"),
        Variant(Endpoint.MESSAGES, True, "too slow"),
    ),
    profile=SHORT_PATIENCE,
    needs={Capability.QUEUE},
    disturbs=True,
)
async def told_when_to_come_back(ctx: Context) -> Evidence:
    """Two run; the line is filled, or one waits until its time is up."""
    turnstile = Turnstile()
    full = ctx.variant.option == "full"
    clients = await _queue_up(ctx, turnstile, 2, 4 if full else 1)
    if full:
        told = _expect_refusal(await ctx.ask(_numbered(ctx, 99), seconds=3))
    else:
        told = _expect_refusal(await ctx.answer(clients[-1], seconds=4))
    turnstile.open()
    return told


@case(
    "M4",
    "P1",
    "A request runs longer than anybody may wait",
    "The time limit is for waiting only: whoever got a backend is served to the end.",
    variants=stream_and_whole(),
    profile=SHORT_PATIENCE,
    needs={Capability.QUEUE},
    disturbs=True,
)
async def waiting_is_not_running(ctx: Context) -> Evidence:
    """One waits a little for its backend and then runs for longer than the limit."""
    turnstile = Turnstile()
    clients = await _queue_up(ctx, turnstile, 2, 1)
    await asyncio.sleep(0.1)
    turnstile.let_go(0)
    await ctx.wait_until(lambda: len(turnstile.arrived) == 3, "the one in line at a backend")
    await asyncio.sleep(1.4)
    check(ctx.running_count == 2, f"{ctx.running_count} still run, 2 should")
    turnstile.open()
    answers = [await ctx.answer(client) for client in clients]
    check(all(answer.status == 200 for answer in answers), f"statuses {[a.status for a in answers]}")
    return "it ran for 1.4 s with a limit of less on waiting"


@case(
    "M5",
    "P1",
    "Nobody has set how many may wait",
    "There is a bound all the same: of 1,400 requests some are turned away, and none is lost.",
    profile=NO_LINE_SET,
    needs={Capability.QUEUE},
    disturbs=True,
    fresh=True,
    timeout_seconds=60,
)
async def bounded_by_default(ctx: Context) -> Evidence:
    """Two run. A line without an end is memory without an end, and answers that nobody waits for."""
    turnstile = Turnstile()
    ctx.script_all(turnstile.script)
    count = 1400
    clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(count)]

    def answered() -> int:
        return sum(bool(client.inbox.buffer) or client.inbox.ended for client in clients)

    before = -1
    while answered() != before:
        before = answered()
        await asyncio.sleep(0.4)
    check(before > 0, f"all {count} requests wait behind two")
    turnstile.open()
    statuses: Counter[int] = Counter()
    for client in clients:
        try:
            async with asyncio.timeout(8):
                statuses[(await client.answer()).status] += 1
        except (ClosedError, BrokenError, TimeoutError):
            statuses[0] += 1
    lost = {status: n for status, n in statuses.items() if status not in (200, *REFUSED)}
    check(not lost, f"statuses {dict(statuses)}; 0 stands for no answer")
    return f"statuses {dict(sorted(statuses.items()))} of {count}"


@case(
    "M7",
    "P2",
    "Requests that are turned away, give up, or wait in vain",
    "They leave nothing behind: memory is flat, and the line works as before.",
    profile=Profile(max_in_flight=1, queue_length=2, queue_timeout_seconds=0.05),
    needs={Capability.QUEUE, Capability.PROCESS},
    disturbs=True,
    fresh=True,
    timeout_seconds=60,
)
async def nothing_left_of_waiters(ctx: Context) -> Evidence:
    """Timers of waiters that are gone are what leaks in reports."""
    turnstile = Turnstile()
    clients = await _queue_up(ctx, turnstile, 1, 0)
    body = Endpoint.CHAT.request("x" * 20_000)
    data = request_bytes(Endpoint.CHAT.path, body)

    async def round_of(count: int) -> int:
        async def one_after_the_other() -> None:
            for at in range(count // 10):
                connection = await ctx.start(data)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1 if at % 10 == 0 else 0.005):
                        await connection.inbox.more()
                connection.close()

        await asyncio.gather(*(one_after_the_other() for _ in range(10)))
        return ctx.memory_bytes()

    await round_of(400)
    warm = await round_of(400)
    grown = min([await round_of(400), await round_of(800)]) - warm
    check(grown < 4 << 20, f"{grown / 2**20:+.1f} MiB over 1,200 requests that got no backend")
    turnstile.open()
    answers = [await ctx.answer(clients[0]), await ctx.ask()]
    check(all(answer.status == 200 for answer in answers), f"afterwards: {[a.status for a in answers]}")
    await ctx.expect_nothing_in_flight()
    return f"{grown / 2**20:+.1f} MiB over 1,200 requests that got no backend; then served again"


@case(
    "M8",
    "P2",
    "Requests with a priority",
    "`priority` is the engine's: it arrives unchanged and does not reorder the router's line.",
    variants=(Variant(), Variant(streaming=True)),
    profile=LINE,
    needs={Capability.QUEUE},
    disturbs=True,
)
async def priority_passes(ctx: Context) -> Evidence:
    """vLLM schedules by it; a router that did so as well would have to say how the two go together."""
    turnstile = Turnstile()
    ctx.script_all(turnstile.script)
    clients = []
    for number in range(5):
        fields = {"priority": -number}
        clients.append(
            await ctx.start(
                ctx.request(ctx.unique(f"number={number};"), fields=fields),
            )
        )
        await asyncio.sleep(0.03)
    turnstile.open()
    answers = [await ctx.answer(client) for client in clients]
    check(all(answer.status == 200 for answer in answers), f"statuses {[a.status for a in answers]}")
    arrived = sorted(
        (exchange for backend in ctx.backends for exchange in backend.exchanges),
        key=lambda exchange: exchange.started_at,
    )
    values = [exchange.json().get("priority") for exchange in arrived]
    check(sorted(values) == [-4, -3, -2, -1, 0], f"priorities at the backends: {values}")
    check(values[2:] == [-2, -3, -4], f"the line was reordered: {values}")
    return "all arrived; first come, first served"
