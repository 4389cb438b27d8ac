from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from prefix_router.observe.events import BackendChanged, EngineSample, Outcome, RequestRecord
from prefix_router.observe.logs import AccessLog, Logs, configure, set_level
from prefix_router.routing.fleet import BackendName, BackendState

A = BackendName("a")
FINISHED = RequestRecord(
    request_id="r1",
    method="POST",
    path="/v1/chat/completions",
    api="chat",
    model="tiny",
    stream=False,
    status=200,
    outcome=Outcome.COMPLETED,
    backend=A,
    reason=None,
    home=None,
    key=None,
    attempts=1,
    retry_causes=(),
    request_bytes=10,
    response_bytes=20,
    duration_seconds=0.5,
    router_seconds=0.001,
)


class GatedStream(io.StringIO):
    """A stream whose reader takes a line only when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self._arrived = threading.Semaphore(0)
        self._permits = threading.Semaphore(0)

    def write(self, text: str) -> int:
        self._arrived.release()
        assert self._permits.acquire(timeout=30)
        return super().write(text)

    def wait_for_lines(self, count: int) -> None:
        """Wait until the writer has come with `count` further lines; it now stands before the last."""
        for _ in range(count):
            assert self._arrived.acquire(timeout=30)

    def take(self, lines: int) -> None:
        self._permits.release(lines)


@pytest.fixture(autouse=True)
def _untouched_logging() -> Iterator[None]:
    """Give back the process's logging as it was found."""
    root, access = logging.getLogger(), logging.getLogger("prefix_router.access")
    before = root.level, access.level, list(root.handlers)
    yield
    root.setLevel(before[0])
    access.setLevel(before[1])
    assert root.handlers == before[2]


def lines(logs: Logs, stream: io.StringIO) -> list[dict[str, Any]]:
    logs.shutdown(30)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_shutdown_writes_every_line_that_was_logged_before_it() -> None:
    stream = io.StringIO()
    logs = configure("info", "json", stream)
    for number in range(500):
        logging.getLogger("x").info("line %d", number)
    assert [line["message"] for line in lines(logs, stream)] == [f"line {n}" for n in range(500)]
    logs.shutdown()


def test_nothing_is_written_after_shutdown() -> None:
    stream = io.StringIO()
    logs = configure("info", "json", stream)
    logs.shutdown(30)
    logging.getLogger("x").error("too late")
    assert stream.getvalue() == ""


def test_the_level_holds_for_all_loggers() -> None:
    stream = io.StringIO()
    logs = configure("warning", "json", stream)
    logging.getLogger("x").info("quiet")
    logging.getLogger("x.y").warning("loud")
    assert [line["message"] for line in lines(logs, stream)] == ["loud"]


def test_the_level_can_be_changed_while_it_runs() -> None:
    stream = io.StringIO()
    logs = configure("warning", "json", stream)
    set_level("debug")
    logging.getLogger("x").debug("one")
    set_level("error")
    logging.getLogger("x").warning("two")
    assert [line["message"] for line in lines(logs, stream)] == ["one"]


def test_text_is_the_other_format() -> None:
    stream = io.StringIO()
    logs = configure("info", "text", stream)
    logging.getLogger("x").info("hello")
    logs.shutdown(30)
    assert "level=info logger=x message=hello" in stream.getvalue()


def test_standard_error_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    logs = configure("info", "json")
    logging.getLogger("x").info("hello")
    logs.shutdown(30)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["message"] == "hello"


def test_a_message_says_what_its_arguments_were_when_it_was_logged() -> None:
    stream = GatedStream()
    logs = configure("info", "json", stream)
    changing = [1]
    logging.getLogger("x").info("first")
    logging.getLogger("x").info("%s", changing)
    stream.wait_for_lines(1)
    changing.append(2)
    stream.take(2)
    assert [line["message"] for line in lines(logs, stream)] == ["first", "[1]"]


