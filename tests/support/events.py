"""An observer that keeps what it is told."""

from __future__ import annotations

from prefix_router.observe.events import BackendChanged, EngineSample, RequestFinished


class Recorder:
    """Keeps events in order."""

    def __init__(self) -> None:
        self.finished: list[RequestFinished] = []
        self.changed: list[BackendChanged] = []
        self.samples: list[EngineSample] = []

    def request_finished(self, event: RequestFinished) -> None:
        self.finished.append(event)

    def backend_changed(self, event: BackendChanged) -> None:
        self.changed.append(event)

    def engine_sampled(self, event: EngineSample) -> None:
        self.samples.append(event)
