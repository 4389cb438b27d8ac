from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from prefix_router.proxy.fleet_store import FleetStore
from prefix_router.proxy.probes import MAX_ANSWER_BYTES, ProbeOptions, Prober
from prefix_router.proxy.upstreams import Upstreams
from prefix_router.routing.fleet import Backend, BackendName, BackendState
from prefix_router.routing.health import HealthPolicy
from prefix_router.upstream.pool import Timeouts
from tests.support.events import Recorder
from tests.support.router import until
from tests.support.scripted_backend import Conversation, ScriptedBackend


class Engine:
    """A backend whose answers to probes can be changed while it runs."""

    def __init__(self) -> None:
        self.health = 200
        self.models: Any = {"data": [{"id": "m", "extra": 1}]}
        self.models_status = 200
        self.metrics = b"vllm:num_requests_running 3\n"
        self.asked: list[str] = []

    async def __call__(self, conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            self.asked.append(request.target)
            if request.target == "/health":
                await conversation.respond(self.health, b"")
            elif request.target == "/v1/models":
                body = self.models if isinstance(self.models, bytes) else json.dumps(self.models).encode()
                await conversation.respond(self.models_status, body)
            else:
                await conversation.respond(200, self.metrics)


@asynccontextmanager
async def probing(
    engine: Engine, **changes: Any
) -> AsyncIterator[tuple[FleetStore, Recorder, Prober, ScriptedBackend]]:
    options = {
        "health_path": "/health",
        "health_interval_seconds": 0.02,
        "health_timeout_seconds": 1.0,
        "models_refresh_seconds": 30.0,
        "engine_metrics_path": "/metrics",
        "engine_metrics_interval_seconds": 0.0,
        **changes,
    }
    async with ScriptedBackend(engine) as server:
        recorder = Recorder()
        backend = Backend(BackendName("a"), server.url)
        policy = HealthPolicy(probe_failures=2, cooldown_seconds=0.05, max_ejected_fraction=1.0)
        import time

        store = FleetStore([backend], virtual_nodes=4, policy=policy, observer=recorder, clock=time.monotonic)
        prober = Prober(store, Upstreams(Timeouts()), recorder, ProbeOptions(**options))
        prober.sync([backend])
        try:
            yield store, recorder, prober, server
        finally:
            await prober.stop()


def state(store: FleetStore) -> BackendState:
    return store.fleet.members[0].state


async def test_the_first_round_makes_a_backend_healthy_and_knows_its_models() -> None:
    async with probing(Engine()) as (store, _, prober, _server):
        assert not prober.first_round_done
        await until(lambda: prober.first_round_done)
        assert state(store) is BackendState.HEALTHY
        assert store.fleet.members[0].models == frozenset({"m"})
        served = store.served_models()[BackendName("a")]
        assert served is not None
        assert json.loads(served[0].json) == {"id": "m", "extra": 1}


async def test_bad_probes_eject_and_good_ones_bring_back() -> None:
    engine = Engine()
    async with probing(engine) as (store, recorder, _, _server):
        await until(lambda: state(store) is BackendState.HEALTHY)
        engine.health = 500
        await until(lambda: state(store) is BackendState.EJECTED)
        engine.health = 200
        await until(lambda: state(store) is BackendState.HEALTHY)
    assert [event.after.value for event in recorder.changed] == ["healthy", "ejected", "half_open", "healthy"]
    assert recorder.changed[1].cause == "probe: status 500"


async def test_a_refused_probe_is_down_at_once_and_a_restart_is_asked_for_its_models() -> None:
    engine = Engine()
    async with probing(engine) as (store, recorder, _, server):
        await until(lambda: state(store) is BackendState.HEALTHY)
        await server.stop()
        await until(lambda: state(store) is BackendState.DOWN)
        assert "refused" in recorder.changed[-1].cause.lower()
        engine.models = {"data": [{"id": "new"}]}
        await server.start()
        await until(lambda: state(store) is BackendState.HEALTHY)
        assert store.fleet.members[0].models == frozenset({"new"})


async def test_a_probe_that_gets_no_answer_in_time_counts_as_bad() -> None:
    async def silent(conversation: Conversation) -> None:
        await conversation.client_gone()

    async with probing(silent, health_timeout_seconds=0.03) as (store, _, _, _server):  # type: ignore[arg-type]
        await until(lambda: state(store) is BackendState.EJECTED)


@pytest.mark.parametrize(
    ("models", "status"),
    [
        (b"no json", 200),
        ({"data": "x"}, 200),
        ({"data": [{"no": "id"}]}, 200),
        ({}, 404),
        (b"[" * 99_999, 200),
    ],
)
async def test_a_backend_without_a_usable_list_may_serve_anything(models: Any, status: int) -> None:
    engine = Engine()
    engine.models, engine.models_status = models, status
    async with probing(engine) as (store, _, prober, _server):
        await until(lambda: prober.first_round_done)
        assert store.fleet.members[0].models is None
        assert state(store) is BackendState.HEALTHY


async def test_a_list_that_fails_once_is_not_forgotten() -> None:
    engine = Engine()
    async with probing(engine, models_refresh_seconds=0.01) as (store, _, prober, _server):
        await until(lambda: prober.first_round_done)
        engine.models_status = 500
        asked = len(engine.asked)
        await until(lambda: engine.asked[asked:].count("/v1/models") >= 3)
        assert store.fleet.members[0].models == frozenset({"m"})


async def test_models_are_not_asked_for_when_that_is_off() -> None:
    engine = Engine()
    async with probing(engine, models_refresh_seconds=0) as (_, _, prober, _server):
        await until(lambda: engine.asked.count("/health") >= 3)
        await prober.refresh_models()
    assert "/v1/models" not in engine.asked


async def test_a_refresh_asks_at_once_but_not_again_within_a_second() -> None:
    engine = Engine()
    async with probing(engine, models_refresh_seconds=3600) as (store, _, prober, _server):
        await until(lambda: prober.first_round_done)
        engine.models = {"data": [{"id": "loaded"}]}
        await prober.refresh_models()
        assert store.fleet.members[0].models == frozenset({"loaded"})
        count = engine.asked.count("/v1/models")
        await prober.refresh_models()
        assert engine.asked.count("/v1/models") == count


async def test_engine_metrics_are_sampled() -> None:
    async with probing(Engine(), engine_metrics_interval_seconds=0.02) as (_, recorder, _, _server):
        await until(lambda: bool(recorder.samples))
    assert recorder.samples[0].requests_running == 3
    assert recorder.samples[0].backend == "a"


async def test_an_endless_answer_is_cut_off() -> None:
    async def endless(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.start_stream()
        sent = 0
        while True:
            await conversation.chunk(b"x" * 65536)
            sent += 65536
            assert sent < MAX_ANSWER_BYTES * 8

    async with probing(endless) as (store, recorder, _, _server):  # type: ignore[arg-type]
        await until(lambda: state(store) is BackendState.EJECTED, 20)
    assert "over" in recorder.changed[-1].cause


async def test_sync_asks_exactly_the_backends_it_was_given() -> None:
    one, two = Engine(), Engine()
    async with probing(one) as (store, _, prober, _server), ScriptedBackend(two) as other:
        await until(lambda: prober.first_round_done)
        moved = Backend(BackendName("a"), other.url)
        store.replace_backends([moved])
        prober.sync([moved])
        await until(lambda: two.asked)
        before = len(one.asked)
        await until(lambda: len(two.asked) >= 4)
        assert len(one.asked) <= before + 1


async def test_who_joins_is_asked_at_once_and_does_not_make_the_router_unready() -> None:
    two = Engine()
    async with probing(Engine(), health_interval_seconds=3600.0) as (store, _, prober, _server):
        await until(lambda: prober.first_round_done)
        async with ScriptedBackend(two) as other:
            joined = [store.fleet.members[0].backend, Backend(BackendName("b"), other.url)]
            store.replace_backends(joined)
            prober.sync(joined)
            assert prober.first_round_done
            await until(lambda: store.fleet.by_name[BackendName("b")].state is BackendState.HEALTHY)


async def test_new_options_hold_at_once_for_all() -> None:
    engine = Engine()
    async with probing(engine, health_interval_seconds=3600.0) as (store, _, prober, _server):
        await until(lambda: prober.first_round_done)
        options = ProbeOptions("/up", 3600.0, 1.0, 0.0, "/metrics", 0.01)
        prober.sync([store.fleet.members[0].backend], options)
        await until(lambda: "/up" in engine.asked)
        await until(lambda: "/metrics" in engine.asked)


async def test_equal_options_and_another_weight_disturb_no_probe() -> None:
    engine = Engine()
    async with probing(engine, health_interval_seconds=3600.0) as (store, _, prober, _server):
        await until(lambda: prober.first_round_done)
        backend = store.fleet.members[0].backend
        asked = len(engine.asked)
        options = ProbeOptions("/health", 3600.0, 1.0, 30.0, "/metrics", 0.0)
        for weight in range(2, 10):
            prober.sync([Backend(backend.name, backend.url, weight)], options)
        await until(lambda: prober.task_count == 1)
        assert len(engine.asked) == asked


async def test_another_login_is_tried_at_once() -> None:
    engine = Engine()
    async with probing(engine, health_interval_seconds=3600.0) as (store, _, prober, server):
        await until(lambda: prober.first_round_done)
        backend = replace(store.fleet.members[0].backend, authorization="Bearer k")
        prober.sync([backend])
        await until(lambda: server.requests[-1].header("authorization") == "Bearer k")
        assert prober.task_count == 1


async def test_a_hundred_changes_of_membership_leave_one_task_for_each_backend() -> None:
    backends = [Backend(BackendName(name), f"http://127.0.0.1:{1 + at}") for at, name in enumerate("bcd")]
    async with probing(Engine(), engine_metrics_interval_seconds=60.0) as (store, _, prober, _server):
        first = store.fleet.members[0].backend
        for turn in range(100):
            prober.sync([first, *backends[: turn % 4]])
        assert prober.asked == {"a", "b", "c", "d"}
        await until(lambda: prober.task_count == 8)
        prober.sync([])
        await until(lambda: prober.task_count == 0)
