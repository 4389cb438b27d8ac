"""Asking backends how they are: health, models, engine counters. One task per backend and question.

Rules that keep a probe from doing harm: one question of a kind in flight per backend, a generous timeout (a
busy vLLM answers `/health` late), a connection of its own (so that "accepts connections" is tested),
intervals with jitter (so that many routers do not ask in step), answers bounded in size, and a backend out
of service asked more often, because somebody waits for it.

A backend that the store calls warming is asked in the same way until it has shown what it must
(`ProbeOptions.warm_up`), or until its time for that is over; then it is a backend like the others.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

import msgspec

from prefix_router.observe.events import EngineSample, Observer
from prefix_router.observe.startup import StartupPhase, Startups
from prefix_router.openai_api.engine_metrics import parse_engine_metrics
from prefix_router.openai_api.headers import question_head
from prefix_router.proxy.fleet_store import FleetStore, ServedModel
from prefix_router.proxy.tasks import TaskGroup
from prefix_router.proxy.upstreams import Address, Upstreams, login_of
from prefix_router.proxy.warm_up import generate
from prefix_router.routing.fleet import Backend, BackendName, BackendState
from prefix_router.routing.health import HealthEvent
from prefix_router.upstream.errors import ErrorKind, UpstreamError
from prefix_router.upstream.pool import Timeouts

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 8 * 1024 * 1024
_RECOVERY_INTERVAL_SECONDS = 1.0
_JITTER = 0.1
_REFRESH_MIN_INTERVAL_SECONDS = 1.0
_REFRESH_MAX_WAIT_SECONDS = 1.0


class WarmUp(Enum):
    """What a backend that joins must show before it takes traffic."""

    OFF = "off"
    HEALTH = "health"
    GENERATE = "generate"


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """What to ask and how often (seconds). An interval of 0 turns models or engine metrics off.

    warm_up_seconds: how long a backend may take to show what `warm_up` asks for.
    """

    health_path: str
    health_interval_seconds: float
    health_timeout_seconds: float
    models_refresh_seconds: float
    engine_metrics_path: str
    engine_metrics_interval_seconds: float
    warm_up: WarmUp = WarmUp.OFF
    warm_up_seconds: float = 120.0


class _Entry(msgspec.Struct):
    id: str


class _ModelList(msgspec.Struct):
    data: list[msgspec.Raw]


class Prober:
    """Keeps the fleet store true. `sync` starts and stops tasks as backends come and go."""

    def __init__(
        self,
        store: FleetStore,
        upstreams: Upstreams,
        observer: Observer,
        options: ProbeOptions,
        startups: Startups | None = None,
    ) -> None:
        """startups: is told what a backend that joins has reached."""
        self._store = store
        self._upstreams = upstreams
        self._observer = observer
        self._options = options
        self._startups = startups
        self._tasks = TaskGroup()
        self._running: dict[BackendName, tuple[Backend, list[asyncio.Task[None]]]] = {}
        self._answered: set[BackendName] = set()
        self._first_round_done = False
        self._random = random.Random()
        self._refresh: asyncio.Task[None] | None = None
        self._refreshed_at = float("-inf")

    @property
    def first_round_done(self) -> bool:
        """Whether every backend has been asked once, whatever it said. Who joins later is not waited for."""
        if not self._first_round_done:
            self._first_round_done = self._answered.issuperset(self._running)
        return self._first_round_done

    @property
    def asked(self) -> frozenset[BackendName]:
        """The backends that are being asked."""
        return frozenset(self._running)

    @property
    def task_count(self) -> int:
        """How many tasks there are, those included that have been cancelled and not ended yet."""
        return len(self._tasks)

    def sync(self, backends: Iterable[Backend], options: ProbeOptions | None = None) -> None:
        """Ask exactly these backends from now on, new ones at once; all at once when `options` are new."""
        wanted = {backend.name: backend for backend in backends}
        all_anew = options is not None and options != self._options
        self._options = options or self._options
        for name, (backend, tasks) in list(self._running.items()):
            known = wanted.get(name)
            same_url = known is not None and known.url == backend.url
            if not same_url:
                self._answered.discard(name)
            # By another login or name it may answer, or list, what it did not before.
            if known is None or not same_url or _asked_otherwise(backend, known) or all_anew:
                for task in tasks:
                    task.cancel()
                del self._running[name]
        for name, backend in wanted.items():
            if name not in self._running:
                tasks = [self._tasks.start(f"probe:{name}", self._watch_health(backend))]
                if self._options.engine_metrics_interval_seconds > 0:
                    tasks.append(self._tasks.start(f"engine-metrics:{name}", self._watch_engine(backend)))
                self._running[name] = (backend, tasks)

    async def stop(self) -> None:
        """End all tasks."""
        self._running.clear()
        await self._tasks.stop()

    async def refresh_models(self) -> None:
        """Ask all backends for their models now; at most once a second, and waits at most one second."""
        if self._options.models_refresh_seconds <= 0:
            return
        now = asyncio.get_running_loop().time()
        if self._refresh is None or self._refresh.done():
            if now - self._refreshed_at < _REFRESH_MIN_INTERVAL_SECONDS:
                return
            self._refreshed_at = now
            self._refresh = self._tasks.start("refresh-models", self._ask_all_models())
        await asyncio.wait([self._refresh], timeout=_REFRESH_MAX_WAIT_SECONDS)

    async def _ask_all_models(self) -> None:
        backends = [backend for backend, _ in self._running.values()]
        await asyncio.gather(*(self._ask_models(backend) for backend in backends))

    async def _watch_health(self, backend: Backend) -> None:
        models_due = asyncio.get_running_loop().time()
        if self._state(backend) is BackendState.WARMING:
            await self._warm_up(backend)
        while True:
            try:
                models_due = await self._probe(backend, models_due)
            except Exception:
                # Whatever it was, a backend that nobody asks any more would never come back.
                logger.exception("probe of %s failed in the router", backend.name)
            await self._pause(backend)

    async def _warm_up(self, backend: Backend) -> None:
        """Ask until the backend is warm, or its time for that is over. It is never left warming.

        It gets its whole time anew when it has to be asked in another way.
        """
        if self._options.warm_up is WarmUp.OFF:
            self._store.report(backend, HealthEvent.WARM_UP_OVER, "warm-up is off")
            return
        seconds = self._options.warm_up_seconds
        try:
            async with asyncio.timeout(seconds):
                while not await self._got_warm(backend):  # noqa: ASYNC110  (it asks the backend)
                    await asyncio.sleep(self._jittered(_RECOVERY_INTERVAL_SECONDS))
        except TimeoutError:
            logger.warning(
                "backend %s is not warm after %g s: it takes traffic anyway", backend.name, seconds
            )
        except Exception:
            logger.exception("warm-up of %s failed in the router: it takes traffic anyway", backend.name)
        else:
            self._reached(backend, StartupPhase.WARMED)
            self._store.report(backend, HealthEvent.WARMED)
            return
        self._store.report(backend, HealthEvent.WARM_UP_OVER)

    async def _got_warm(self, backend: Backend) -> bool:
        event, _ = await self._ask_health(backend)
        self._answered.add(backend.name)
        if event is not HealthEvent.PROBE_OK:
            return False
        await self._ask_models(backend)
        if self._options.warm_up is WarmUp.HEALTH:
            return True
        trouble = await generate(self._upstreams, backend, self._first_model(backend))
        if trouble is not None:
            logger.info("backend %s is not warm yet: its first generation: %s", backend.name, trouble)
        return trouble is None

    def _first_model(self, backend: Backend) -> str | None:
        """The first model that it lists, or by name of those it is declared to serve; None when unknown."""
        if backend.models is not None:
            return min(backend.models, default=None)
        member = self._store.fleet.by_name.get(backend.name)
        listed = None if member is None else self._store.models(backend.name)
        return listed[0].id if listed else None

    def _reached(self, backend: Backend, phase: StartupPhase) -> None:
        if self._startups is not None:
            self._startups.reached(backend.name, phase)

    async def _probe(self, backend: Backend, models_due: float) -> float:
        """Ask once for health, and for models when that is due; return when they are due next."""
        loop = asyncio.get_running_loop()
        was_down = self._state(backend) is BackendState.DOWN
        event, cause = await self._ask_health(backend)
        if event is HealthEvent.PROBE_OK and (loop.time() >= models_due or was_down):
            # Before the state changes: who was down may be another process with other models now.
            await self._ask_models(backend)
            refresh = self._options.models_refresh_seconds
            models_due = loop.time() + self._jittered(refresh) if refresh > 0 else float("inf")
        if event is not None:
            self._store.report(backend, event, cause)
        self._answered.add(backend.name)
        return models_due

    async def _pause(self, backend: Backend) -> None:
        """Wait for the next probe: the interval, or less as soon as the backend is out of service."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._jittered(self._options.health_interval_seconds)
        while (left := due - loop.time()) > 0:
            await asyncio.sleep(min(left, self._jittered(_RECOVERY_INTERVAL_SECONDS)))
            if self._state(backend) is not BackendState.HEALTHY:
                return

    async def _watch_engine(self, backend: Backend) -> None:
        interval = self._options.engine_metrics_interval_seconds
        await asyncio.sleep(interval * self._random.random())
        while True:
            with suppress(UpstreamError, TimeoutError):
                status, body = await self._get(backend, self._options.engine_metrics_path)
                if status == 200:
                    sample = parse_engine_metrics(body)
                    self._observer.engine_sampled(
                        EngineSample(
                            backend.name,
                            requests_running=sample.requests_running,
                            requests_waiting=sample.requests_waiting,
                            kv_cache_usage_ratio=sample.kv_cache_usage_ratio,
                            prefix_cache_queried_tokens=sample.prefix_cache_queried_tokens,
                            prefix_cache_hit_tokens=sample.prefix_cache_hit_tokens,
                        )
                    )
            await asyncio.sleep(self._jittered(interval))

    async def _ask_health(self, backend: Backend) -> tuple[HealthEvent | None, str]:
        try:
            status, _ = await self._get(backend, self._options.health_path)
        except UpstreamError as error:
            if error.kind is ErrorKind.EXHAUSTED:
                return None, ""
            refused = error.kind is ErrorKind.UNREACHABLE
            return HealthEvent.UNREACHABLE if refused else HealthEvent.PROBE_BAD, f"probe: {error}"
        except TimeoutError:
            return HealthEvent.PROBE_BAD, f"probe: none within {self._options.health_timeout_seconds:g} s"
        self._reached(backend, StartupPhase.REACHABLE)
        if 200 <= status < 300:
            self._reached(backend, StartupPhase.HEALTHY)
            return HealthEvent.PROBE_OK, "probe"
        return HealthEvent.PROBE_BAD, f"probe: status {status}"

    async def _ask_models(self, backend: Backend) -> None:
        if self._options.models_refresh_seconds <= 0 or backend.models is not None:
            return
        with suppress(UpstreamError, TimeoutError):
            status, body = await self._get(backend, "/v1/models")
            if status == 200:
                self._store.set_models(backend, _served_models(body))
            elif status in (404, 405, 501):
                self._store.set_models(backend, None)

    async def _get(self, backend: Backend, path: str) -> tuple[int, bytes]:
        """Return status and body. Raises UpstreamError, TimeoutError."""
        address = Address.of(backend.url, backend.server_name)
        seconds = self._options.health_timeout_seconds
        pool = self._upstreams.pool(address, Timeouts(seconds, seconds, seconds, keepalive_seconds=0))
        head = question_head(address.path + path.encode(), address.host_header, login_of(backend))
        async with asyncio.timeout(seconds):
            response = await pool.send(b"GET", head)
            try:
                body = bytearray()
                while chunk := await response.read():
                    body += chunk
                    if len(body) > MAX_ANSWER_BYTES:
                        raise UpstreamError(ErrorKind.BAD_RESPONSE, f"over {MAX_ANSWER_BYTES} bytes")
                return response.status, bytes(body)
            finally:
                response.abort()

    def _state(self, backend: Backend) -> BackendState:
        member = self._store.fleet.by_name.get(backend.name)
        return BackendState.STARTING if member is None else member.state

    def _jittered(self, seconds: float) -> float:
        return seconds * self._random.uniform(1 - _JITTER, 1 + _JITTER)


def _asked_otherwise(before: Backend, after: Backend) -> bool:
    return (before.models, before.server_name, before.authorization) != (
        after.models,
        after.server_name,
        after.authorization,
    )


def _served_models(body: bytes) -> tuple[ServedModel, ...] | None:
    """Read a `/v1/models` body; None when it is not one. Each object is kept as it was written."""
    try:
        entries = msgspec.json.decode(body, type=_ModelList).data
        return tuple(
            ServedModel(msgspec.json.decode(entry, type=_Entry).id, bytes(entry)) for entry in entries
        )
    except (msgspec.DecodeError, RecursionError):
        return None
