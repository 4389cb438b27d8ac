"""Read back what a server-sent event stream says."""

from __future__ import annotations

import json
from typing import Any


def read_events(stream: bytes) -> list[Any]:
    """The data of each event, JSON decoded where it is JSON; a named event must bear its type as its name."""
    events: list[Any] = []
    for block in stream.decode().split("\n\n"):
        if not block:
            continue
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        data = fields["data"]
        events.append(data if data == "[DONE]" else json.loads(data))
        if "event" in fields:
            assert events[-1]["type"] == fields["event"]
    return events
