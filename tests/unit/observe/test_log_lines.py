from __future__ import annotations

import json
import logging
import shlex
import sys
from typing import Any

import pytest

from prefix_router.observe.events import Outcome, RequestRecord, RetryCause, TraceRecord
from prefix_router.observe.log_lines import (
    MAX_VALUE_CHARACTERS,
    JsonFormatter,
    TextFormatter,
    cut,
    printable,
    request_fields,
)
from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendName

NASTY = ["\n", "\r\nlevel=error", "\x1b[31m", "\x00", "\u2028", "\u202e", "\x85", "\ud800", "\x7f"]


def finished(**changes: Any) -> RequestRecord:
    values: dict[str, Any] = {
        "request_id": "r1",
        "method": "POST",
        "path": "/v1/chat/completions",
        "api": "chat",
        "model": "tiny",
        "stream": True,
        "status": 200,
        "outcome": Outcome.COMPLETED,
        "backend": BackendName("a"),
        "reason": Reason.OVERFLOW,
        "home": BackendName("b"),
        "key": 0xBEEF,
        "attempts": 3,
        "retry_causes": (RetryCause.CONNECT, RetryCause.BACK_PRESSURE),
        "request_bytes": 10,
        "response_bytes": 20,
        "duration_seconds": 1.5,
        "router_seconds": 0.0002504,
        "first_byte_seconds": 0.25,
        "first_token_seconds": None,
        "prompt_tokens": 100,
        "cached_tokens": 96,
        "completion_tokens": 7,
        "prompt_length": 104,
        "shared_tokens": 64,
        "expected_tokens": 32,
    }
    return RequestRecord(**values | changes)


def record(message: str = "m", **attributes: Any) -> logging.LogRecord:
    made = logging.LogRecord("x", logging.INFO, __file__, 1, message, None, None)
    made.created = 1_760_000_000.1234
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def test_the_access_line_of_a_request() -> None:
    assert request_fields(finished()) == {
        "request_id": "r1",
        "trace_id": None,
        "client": None,
        "client_address": None,
        "method": "POST",
        "path": "/v1/chat/completions",
        "api": "chat",
        "model": "tiny",
        "stream": True,
        "backend": "a",
        "reason": "overflow",
        "home": "b",
        "key": "000000000000beef",
        "attempts": 3,
        "retries": "connect,back_pressure",
        "status": 200,
        "outcome": "completed",
        "error_code": None,
        "duration_ms": 1500.0,
        "router_ms": 0.25,
        "queue_ms": None,
        "first_byte_ms": 250.0,
        "first_token_ms": None,
        "request_bytes": 10,
        "response_bytes": 20,
        "prompt_tokens": 100,
        "cached_tokens": 96,
        "completion_tokens": 7,
        "prompt_length": 104,
        "shared_tokens": 64,
        "expected_tokens": 32,
    }


def test_what_a_request_does_not_have_is_left_out_of_its_line() -> None:
    event = finished(model=None, backend=None, reason=None, home=None, key=None, retry_causes=())
    line = json.loads(JsonFormatter().format(record(event=event)))
    assert line.keys().isdisjoint({"model", "backend", "reason", "home", "key", "retries", "error_code"})


def test_a_query_is_not_logged_it_may_hold_secrets() -> None:
    assert request_fields(finished(path="/v1/models?api_key=secret"))["path"] == "/v1/models"


@pytest.mark.parametrize("name", ["request_id", "method", "path", "model"])
def test_what_a_client_chooses_is_cut_to_a_bounded_length(name: str) -> None:
    value = request_fields(finished(**{name: "/" + "x" * 10_000}))[name]
    assert isinstance(value, str)
    assert len(value) <= 256
    assert value.endswith("…")


def test_text_is_key_equals_value() -> None:
    line = TextFormatter().format(record("two words", fields={"backend": "a", "count": 3, "sure": False}))
    assert line == (
        'time=2025-10-09T08:53:20.123Z level=info logger=x message="two words" backend=a count=3 sure=false'
    )


@pytest.mark.parametrize(
    "text", ["", 'a "quoted" word', "a=b", "back\\slash", "c:\\new folder", "plain", "ünï"]
)
def test_a_text_value_can_be_read_back(text: str) -> None:
    line = TextFormatter().format(record(fields={"value": text}))
    assert shlex.split(line)[-1] == f"value={text}"


def test_json_is_one_object_with_typed_values() -> None:
    line = JsonFormatter().format(record("two words", fields={"backend": "a", "count": 3, "sure": False}))
    assert json.loads(line) == {
        "time": "2025-10-09T08:53:20.123Z",
        "level": "info",
        "logger": "x",
        "message": "two words",
        "backend": "a",
        "count": 3,
        "sure": False,
    }


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
@pytest.mark.parametrize("nasty", NASTY)
def test_nobody_can_forge_a_line_or_drive_a_terminal(formatter: logging.Formatter, nasty: str) -> None:
    event = finished(path="/" + nasty, model="m" + nasty, request_id="r" + nasty, method="M" + nasty)
    for each in (record("message" + nasty), record(fields={"cause": "c" + nasty}), record(event=event)):
        line = formatter.format(each)
        assert line.isprintable()
        line.encode()


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_traceback_stays_on_its_line(formatter: logging.Formatter) -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        line = formatter.format(record(exc_info=sys.exc_info()))
    assert line.isprintable()
    assert "ValueError: first\\nsecond" in line


def test_a_huge_message_is_cut() -> None:
    line = json.loads(JsonFormatter().format(record("x" * 100_000)))
    assert len(line["message"]) == MAX_VALUE_CHARACTERS


def test_a_value_that_json_does_not_know_is_written_as_text() -> None:
    assert json.loads(JsonFormatter().format(record(fields={"value": ValueError("x")})))["value"] == "x"


def test_cut_leaves_what_fits() -> None:
    assert (cut("abc", 3), cut("abcd", 3)) == ("abc", "ab…")


def test_printable_escapes_what_is_not_and_keeps_what_is_asked_for() -> None:
    assert printable("a\tb\nc\x00é") == "a\\tb\\nc\\x00é"
    assert printable("a\tb\nc\x00é", keep="\n\t") == "a\tb\nc\\x00é"


def test_a_line_names_its_trace_while_requests_are_traced() -> None:
    trace = TraceRecord("4bf92f3577b34da6a3ce929d0e0e4736", 5, None, 0, "", False, 0)
    assert request_fields(finished(trace=trace))["trace_id"] == trace.trace_id
    assert request_fields(finished())["trace_id"] is None
