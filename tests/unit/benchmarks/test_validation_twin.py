from __future__ import annotations

from benchmarks.validation.sequence import Kind
from benchmarks.validation.served import Served
from benchmarks.validation.twin import EngineTwin, FleetTwin
from prefix_router.engine.limits import EngineLimits
from prefix_router.routing.fleet import BackendName
from prefix_router.routing.ring import point_of
from prefix_router.routing.strategies import build_strategy

BLOCK = 4
LIMITS = EngineLimits(BLOCK, step_token_budget=64, max_sequences=8)


def served(prompt: range, answer: range = range(1), number: int = 0) -> Served:
    # What vLLM said of it, which the twin must not look at.
    return Served(number, Kind.NEW, tuple(prompt), tuple(answer), cached_tokens=-1, backend="nobody")


def cached(twin: EngineTwin, *group: Served) -> list[int]:
    return [predicted.cached_tokens for predicted in twin.serve(group)]


def test_an_engine_remembers_what_it_has_served() -> None:
    twin = EngineTwin(100, LIMITS)
    assert cached(twin, served(range(10))) == [0]
    assert cached(twin, served(range(13))) == [8]


def test_answers_fill_blocks_too() -> None:
    twin = EngineTwin(100, LIMITS)
    cached(twin, served(range(6), answer=range(6, 13)))
    assert cached(twin, served(range(20))) == [12]


def test_the_others_of_a_group_are_served_together_after_the_first() -> None:
    twin = EngineTwin(100, LIMITS)
    group = [served(range(50)), served(range(100, 120)), served(range(100, 120)), served(range(50))]
    assert cached(twin, *group) == [0, 0, 16, 48]


def test_a_small_cache_forgets_and_preempts() -> None:
    twin = EngineTwin(10, LIMITS)
    cached(twin, served(range(32)))
    cached(twin, served(range(100, 132)))
    assert cached(twin, served(range(32)))[0] < 28
    cached(twin, *[served(range(n, n + 16), answer=range(20)) for n in (1000, 2000, 3000)])
    assert twin.counters.preemptions > 0


def fleet(strategy: str) -> FleetTwin:
    engines = {BackendName(name): EngineTwin(100, LIMITS) for name in ("a", "b")}
    return FleetTwin(engines, build_strategy(strategy, 10), lambda prompt: point_of(str(prompt[0])))


def test_a_fleet_routes_by_the_key_and_each_replica_has_a_cache_of_its_own() -> None:
    twin = fleet("prefix_aware")
    first = [twin.serve(served(range(n * 100, n * 100 + 20))) for n in range(1, 20)]
    again = [twin.serve(served(range(n * 100, n * 100 + 20))) for n in range(1, 20)]
    assert [one.backend for one in again] == [one.backend for one in first]
    assert {one.backend for one in first} == {"a", "b"}
    assert {one.cached_tokens for one in first} == {0}
    assert {one.cached_tokens for one in again} == {16}


def test_round_robin_finds_the_cache_cold_every_other_time() -> None:
    twin = fleet("round_robin")
    outcomes = [twin.serve(served(range(20))) for _ in range(4)]
    assert [one.cached_tokens for one in outcomes] == [0, 0, 16, 16]
    assert outcomes[0].backend != outcomes[1].backend
