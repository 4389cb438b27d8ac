"""Whatever ends a request, and at whichever await: every lease is given back, and it is reported once.

First systematically: each way a request can go is cancelled, cut and failed at its first await, its second,
and so on until it runs through. Then as a state machine: many requests at once, in any interleaving, while
backends fail, leave and come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prefix_router.observe.events import Outcome
from prefix_router.routing.health import HealthEvent
from prefix_router.upstream.errors import ErrorKind, UpstreamError
from tests.support.data_path import Client, DataPath, Play, Side

STREAM = Play(
    chunks=(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', b"data: [DONE]\n\n"),
    content_type=b"text/event-stream",
)
MULTIPART = {"Content-Type": "multipart/form-data; boundary=x"}

WAYS: dict[str, dict[str, Any]] = {
    "a whole answer": {"plays": [Play()]},
    "a stream": {"plays": [STREAM]},
    "an error of the backend": {"plays": [Play(500)]},
    "refused, then answered": {"plays": [Play(fails=ErrorKind.UNREACHABLE), Play()]},
    "reset, then answered": {"plays": [Play(fails=ErrorKind.RESET), STREAM]},
    "garbage twice": {"plays": [Play(fails=ErrorKind.BAD_RESPONSE)]},
    "nobody reachable": {"plays": [Play(fails=ErrorKind.UNREACHABLE)]},
    "full, then answered": {"plays": [Play(503), STREAM]},
    "everybody full": {"plays": [Play(429)]},
    "no first byte": {"plays": [Play(fails=ErrorKind.FIRST_BYTE_TIMEOUT)]},
    "a stream that breaks off": {"plays": [Play(chunks=STREAM.chunks[:1], breaks=True)]},
    "an answer that breaks off at once": {"plays": [Play(chunks=(), breaks=True)]},
    "a chunked upload": {
        "plays": [Play()],
        "headers": {**MULTIPART, "Transfer-Encoding": "chunked"},
        "body": (b"a", b"b", b"c"),
    },
    "an upload that is refused first": {
        "plays": [Play(fails=ErrorKind.UNREACHABLE), Play()],
        "headers": MULTIPART,
        "body": (b"a", b"b"),
    },
    "a body that waits for 100-continue": {"plays": [STREAM], "headers": {"Expect": "100-continue"}},
    "a HEAD request": {"plays": [Play(chunks=())], "method": "HEAD", "path": "/x", "body": ()},
}


class GoOn:
    """A stage where everything is ready, after one turn of the loop; a failure may wait at the n-th step."""

    def __init__(self, fail_at: int = 0, error: Callable[[Side], Exception] | None = None) -> None:
        self.steps = 0
        self._fail_at = fail_at
        self._error = error

    async def step(self, client: Client, side: Side) -> None:
        self.steps += 1
        number = self.steps
        await asyncio.sleep(0)
        if number == self._fail_at and self._error is not None:
            raise self._error(side)


class CancelledAt:
    """Awaits a coroutine, and cancels the task that does so at the n-th await at which it really waits."""

    def __init__(self, awaitable: Awaitable[Any], at: int, before: Callable[[], None]) -> None:
        self._inner = awaitable.__await__()
        self._at = at
        self._before = before
        self.reached = False

    def __await__(self) -> Generator[Any, Any, Any]:
        waits = 0
        try:
            yielded = next(self._inner)
            while True:
                waits += 1
                if waits == self._at:
                    self.reached = True
                    self._before()
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()
                try:
                    sent = yield yielded
                except BaseException as error:  # noqa: BLE001  (handed on, whatever it is)
                    yielded = self._inner.throw(error)
                else:
                    yielded = self._inner.send(sent)
        except StopIteration as end:
            return end.value


def assert_balanced(path: DataPath, client: Client) -> None:
    """All is given back, the request is reported once, and nothing went twice after its first byte."""
    assert [counter.count for counter in path.counters] == [0] * len(path.counters)
    assert [counter.trials for counter in path.counters] == [0] * len(path.counters)
    assert path.under_way == (0, 0)
    assert path.handler.active == 0
    assert len(path.recorder.finished) == 1
    assert not [attempt for attempt in client.attempts if attempt.open]
    assert [attempt.written_before for attempt in client.attempts] == [0] * len(client.attempts)


def half_open(path: DataPath) -> None:
    """Make every lease a trial."""
    for member in path.router.store.fleet.members:
        path.router.store.report(member.backend, HealthEvent.UNREACHABLE)
        path.router.store.report(member.backend, HealthEvent.PROBE_OK)


@pytest.mark.parametrize("trial", [False, True], ids=["in service", "half-open"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_request_that_runs_through_leaves_nothing(way: str, trial: bool) -> None:
    path = DataPath(3)
    if trial:
        half_open(path)
    client = Client(GoOn(), **_fresh(WAYS[way]))
    await path.serve(client)
    assert_balanced(path, client)
    assert client.attempts


@pytest.mark.parametrize("leaves", [False, True], ids=["router stops", "client leaves"])
@pytest.mark.parametrize("trial", [False, True], ids=["in service", "half-open"])
@pytest.mark.parametrize("way", WAYS)
async def test_cancelled_at_any_await_a_request_leaves_nothing(way: str, trial: bool, leaves: bool) -> None:
    at, reached = 0, True
    while reached:
        at += 1
        path = DataPath(3)
        if trial:
            half_open(path)
        client = Client(GoOn(), **_fresh(WAYS[way]))

        def before(client: Client = client) -> None:
            client.gone = client.gone or leaves

        cancelled = CancelledAt(path.serve(client), at, before)

        async def run(cancelled: CancelledAt = cancelled) -> None:
            await cancelled

        (ended,) = await asyncio.gather(asyncio.create_task(run()), return_exceptions=True)
        reached = cancelled.reached
        assert not reached or isinstance(ended, asyncio.CancelledError)
        assert_balanced(path, client)
        if reached:
            # A client that has got the terminal event already has what it asked for, and counts so.
            ended_well = way_is_told(client)
            assert path.recorder.finished[0].outcome is Outcome.CLIENT_DISCONNECTED or ended_well
    assert at > 1


def way_is_told(client: Client) -> bool:
    """Whether the terminal event of a stream had been written."""
    return b"[DONE]" in client.answer


@dataclass(frozen=True)
class Mishap:
    """What goes wrong at a step, by whose it is."""

    name: str
    error: Callable[[Side], Exception]


def _broken_peer(side: Side) -> Exception:
    if side is Side.CLIENT:
        return ConnectionResetError("played")
    kind = ErrorKind.RESET if side is Side.BACKEND_BEFORE_HEAD else ErrorKind.TRUNCATED
    return UpstreamError(kind, "played")


def _silent_backend(side: Side) -> Exception:
    if side is Side.CLIENT:
        return ConnectionResetError("played")
    before = side is Side.BACKEND_BEFORE_HEAD
    return UpstreamError(ErrorKind.FIRST_BYTE_TIMEOUT if before else ErrorKind.IDLE_TIMEOUT, "played")


def _bug(_: Side) -> Exception:
    return LookupError("a mistake of our own")


MISHAPS = (
    Mishap("the peer breaks", _broken_peer),
    Mishap("silence", _silent_backend),
    Mishap("a bug", _bug),
)


@pytest.mark.parametrize("mishap", MISHAPS, ids=lambda mishap: mishap.name)
@pytest.mark.parametrize("way", WAYS)
async def test_failed_at_any_await_a_request_leaves_nothing(way: str, mishap: Mishap) -> None:
    at, steps = 0, 1
    while at < steps:
        at += 1
        path = DataPath(3)
        half_open(path)
        stage = GoOn(at, mishap.error)
        client = Client(stage, **_fresh(WAYS[way]))
        await path.serve(client)
        steps = max(stage.steps, at) if stage.steps >= at else 0
        assert_balanced(path, client)


@pytest.mark.parametrize("turns", range(12))
async def test_a_place_given_to_a_request_that_is_cancelled_goes_to_the_next_in_line(turns: int) -> None:
    path = DataPath(1, limits={"max_in_flight_per_backend": 1})
    gates = Gates()
    clients = [Client(gates, [Play(chunks=())], paused=False) for _ in range(3)]
    tasks = []
    for waiting, client in enumerate(clients):
        tasks.append(asyncio.create_task(path.serve(client)))
        await gates.reached_by(client)
        gates.open(client)  # the body of the request
        while path.under_way != (waiting, 1):
            await asyncio.sleep(0)
    assert path.under_way == (2, 1)
    first, _, third = clients
    await gates.reached_by(first)
    gates.open(first)
    await gates.reached_by(first)
    gates.open(first)  # the end of the response: its lease goes to the second
    for _ in range(turns):
        await asyncio.sleep(0)
    tasks[1].cancel()
    while not tasks[2].done():
        gates.open(third)
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert third.answer.startswith(b"HTTP/1.1 200")
    assert path.under_way == (0, 0)
    assert [counter.count for counter in path.counters] == [0]
    assert len(path.recorder.finished) == len(clients)


def _fresh(way: dict[str, Any]) -> dict[str, Any]:
    return {name: dict(value) if isinstance(value, dict) else value for name, value in way.items()}


class Gates:
    """A stage where everybody waits until the machine lets one go on."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Client, Side, asyncio.Future[None]]] = []

    async def step(self, client: Client, side: Side) -> None:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (client, side, gate)
        self.waiting.append(entry)
        try:
            await gate
        finally:
            self.waiting.remove(entry)

    def of(self, client: Client) -> list[asyncio.Future[None]]:
        """The gates at which a client waits: none or one."""
        return [gate for whose, _, gate in self.waiting if whose is client and not gate.done()]

    async def reached_by(self, client: Client) -> None:
        """Wait until a client waits."""
        while not self.of(client):
            await asyncio.sleep(0)

    def open(self, client: Client) -> None:
        """Let a client go on, if it waits."""
        for gate in self.of(client):
            gate.set_result(None)


