from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest

from prefix_router.observe.events import BackendChanged, EngineSample, RequestRecord
from prefix_router.observe.fanout import Fanout
from prefix_router.routing.fleet import BackendName, BackendState

A = BackendName("a")
CHANGED = BackendChanged(A, BackendState.STARTING, BackendState.HEALTHY, "probe")
SAMPLE = EngineSample(A)


@dataclass
class Recorder:
    """Equal to every other recorder and unhashable, as dataclasses are."""

    broken: bool = False
    events: list[object] = field(default_factory=list)

    def request_finished(self, event: RequestRecord) -> None:
        self._take(event)

    def backend_changed(self, event: BackendChanged) -> None:
        self._take(event)

    def engine_sampled(self, event: EngineSample) -> None:
        self._take(event)

    def _take(self, event: object) -> None:
        if self.broken:
            raise RuntimeError("a bug")
        self.events.append(event)


def test_every_observer_gets_every_event(request_finished: RequestRecord) -> None:
    first, second = Recorder(), Recorder()
    fanout = Fanout([first, second])
    fanout.request_finished(request_finished)
    fanout.backend_changed(CHANGED)
    fanout.engine_sampled(SAMPLE)
    assert first.events == second.events == [request_finished, CHANGED, SAMPLE]


def test_an_observer_that_raises_harms_nobody_and_is_reported_once(
    request_finished: RequestRecord, caplog: pytest.LogCaptureFixture
) -> None:
    broken, also_broken, sound = Recorder(broken=True), Recorder(broken=True), Recorder()
    fanout = Fanout([broken, also_broken, sound])
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            fanout.request_finished(request_finished)
            fanout.backend_changed(CHANGED)
    assert sound.events == [request_finished, CHANGED] * 3
    assert len(caplog.records) == 2
    assert all(record.exc_info is not None for record in caplog.records)


def test_who_joins_is_told_until_it_leaves(request_finished: RequestRecord) -> None:
    always, sometimes = Recorder(), Recorder()
    fanout = Fanout([always])
    fanout.leave(sometimes)
    fanout.join(sometimes)
    fanout.request_finished(request_finished)
    fanout.leave(sometimes)
    fanout.request_finished(request_finished)
    assert len(always.events) == 2
    assert len(sometimes.events) == 1
