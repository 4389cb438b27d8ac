from __future__ import annotations

import pytest

from prefix_router.observe.events import Outcome, RequestRecord
from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendName


@pytest.fixture
def request_finished() -> RequestRecord:
    """A streamed chat request that went to its home `a`, with nothing unusual about it."""
    return RequestRecord(
        request_id="r1",
        method="POST",
        path="/v1/chat/completions",
        api="chat",
        model="tiny",
        stream=True,
        status=200,
        outcome=Outcome.COMPLETED,
        backend=BackendName("a"),
        reason=Reason.AFFINITY,
        home=BackendName("a"),
        key=0xBEEF,
        attempts=1,
        retry_causes=(),
        request_bytes=10,
        response_bytes=20,
        duration_seconds=4.0,
        router_seconds=0.0002,
        first_byte_seconds=0.3,
        first_token_seconds=0.4,
        prompt_tokens=100,
        cached_tokens=96,
        completion_tokens=7,
    )