BACKENDS, CAP = 3, 2
picks = st.integers(0, 2**16)


class Leases(RuleBasedStateMachine):
    """Many requests at once. The model is one sentence: a live request holds one lease while it is with a
    backend, and none otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.gates = Gates()
        self.path = self._run(self._compose())
        self.all_backends = [member.backend for member in self.path.router.store.fleet.members]
        self.counters = set(self.path.counters)
        self.live: list[tuple[Client, asyncio.Task[Any]]] = []
        self.begun = 0

    async def _compose(self) -> DataPath:
        return DataPath(
            BACKENDS,
            health={"request_failures": 2, "cooldown_seconds": 0.01},
            limits={"max_in_flight_per_backend": CAP, "max_in_flight": BACKENDS * CAP - 1},
            queue={"max_waiting": 3},
        )

    def _run(self, awaitable: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(awaitable)

    def _settle(self) -> None:
        """Let the loop run until everybody waits at a gate."""

        async def turns() -> None:
            for _ in range(25):
                await asyncio.sleep(0)

        self._run(turns())
        self.live = [(client, task) for client, task in self.live if not task.done()]

    def _gate(self, pick: int) -> tuple[Client, Side, asyncio.Future[None]]:
        return self.gates.waiting[pick % len(self.gates.waiting)]

    @rule(way=st.sampled_from(sorted(WAYS)))
    def begin(self, way: str) -> None:
        client = Client(self.gates, **_fresh(WAYS[way]))
        self.live.append((client, self.loop.create_task(self.path.serve(client))))
        self.begun += 1
        self._settle()

    @precondition(lambda self: self.gates.waiting)
    @rule(pick=picks)
    def go_on(self, pick: int) -> None:
        self._gate(pick)[2].set_result(None)
        self._settle()

    @precondition(lambda self: self.gates.waiting)
    @rule(pick=picks, mishap=st.sampled_from(MISHAPS[:2]))
    def fail(self, pick: int, mishap: Mishap) -> None:
        _, side, gate = self._gate(pick)
        gate.set_exception(mishap.error(side))
        self._settle()

    @precondition(lambda self: self.live)
    @rule(pick=picks, leaves=st.booleans())
    def cancel(self, pick: int, leaves: bool) -> None:
        client, task = self.live[pick % len(self.live)]
        client.gone = client.gone or leaves
        task.cancel()
        self._settle()

    @precondition(lambda self: self.gates.waiting)
    @rule(pick=picks, other=picks, turns=st.integers(0, 4))
    def go_on_and_cancel_another(self, pick: int, other: int, turns: int) -> None:
        """A lease that is given back may have gone to the very request that is cancelled."""
        self._gate(pick)[2].set_result(None)
        for _ in range(turns):
            self._run(asyncio.sleep(0))
        self.live[other % len(self.live)][1].cancel()
        self._settle()

    @rule(pick=picks, event=st.sampled_from(HealthEvent))
    def evidence(self, pick: int, event: HealthEvent) -> None:
        self.path.router.store.report(self.all_backends[pick % BACKENDS], event)

    @rule(stay=st.sets(st.integers(0, BACKENDS - 1), min_size=1))
    def reload(self, stay: set[int]) -> None:
        """Backends leave and come back; whoever comes back gets a new count."""
        self.path.router.store.replace_backends([self.all_backends[index] for index in sorted(stay)])
        self.counters.update(self.path.counters)

    @invariant()
    def a_live_request_holds_one_lease_while_it_is_with_a_backend(self) -> None:
        held = sum(bool(client.attempts) and not client.attempts[-1].over for client, _ in self.live)
        assert sum(counter.count for counter in self.counters) == held
        assert self.path.under_way[1] == held
        assert all(0 <= counter.trials <= counter.count <= CAP for counter in self.counters)

    @invariant()
    def each_request_is_reported_once_at_its_end(self) -> None:
        assert len(self.path.recorder.finished) == self.begun - len(self.live)

    @invariant()
    def nothing_is_sent_again_after_the_first_byte(self) -> None:
        for client, _ in self.live:
            assert not any(attempt.written_before for attempt in client.attempts)

    def teardown(self) -> None:
        for _, task in self.live:
            task.cancel()
        try:
            self._settle()
            assert not self.live
            assert [counter.count for counter in self.counters] == [0] * len(self.counters)
            assert [counter.trials for counter in self.counters] == [0] * len(self.counters)
            assert self.path.under_way == (0, 0)
        finally:
            self._run(self.loop.shutdown_asyncgens())
            self.loop.close()


TestLeases = Leases.TestCase
TestLeases.settings = hypothesis_settings(max_examples=40, stateful_step_count=40, deadline=None)