def test_a_full_queue_drops_lines_instead_of_waiting_and_says_how_many() -> None:
    stream = GatedStream()
    logs = configure("info", "json", stream, queue_lines=3)
    logging.getLogger("x").info("first")
    stream.wait_for_lines(1)
    for number in range(10):
        logging.getLogger("x").info("line %d", number)
    assert logs.dropped_lines == 7
    stream.take(10)
    written = lines(logs, stream)
    assert [line["message"] for line in written if line["logger"] == "x"] == [
        "first", "line 0", "line 1", "line 2",
    ]  # fmt: skip
    reports = [line for line in written if line["logger"] != "x"]
    assert [report["level"] for report in reports] == ["warning"]
    assert reports[0]["message"].startswith("7 log lines were dropped")


def test_reports_of_dropped_lines_are_rare_but_the_last_one_comes_at_the_end() -> None:
    stream = GatedStream()
    logs = configure("info", "json", stream, queue_lines=1)
    logging.getLogger("x").info("first")
    stream.wait_for_lines(1)
    for _ in range(3):
        logging.getLogger("x").info("two of three are dropped, and reported after the first line")
    stream.take(2)
    stream.wait_for_lines(2)
    for _ in range(5):
        logging.getLogger("x").info("four of five are dropped, too soon for another report")
    stream.take(10)
    loggers = [line["logger"] == "x" for line in lines(logs, stream)]
    assert loggers == [True, False, True, True, False]
    assert [int(line["message"].split()[0]) for line in lines(logs, stream) if line["logger"] != "x"] == [
        2,
        4,
    ]


@pytest.mark.parametrize("waiting", [1, 2], ids=["room in the queue", "queue full"])
def test_shutdown_gives_up_on_a_stream_that_is_stuck_for_good(waiting: int) -> None:
    stream = GatedStream()
    logs = configure("info", "json", stream, queue_lines=2)
    logging.getLogger("x").info("stuck")
    stream.wait_for_lines(1)
    for _ in range(waiting):
        logging.getLogger("x").info("waits")
    logs.shutdown(timeout_seconds=0.01)
    stream.take(10)
    logs._records.put(None)
    logs._writer.join(30)
    assert not logs._writer.is_alive()


def test_the_access_log_has_one_line_per_request_whatever_the_level() -> None:
    stream = io.StringIO()
    logs = configure("error", "json", stream)
    access = AccessLog(requests=True)
    access.request_finished(FINISHED)
    access.request_finished(replace(FINISHED, request_id="r2", status=502))
    written = lines(logs, stream)
    assert [(line["request_id"], line["status"]) for line in written] == [("r1", 200), ("r2", 502)]
    assert {line["level"] for line in written} == {"info"}


def test_the_access_log_is_opt_in() -> None:
    stream = io.StringIO()
    logs = configure("debug", "json", stream)
    access = AccessLog(requests=False)
    access.request_finished(FINISHED)
    access.engine_sampled(EngineSample(A, requests_running=1))
    assert lines(logs, stream) == []


def test_the_access_log_can_be_switched_while_it_runs() -> None:
    stream = io.StringIO()
    logs = configure("info", "json", stream)
    access = AccessLog(requests=False)
    access.requests = True
    access.request_finished(FINISHED)
    access.requests = False
    access.request_finished(replace(FINISHED, request_id="r2"))
    assert [line["request_id"] for line in lines(logs, stream)] == ["r1"]


@pytest.mark.parametrize(
    ("after", "level"),
    [
        (BackendState.EJECTED, "warning"),
        (BackendState.DOWN, "warning"),
        (BackendState.HALF_OPEN, "info"),
        (BackendState.HEALTHY, "info"),
    ],
)
def test_a_health_transition_is_one_line_with_its_cause(after: BackendState, level: str) -> None:
    stream = io.StringIO()
    logs = configure("info", "json", stream)
    change = BackendChanged(A, BackendState.STARTING, after, "probe: refused\nforged line")
    AccessLog(requests=False).backend_changed(change)
    (line,) = lines(logs, stream)
    assert line["level"] == level
    assert (line["backend"], line["before"], line["after"]) == ("a", "starting", after.value)
    assert line["cause"] == "probe: refused\nforged line"
