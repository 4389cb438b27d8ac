"""Logging that never holds up the event loop.

`configure` puts one handler on the root logger. It hands records over a bounded queue to a thread that
formats and writes them. When whoever reads standard error stops reading, the queue fills and further lines
are dropped and counted: a router that stands still for its log would be the worse failure. How many were
dropped is said in the log itself, as soon as it moves again.

Why an own thread and not `logging.handlers.QueueListener`: stopping that one waits without bound for a
stream that may be stuck for good.

`AccessLog` is the observer that writes one line per finished request and per health transition. Neither holds
prompt text: the events have none.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
from logging.handlers import QueueHandler
from typing import TYPE_CHECKING, TextIO

from prefix_router.observe.log_lines import JsonFormatter, TextFormatter
from prefix_router.routing.fleet import BackendState

if TYPE_CHECKING:
    from prefix_router.observe.events import BackendChanged, EngineSample, RequestRecord

QUEUE_LINES = 4096
"""Lines that wait for the writer at most; about 4 MB."""

_REPORT_INTERVAL_SECONDS = 10.0
_ACCESS_LOGGER = "prefix_router.access"
_HEALTH_LOGGER = "prefix_router.health"
_UNUSABLE = frozenset((BackendState.EJECTED, BackendState.DOWN))

_Records = queue.Queue[logging.LogRecord | None]
"""What waits for the writer; None ends it."""


class _DroppingHandler(QueueHandler):
    """Puts records into the queue, or counts them as dropped when it is full. Never waits."""

    def __init__(self, records: _Records) -> None:
        super().__init__(records)
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Fix the message now, because arguments may change; leave everything else to the writer."""
        if record.args:
            record.msg, record.args = record.getMessage(), None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1


class Logs:
    """The running log. `shutdown` it, once or more, to get the last lines written."""

    def __init__(self, records: _Records, handler: _DroppingHandler, target: logging.Handler) -> None:
        self._records = records
        self._handler = handler
        self._target = target
        self._reported = 0
        self._reported_at = 0.0
        self._writer = threading.Thread(target=self._write, name="log-writer", daemon=True)
        self._writer.start()

    @property
    def dropped_lines(self) -> int:
        """Lines that were lost because the reader of the log was too slow."""
        return self._handler.dropped

    def shutdown(self, timeout_seconds: float = 2.0) -> None:
        """Stop taking lines and write those taken.

        A stream that is stuck is given up: after `timeout_seconds` if the queue is full, and as long again
        for writing what is in it.
        """
        logging.getLogger().removeHandler(self._handler)
        if self._writer.is_alive():
            try:
                self._records.put(None, timeout=timeout_seconds)
            except queue.Full:
                return
            self._writer.join(timeout_seconds)

    def _write(self) -> None:
        while (record := self._records.get()) is not None:
            self._target.handle(record)
            if record.created - self._reported_at >= _REPORT_INTERVAL_SECONDS:
                self._report_dropped(record.created)
        self._report_dropped(self._reported_at)

    def _report_dropped(self, now: float) -> None:
        lost = self._handler.dropped - self._reported
        if lost:
            self._reported += lost
            self._reported_at = now
            text = f"{lost} log lines were dropped: whoever reads the log is too slow"
            self._target.handle(logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None))


def configure(
    level: str,
    format: str,  # noqa: A002  (the name that the setting has)
    stream: TextIO | None = None,
    queue_lines: int = QUEUE_LINES,
) -> Logs:
    """Send all logging of the process to `stream`, standard error by default, in `format` text or json.

    level: the least severe level that is logged, in any case of letters. The access log does not depend on
    it: whoever switches that on wants its lines.
    """
    records: _Records = queue.Queue(queue_lines)
    handler = _DroppingHandler(records)
    target = logging.StreamHandler(stream or sys.stderr)
    target.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.addHandler(handler)
    logging.getLogger(_ACCESS_LOGGER).setLevel(logging.INFO)
    return Logs(records, handler, target)


def set_level(level: str) -> None:
    """Change the least severe level that is logged, in any case of letters."""
    logging.getLogger().setLevel(level.upper())


class AccessLog:
    """An Observer that logs health transitions and, while `requests` is true, every finished request."""

    def __init__(self, *, requests: bool) -> None:
        self.requests = requests
        self._access = logging.getLogger(_ACCESS_LOGGER)
        self._health = logging.getLogger(_HEALTH_LOGGER)

    def request_finished(self, event: RequestRecord) -> None:
        """Log one line at level info; `observe.log_lines` makes its fields, in the writer's thread."""
        if self.requests:
            # Made by hand: `Logger.info` would look through the stack for a line number that nobody needs.
            extra = {"event": event}
            record = self._access.makeRecord(
                _ACCESS_LOGGER, logging.INFO, __file__, 0, "request", (), None, extra=extra
            )
            self._access.handle(record)

    def backend_changed(self, event: BackendChanged) -> None:
        """Log one line: a warning when the backend gets no more traffic, else an information."""
        self._health.log(
            logging.WARNING if event.after in _UNUSABLE else logging.INFO,
            "backend state changed",
            extra={
                "fields": {
                    "backend": event.backend,
                    "before": event.before.value,
                    "after": event.after.value,
                    "cause": event.cause,
                }
            },
        )

    def engine_sampled(self, event: EngineSample) -> None:
        """Samples are for metrics: not logged."""
