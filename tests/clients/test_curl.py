"""curl, as a person at a terminal or a script uses it: unbuffered streams, old HTTP, large bodies."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.client_fleet import CHAT_MODEL, KEY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.client_fleet import ClientFleet

pytestmark = pytest.mark.clients


def curl(fleet: ClientFleet, body: Any, *flags: str, path: str = "/v1/chat/completions") -> tuple[str, str]:
    """Return the head and the body of the answer; `body` goes in on stdin, for `--data-binary @-`."""
    program = shutil.which("curl")
    if program is None:
        pytest.skip("curl is not installed")
    command = [program, "-sS", "-i", "--noproxy", "*", "-m", "30", *flags, f"{fleet.url}{path}"]
    command += ["-H", f"Authorization: Bearer {KEY}", "-H", "Content-Type: application/json"]
    command += ["--data-binary", "@-"]
    ran = subprocess.run(
        command, input=json.dumps(body).encode(), capture_output=True, timeout=40, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    head, _, rest = ran.stdout.decode().partition("\r\n\r\n")
    while head.split(" ")[1] == "100":
        head, _, rest = rest.partition("\r\n\r\n")
    return head.lower(), rest


def chat(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": CHAT_MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 4, **fields}


def text_of(body: str) -> str:
    return str(json.loads(body)["choices"][0]["message"]["content"])


def streamed_text(body: str) -> str:
    lines = [line[6:] for line in body.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return "".join(json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines[:-1])


def test_an_unbuffered_stream_has_the_text_of_the_whole_answer(fleet: ClientFleet) -> None:
    head, stream = curl(fleet, chat(stream=True), "-N")
    assert "content-type: text/event-stream" in head
    assert streamed_text(stream) == text_of(curl(fleet, chat())[1])


def test_equal_requests_go_to_one_backend(fleet: ClientFleet) -> None:
    heads = [curl(fleet, chat("the same"))[0] for _ in range(3)]
    named = {
        line for head in heads for line in head.splitlines() if line.startswith("x-prefix-router-backend")
    }
    assert len(named) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_http_1_0_gets_an_answer_without_chunks(fleet: ClientFleet, stream: bool) -> None:
    head, body = curl(fleet, chat(stream=stream), "--http1.0")
    assert "transfer-encoding" not in head
    assert (streamed_text(body) if stream else text_of(body)) == text_of(curl(fleet, chat())[1])


def test_a_large_body_that_waits_to_be_asked_for_is_asked_for(fleet: ClientFleet, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    large = chat("x" * 12_000, metadata={"padding": "y" * 3_000_000})
    flags = ("-H", "Expect: 100-continue", "--expect100-timeout", "20", "--trace-ascii", str(trace))
    _, body = curl(fleet, large, *flags)
    assert text_of(body)
    assert "HTTP/1.1 100 Continue" in trace.read_text()


def test_an_error_is_json_with_its_status(fleet: ClientFleet) -> None:
    head, body = curl(fleet, chat(model="absent"))
    assert " 404 " in head.splitlines()[0]
    assert json.loads(body)["error"]["message"]
