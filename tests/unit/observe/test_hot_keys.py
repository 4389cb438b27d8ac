from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from prefix_router.observe.events import RequestRecord
from prefix_router.observe.hot_keys import CAPACITY, HALF_LIFE_SECONDS, MAX_PLACES, HotKeys
from prefix_router.routing.fleet import BackendName


class Clock:
    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(clock: Clock) -> HotKeys:
    keys = HotKeys(clock)
    keys.set_backends([BackendName(name) for name in ("a", "b")])
    return keys


def changed(record: RequestRecord, **fields: Any) -> RequestRecord:
    return msgspec.structs.replace(record, **fields)


def test_a_key_is_told_with_its_home_and_where_it_went(
    keys: HotKeys, request_finished: RequestRecord
) -> None:
    for backend in ("a", "a", "a", "b"):
        keys.request_finished(changed(request_finished, backend=BackendName(backend)))
    (entry,) = keys.document(10)["keys"]
    assert entry["key"] == "000000000000beef"
    assert (entry["requests"], entry["share"], entry["home"]) == (4.0, 1.0, "a")
    assert entry["backends"] == {"a": 0.75, "b": 0.25}
    assert entry["hit_rate"] == 0.96


@pytest.mark.parametrize("fields", [{"key": None}, {"backend": None}])
def test_what_has_no_key_or_went_nowhere_is_not_counted(
    keys: HotKeys, request_finished: RequestRecord, fields: dict[str, Any]
) -> None:
    keys.request_finished(changed(request_finished, **fields))
    assert keys.document(10)["keys"] == []


def test_a_frequent_key_is_found_among_very_many(keys: HotKeys, request_finished: RequestRecord) -> None:
    random = Random(1)
    for number in range(20_000):
        key = 7 if random.random() < 0.05 else 1000 + number
        keys.request_finished(changed(request_finished, key=key))
    document = keys.document(CAPACITY)
    hottest = document["keys"][0]
    assert hottest["key"] == f"{7:016x}"
    assert hottest["requests"] - hottest["error"] <= 1100
    assert hottest["requests"] >= 900
    assert document["counted_keys"] == len(document["keys"]) == CAPACITY


def test_a_count_is_too_high_by_no_more_than_it_says(keys: HotKeys, request_finished: RequestRecord) -> None:
    random = Random(2)
    true: dict[str, int] = {}
    for _ in range(10_000):
        key = int(random.paretovariate(0.6)) % 5000
        true[f"{key:016x}"] = true.get(f"{key:016x}", 0) + 1
        keys.request_finished(changed(request_finished, key=key))
    for entry in keys.document(CAPACITY)["keys"]:
        assert entry["requests"] - entry["error"] - 0.1 <= true[entry["key"]] <= entry["requests"] + 0.1


def test_counts_halve(keys: HotKeys, clock: Clock, request_finished: RequestRecord) -> None:
    for _ in range(8):
        keys.request_finished(request_finished)
    clock.now += HALF_LIFE_SECONDS
    assert keys.document(1)["keys"][0]["requests"] == 4.0


def test_numbers_stay_small_for_ever(keys: HotKeys, clock: Clock, request_finished: RequestRecord) -> None:
    for day in range(40):
        clock.now += 86_400
        keys.request_finished(changed(request_finished, key=day))
        keys.request_finished(changed(request_finished, key=99))
    document = keys.document(2)
    assert document["requests"] == 2.0
    assert [entry["requests"] for entry in document["keys"]] == [1.0, 1.0]


def test_a_backend_that_left_is_not_named(keys: HotKeys, request_finished: RequestRecord) -> None:
    keys.request_finished(request_finished)
    keys.set_backends([BackendName("b")])
    keys.request_finished(request_finished)
    (entry,) = keys.document(1)["keys"]
    assert (entry["home"], entry["backends"]) == (None, {})


def test_only_so_many_places_are_told_apart(keys: HotKeys, request_finished: RequestRecord) -> None:
    names = [BackendName(f"n{number}") for number in range(3 * MAX_PLACES)]
    keys.set_backends(names)
    for name in names:
        keys.request_finished(changed(request_finished, backend=name))
    assert len(keys.document(1)["keys"][0]["backends"]) == MAX_PLACES
