"""Header lines as pairs again, to compare them."""

from __future__ import annotations

from prefix_router.openai_api.headers import response_lines


def response_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return what is left of a backend's headers; every line must be whole."""
    lines = response_lines(headers).split(b"\r\n")
    assert lines.pop() == b""
    return [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
