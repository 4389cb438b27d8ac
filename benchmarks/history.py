"""What the history behind the admin page costs: memory, time for each finished request, time for a document.

python -m benchmarks.history
"""

from __future__ import annotations

import time
import tracemalloc
from random import Random
from typing import TYPE_CHECKING

import msgspec

from prefix_router.observe.events import Outcome, RequestRecord
from prefix_router.observe.history import History
from prefix_router.observe.hot_keys import HotKeys
from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.observe.events import Observer

BACKENDS = 100
REQUESTS = 100_000


def record(random: Random, name: BackendName, key: int) -> RequestRecord:
    return RequestRecord(
        "r", "POST", "/v1/chat/completions", status=200, outcome=Outcome.COMPLETED, backend=name, home=name,
        reason=Reason.AFFINITY, key=key, first_token_seconds=random.lognormvariate(-1, 1), prompt_tokens=100,
        cached_tokens=90,
    )  # fmt: skip


def microseconds(observer: Observer, records: Sequence[RequestRecord]) -> float:
    began = time.perf_counter()
    for at in range(REQUESTS):
        observer.request_finished(records[at % len(records)])
    return (time.perf_counter() - began) / REQUESTS * 1e6


def main() -> None:
    random, now = Random(1), 100_000.0
    names = [BackendName(f"backend-{number}") for number in range(BACKENDS)]
    few = [record(random, name, number) for number, name in enumerate(names)]
    many = [record(random, names[number % BACKENDS], number) for number in range(REQUESTS)]
    tracemalloc.start()
    history = History(lambda: now)
    history.set_backends(names)
    for _ in range(360):
        now += 10
        for each in few:
            history.request_finished(each)
    print(f"an hour of {BACKENDS} busy backends: {tracemalloc.get_traced_memory()[0] / 1e6:.1f} MB")
    tracemalloc.stop()
    began = time.perf_counter()
    size = len(msgspec.json.encode(history.document()))
    print(
        f"all of it as a document, the first time: {(time.perf_counter() - began) * 1e3:.0f} ms, {size} bytes"
    )
    seen = history.document()
    began = time.perf_counter()
    size = len(msgspec.json.encode(history.document(seen["next"], seen["epoch"])))
    print(f"what is new, for who has the rest: {(time.perf_counter() - began) * 1e3:.0f} ms, {size} bytes")
    print(f"a finished request in the history: {microseconds(history, few):.1f} µs")
    keys = HotKeys(lambda: now)
    keys.set_backends(names)
    print(f"… in the counter of keys, a known key: {microseconds(keys, few):.1f} µs")
    print(f"… a key that nobody has seen: {microseconds(keys, many):.1f} µs")


if __name__ == "__main__":
    main()
