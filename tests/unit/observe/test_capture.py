from __future__ import annotations

import json
import logging
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from prefix_router.observe import capture as capture_module
from prefix_router.observe.capture import Capture, CaptureOptions
from prefix_router.observe.capture_line import Names
from prefix_router.observe.events import BackendChanged, EngineSample, RequestRecord
from prefix_router.routing.chain import PrefixChain, PromptEnd
from prefix_router.routing.fleet import BackendName, BackendState

MEGABYTE = 1 << 20


def chain(number: int = 0, end: int = 5) -> PrefixChain:
    return PrefixChain([1, 2, number], 200, [PromptEnd(20, end)])


@pytest.fixture
def captured(request_finished: RequestRecord) -> Callable[..., RequestRecord]:
    def captured(number: int = 0, **changes: Any) -> RequestRecord:
        return replace(request_finished, **{"chain": chain(number), **changes})

    return captured


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_request_is_a_line_behind_the_head(
    tmp_path: Path, captured: Callable[..., RequestRecord]
) -> None:
    capture = Capture(wall_clock=lambda: 1000.0)
    capture.begin(CaptureOptions(str(tmp_path / "t.jsonl"), MEGABYTE))
    for number in range(3):
        capture.request_finished(captured(number))
    capture.close()
    head, *requests = lines(tmp_path / "t.jsonl")
    assert head == {"capture": 1, "sample": 1.0}
    assert [request["time"] for request in requests] == [996.0] * 3
    assert len({request["levels"] for request in requests}) == 3
    assert capture.dropped == 0


def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    capture = Capture()
    before = os.umask(0)
    try:
        capture.begin(CaptureOptions(str(tmp_path / "t.jsonl"), MEGABYTE))
        capture.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "t.jsonl").stat().st_mode) == 0o600


def test_requests_without_a_chain_or_a_backend_are_not_traffic(
    tmp_path: Path, captured: Callable[..., RequestRecord]
) -> None:
    capture = Capture()
    capture.begin(CaptureOptions(str(tmp_path / "t.jsonl"), MEGABYTE))
    capture.request_finished(captured(chain=None))
    capture.request_finished(captured(backend=None))
    capture.close()
    assert len(lines(tmp_path / "t.jsonl")) == 1
    assert capture.dropped == 0


def test_nothing_is_captured_before_the_beginning_and_after_the_end(
    tmp_path: Path, captured: Callable[..., RequestRecord]
) -> None:
    capture = Capture()
    capture.request_finished(captured())
    capture.begin(CaptureOptions(str(tmp_path / "t.jsonl"), MEGABYTE))
    capture.end()
    capture.request_finished(captured())
    capture.backend_changed(
        BackendChanged(BackendName("a"), BackendState.HEALTHY, BackendState.DOWN, "probe")
    )
    capture.engine_sampled(EngineSample(BackendName("a")))
    capture.close()
    assert len(lines(tmp_path / "t.jsonl")) == 1


def test_a_file_that_exists_is_left_alone(tmp_path: Path, captured: Callable[..., RequestRecord]) -> None:
    (tmp_path / "t.jsonl").write_text("mine")
    for _ in range(2):
        capture = Capture()
        capture.begin(CaptureOptions(str(tmp_path / "t.jsonl"), MEGABYTE))
        capture.request_finished(captured())
        capture.close()
    assert (tmp_path / "t.jsonl").read_text() == "mine"
    first, second = lines(tmp_path / "t-2.jsonl"), lines(tmp_path / "t-3.jsonl")
    assert first[1]["levels"] != second[1]["levels"], "each file has a key of its own"


def test_a_full_file_stays_below_its_size_and_ends_with_a_whole_line(
    tmp_path: Path, captured: Callable[..., RequestRecord], caplog: pytest.LogCaptureFixture
) -> None:
    capture = Capture()
    capture.begin(CaptureOptions(str(tmp_path / "t.jsonl"), 1000))
    for number in range(20):
        capture.request_finished(captured(number))
    capture.close()
    assert (tmp_path / "t.jsonl").stat().st_size <= 1000
    written = len(lines(tmp_path / "t.jsonl")) - 1
    assert written > 0
    assert capture.dropped == 20 - written
    assert [record.message for record in caplog.records if "is full" in record.message] == [
        f"capture: {tmp_path / 't.jsonl'} is full, nothing more is captured"
    ]


def test_what_does_not_fit_the_queue_is_dropped_counted_and_said_once(
    tmp_path: Path,
    captured: Callable[..., RequestRecord],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    may_write, is_writing = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        is_writing.set()
        may_write.wait(10)
        return line_of(*arguments)

    line_of = Names.line_of
    monkeypatch.setattr(Names, "line_of", slow)
    capture = Capture(queue_requests=2)
    capture.begin(CaptureOptions(str(tmp_path / "t.jsonl"), MEGABYTE))
    capture.request_finished(captured(0))
    assert is_writing.wait(10)
    for number in range(1, 6):
        capture.request_finished(captured(number))
    assert capture.dropped == 3
    may_write.set()
    capture.close()
    assert len(lines(tmp_path / "t.jsonl")) == 1 + 3
    assert capture.dropped == 3
    assert sum("writer is behind" in record.message for record in caplog.records) == 1


def test_a_file_that_cannot_be_written_is_said_and_harms_nobody(
    tmp_path: Path, captured: Callable[..., RequestRecord], caplog: pytest.LogCaptureFixture
) -> None:
    capture = Capture()
    capture.begin(CaptureOptions(str(tmp_path / "missing" / "t.jsonl"), MEGABYTE))
    capture.request_finished(captured())
    capture.close()
    assert capture.dropped == 1
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "No such file or directory; nothing more is captured" in record.message


def test_there_is_an_end_to_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(capture_module, "MOST_FILES", 2)
    for _ in range(3):
        capture = Capture()
        capture.begin(CaptureOptions(str(tmp_path / "t.jsonl"), MEGABYTE))
        capture.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t-2.jsonl", "t.jsonl"]
    assert "there are 2 captures already" in caplog.text


def test_a_sample_takes_whole_conversations(tmp_path: Path, captured: Callable[..., RequestRecord]) -> None:
    capture = Capture()
    capture.begin(CaptureOptions(str(tmp_path / "t.jsonl"), MEGABYTE, sample=0.25))
    for number in range(8):
        end = (number // 2) * 2**62 + 1  # two requests of each of four conversations
        capture.request_finished(captured(chain=chain(number, end)))
    capture.close()
    head, *requests = lines(tmp_path / "t.jsonl")
    assert head["sample"] == 0.25
    assert len(requests) == 2
    assert requests[0]["ends"] == requests[1]["ends"]
    assert capture.dropped == 0


def test_what_an_earlier_file_has_lost_is_still_counted(
    tmp_path: Path, captured: Callable[..., RequestRecord]
) -> None:
    capture = Capture()
    capture.begin(CaptureOptions(str(tmp_path / "missing" / "t.jsonl"), MEGABYTE))
    capture.request_finished(captured())
    capture.close()
    capture.begin(CaptureOptions(str(tmp_path / "t.jsonl"), MEGABYTE))
    assert capture.dropped == 1
    capture.begin(CaptureOptions(str(tmp_path / "u.jsonl"), MEGABYTE))
    capture.close()
    assert capture.dropped == 1
