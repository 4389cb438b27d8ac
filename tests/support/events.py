"""An observer that keeps what it is told."""

from __future__ import annotations

from prefix_router.observe.events import BackendChanged, EngineSample, Outcome, RequestRecord


class Recorder:
    """Keeps events in order."""

    def __init__(self) -> None:
        self.finished: list[RequestRecord] = []
        self.changed: list[BackendChanged] = []
        self.samples: list[EngineSample] = []

    def request_finished(self, event: RequestRecord) -> None:
        self.finished.append(event)

    def backend_changed(self, event: BackendChanged) -> None:
        self.changed.append(event)

    def engine_sampled(self, event: EngineSample) -> None:
        self.samples.append(event)


def finished_request(request_id: str = "r") -> RequestRecord:
    """A request that no backend was needed for."""
    return RequestRecord(
        request_id=request_id,
        method="GET",
        path="/v1/models",
        api="models",
        model=None,
        stream=False,
        status=200,
        outcome=Outcome.ANSWERED,
        backend=None,
        reason=None,
        home=None,
        key=None,
        attempts=0,
        retry_causes=(),
        request_bytes=0,
        response_bytes=2,
        duration_seconds=0.001,
        router_seconds=0.001,
    )
