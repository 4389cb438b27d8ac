from __future__ import annotations

import pytest

from prefix_router.openai_api.observer import NullObserver, response_observer
from prefix_router.openai_api.sse import SseObserver
from prefix_router.openai_api.usage import JsonUsageObserver


@pytest.mark.parametrize(
    "content_type",
    [b"text/event-stream", b"text/event-stream; charset=utf-8", b"Text/Event-Stream;charset=utf-8"],
)
@pytest.mark.parametrize("encoding", [None, b"", b"identity", b" Identity "])
def test_an_event_stream_is_watched_as_one(content_type: bytes, encoding: bytes | None) -> None:
    assert isinstance(response_observer(content_type, encoding, 200), SseObserver)


@pytest.mark.parametrize("content_type", [b"application/json", b"application/json;charset=utf-8"])
@pytest.mark.parametrize("status", [200, 201])
def test_a_json_document_is_read_at_its_end(content_type: bytes, status: int) -> None:
    assert isinstance(response_observer(content_type, None, status), JsonUsageObserver)


@pytest.mark.parametrize(
    ("content_type", "encoding", "status"),
    [
        (b"audio/mpeg", None, 200),
        (None, None, 200),
        (b"application/jsonlines", None, 200),
        (b"application/json", b"gzip", 200),
        (b"text/event-stream", b"br", 200),
        (b"application/json", None, 400),
        (b"text/event-stream", None, 503),
        (b"application/json", None, 304),
    ],
)
def test_what_cannot_be_read_or_says_nothing_is_not_watched(
    content_type: bytes | None, encoding: bytes | None, status: int
) -> None:
    observer = response_observer(content_type, encoding, status)
    assert isinstance(observer, NullObserver)
    observer.feed(b'data: {"choices":[{"text":"x"}]}\n\ndata: [DONE]\n\n')
    observer.finish()
    assert (observer.first_content, observer.terminal, observer.error) == (False, False, False)
    assert (observer.usage, observer.response_id) == (None, None)
