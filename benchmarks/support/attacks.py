"""Bytes that no honest client sends: request smuggling, header bombs, hostile JSON.

Every smuggling attempt hides a request for `/smuggled`, or a header `X-Smuggled`, in what one reading of the
bytes takes for a body, a trailer or a header value. A backend that sees either has been tricked.
"""

from __future__ import annotations

from collections.abc import Iterator

HIDDEN = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
_CHUNKED_HIDDEN = b"%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)


def _post(*headers: bytes, body: bytes = b"", version: bytes = b"1.1") -> bytes:
    lines = [b"POST /v1/completions HTTP/" + version, b"Host: x", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _length(body: bytes) -> bytes:
    return b"Content-Length: %d" % len(body)


_END = b"0\r\n\r\n" + HIDDEN
_TE = b"Transfer-Encoding: chunked"

SMUGGLING: dict[str, bytes] = {
    "both framings, length first": _post(_length(_END), _TE, body=_END),
    "both framings, chunked first": _post(_TE, _length(b"0\r\n\r\n"), body=_CHUNKED_HIDDEN),
    "two lengths": _post(b"Content-Length: 0", _length(HIDDEN), body=HIDDEN),
    "a list of lengths": _post(b"Content-Length: 0, %d" % len(HIDDEN), body=HIDDEN),
    "signed length": _post(b"Content-Length: +%d" % len(HIDDEN), body=HIDDEN),
    "negative length": _post(b"Content-Length: -1", body=HIDDEN),
    "length with a space inside": _post(b"Content-Length: 3 6", body=HIDDEN),
    "hexadecimal length": _post(b"Content-Length: 0x%x" % len(HIDDEN), body=HIDDEN),
    "length beyond 64 bits": _post(b"Content-Length: 18446744073709551652", body=HIDDEN),
    "unknown transfer encoding": _post(b"Transfer-Encoding: xchunked", _length(HIDDEN), body=HIDDEN),
    "chunked is not the last encoding": _post(b"Transfer-Encoding: chunked, identity", body=_CHUNKED_HIDDEN),
    "chunked twice": _post(b"Transfer-Encoding: chunked, chunked", body=_CHUNKED_HIDDEN),
    "space before the colon": _post(b"Transfer-Encoding : chunked", _length(_END), body=_END),
    "vertical tab before the value": _post(b"Transfer-Encoding:\x0bchunked", _length(_END), body=_END),
    "folded header": _post(b"Transfer-Encoding:\r\n chunked", _length(_END), body=_END),
    "header hidden behind a bare LF": _post(b"X-A: b\nX-Smuggled: 1", b"Content-Length: 0"),
    "header hidden behind a bare CR": _post(b"X-A: b\rX-Smuggled: 1", b"Content-Length: 0"),
    "NUL in a value": _post(b"X-A: b\0X-Smuggled: 1", b"Content-Length: 0"),
    "header line without a colon": _post(b"X-Smuggled", b"Content-Length: 0"),
    "chunk size with a prefix": _post(_TE, body=b"0x" + _CHUNKED_HIDDEN),
    "negative chunk size": _post(_TE, body=b"-" + _CHUNKED_HIDDEN),
    "chunk size beyond 64 bits": _post(_TE, body=b"F" * 17 + b"\r\n" + HIDDEN),
    "LF in a chunk extension": _post(_TE, body=b"0;a\nb\r\n\r\n" + b"X-Smuggled: 1\r\n\r\n"),
    "chunk longer than its size": _post(_TE, body=b"1\r\n" + HIDDEN + b"\r\n0\r\n\r\n"),
    "chunked in HTTP/1.0": _post(_TE, _length(_END), body=_END, version=b"1.0"),
    "header in the trailers": _post(_TE, body=b"0\r\nX-Smuggled: 1\r\n\r\n"),
    "framing in the trailers": _post(_TE, body=b"2\r\n{}\r\n0\r\n" + _length(HIDDEN) + b"\r\n\r\n"),
    "request as the body of a GET": b"GET /v1/x HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n%b"
    % (_length(HIDDEN), HIDDEN),
    "request after an upgrade": (
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n" + HIDDEN
    ),
    "request after a tunnel": b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "request while 100-continue is awaited": _post(b"Expect: 100-continue", _length(HIDDEN), body=HIDDEN),
    "framing named by Connection": _post(
        b"Connection: content-length, transfer-encoding", _length(HIDDEN), body=HIDDEN
    ),
    "HTTP/0.9": b"GET /smuggled\r\n\r\n",
    "two versions": b"GET /smuggled HTTP/1.1 HTTP/1.1\r\nHost: x\r\n\r\n",
    "spaces in the target": b"GET /a /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
}


ENDLESS = "a header that never ends"
SKIPPED = "a chunk extension of 1 MB"
"""Is read past, and not kept: no reason to refuse the request."""


def header_bombs() -> dict[str, bytes]:
    """Return requests whose heads are too large in one way or another."""
    line = b"GET /v1/x HTTP/1.1\r\nHost: x\r\n"
    return {
        "one header of 1 MB": line + b"X-A: " + b"a" * 1_000_000 + b"\r\n\r\n",
        "one name of 1 MB": line + b"a" * 1_000_000 + b": b\r\n\r\n",
        "10,000 headers": line + b"".join(b"X-%d: b\r\n" % number for number in range(10_000)) + b"\r\n",
        "a target of 1 MB": b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        "a method of 1 MB": b"A" * 1_000_000,
        ENDLESS: line + b"X-A: " + b"a" * 4_000_000,
        "10,000 trailers": _post(_TE, body=b"0\r\n" + b"X-A: b\r\n" * 10_000 + b"\r\n"),
        SKIPPED: _post(_TE, body=b"1;" + b"a" * 1_000_000 + b"\r\n{\r\n0\r\n\r\n"),
    }


def hostile_json(size: int) -> Iterator[tuple[str, bytes]]:
    """Yield bodies of about `size` bytes that hurt parsers; all of them are some backend's to judge."""
    half = size // 2
    yield "arrays in arrays", b"[" * half + b"]" * half
    yield "arrays that never close", b"[" * size
    yield "objects in objects", b'{"a":' * (size // 5)
    yield "deep content", b'{"messages":[{"role":"user","content":' + b"[" * half + b"]" * half + b"}]}"
    yield "one long string", b'{"prompt":"' + b"a" * size + b'"}'
    yield "one long string of escapes", b'{"prompt":"' + b"\\u00e9" * (size // 6) + b'"}'
    yield "a number of many digits", b'{"prompt":[' + b"9" * size + b"]}"
    yield "many numbers", b'{"prompt":[' + b"1," * half + b"1]}"
    yield "many keys", b"{" + b",".join(b'"%d":0' % number for number in range(size // 12)) + b"}"
    yield "many messages", b'{"messages":[' + b'{"role":"user","content":"a"},' * (size // 30) + b"{}]}"
    yield "one key again and again", b"{" + b'"prompt":"a",' * (size // 13) + b'"prompt":"b"}'
    yield "bytes that are not UTF-8", b'{"prompt":"' + b"\xff" * size + b'"}'
