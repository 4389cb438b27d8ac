"""Header rules of a proxy: what goes up to a backend, what comes down to a client.

End-to-end headers pass unchanged: names in the client's spelling, values as bytes, order and repeats
kept. Hop-by-hop headers (RFC 9110 section 7.6.1) end here, in both directions, with every name that
`Connection` lists. Framing headers are written anew by whoever frames the message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefix_router.openai_api.forwarded import Forwarded

RawHeaders = Iterable[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

_REPLACED_UPSTREAM = HOP_BY_HOP | {
    b"content-length",
    b"expect",
    b"host",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-request-id",
}

CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"api-key"})
"""Headers in which clients of OpenAI's and Anthropic's APIs, and of gateways for them, send their keys."""

_REPLACED_WITH_CREDENTIALS = _REPLACED_UPSTREAM | CREDENTIALS

HEARSAY = frozenset({b"forwarded", b"x-real-ip"})
"""Who the client is, in other words than `X-Forwarded-*`: ends here when that has been judged."""

ROUTER_HEADERS = frozenset({b"x-prefix-router-backend", b"x-prefix-router-reason", b"x-request-id"})
"""Response headers that the router itself writes; a backend's headers of these names are dropped."""

_REPLACED_DOWNSTREAM = HOP_BY_HOP | ROUTER_HEADERS | {b"content-length"}

REQUEST_ID_MAX_LENGTH = 128

_BODILESS_METHODS = frozenset({b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"TRACE"})
_NONE: frozenset[bytes] = frozenset()


def request_head(
    method: bytes,
    target: bytes,
    headers: RawHeaders,
    *,
    host: bytes,
    body_length: int | None,
    request_id: bytes,
    client_address: bytes,
    client_host: bytes | None,
    client_scheme: bytes = b"http",
    named: frozenset[bytes] | None = None,
    authorization: bytes | None = None,
    forwarded: Forwarded | None = None,
    added: bytes = b"",
) -> bytes:
    """Return the request head for a backend, blank line included.

    target: path and query, already with the backend's path prefix. body_length: bytes, or None for a
    chunked body; a request without a body and without a length header says nothing (0 with a method
    that never has one). client_host: the client's own Host value, None when it sent none. named: names, in
    lower case, that end here: what its `Connection` headers list (`named_by_connection`), and more if need
    be; None to look for the former. added: header lines of the router's own, each with its line end.

    authorization: what becomes of the client's `CREDENTIALS`. None passes them on, as they came. Anything
    else ends them here: they were for the router, or the backend has its own. A value that is not empty is
    then sent as `Authorization`.

    forwarded: who the client is and how it came, when that has been judged (`openai_api.forwarded`); None
    keeps what the client says of itself, and appends `client_address`.
    """
    parts = [method, b" ", target, b" HTTP/1.1\r\nHost: ", host, b"\r\n"]
    if named is None:
        named = named_by_connection(value for name, value in headers if name.lower() == b"connection")
    forwarded_for = b""
    scheme, original_host = client_scheme, client_host
    replaced = _REPLACED_UPSTREAM if authorization is None else _REPLACED_WITH_CREDENTIALS
    if forwarded is not None:
        named |= HEARSAY
    for name, value in headers:
        lowered = name.lower()
        if lowered in replaced or lowered in named:
            if lowered == b"x-forwarded-for" and value:
                forwarded_for = b"%b, %b" % (forwarded_for, value) if forwarded_for else value
            elif lowered == b"x-forwarded-proto" and value:
                scheme = value
            elif lowered == b"x-forwarded-host" and value:
                original_host = value
            continue
        parts += (name, b": ", value, b"\r\n")
    if forwarded is not None:
        forwarded_for, scheme, original_host = forwarded.chain, forwarded.scheme, forwarded.host
    elif client_address:
        forwarded_for = b"%b, %b" % (forwarded_for, client_address) if forwarded_for else client_address
    if forwarded_for:
        parts += (b"X-Forwarded-For: ", forwarded_for, b"\r\n")
    if original_host:
        parts += (b"X-Forwarded-Host: ", original_host, b"\r\n")
    if authorization:
        parts += (b"Authorization: ", authorization, b"\r\n")
    parts += (b"X-Forwarded-Proto: ", scheme, b"\r\nX-Request-Id: ", request_id, b"\r\n")
    if body_length is None:
        parts.append(b"Transfer-Encoding: chunked\r\n")
    elif body_length or method not in _BODILESS_METHODS:
        parts.append(b"Content-Length: %d\r\n" % body_length)
    parts += (added, b"\r\n")
    return b"".join(parts)


def question_head(target: bytes, host: bytes, authorization: bytes | None = None) -> bytes:
    """Return the head of a GET that the router itself asks of a backend, blank line included.

    authorization: what it logs in with, None without. The connection ends with the answer.
    """
    login = b"Authorization: %b\r\n" % authorization if authorization else b""
    head = b"GET %b HTTP/1.1\r\nHost: %b\r\nUser-Agent: prefix-router\r\n%bConnection: close\r\n\r\n"
    return head % (target, host, login)


def post_head(target: bytes, host: bytes, length: int, authorization: bytes | None = None) -> bytes:
    """Return the head of a POST of JSON that the router itself sends to a backend, blank line included.

    length: of the body, in bytes. authorization: as for `question_head`. The connection ends with the answer.
    """
    lines = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % length
    if authorization:
        lines += b"Authorization: %b\r\n" % authorization
    head = b"POST %b HTTP/1.1\r\nHost: %b\r\nUser-Agent: prefix-router\r\n%bConnection: close\r\n\r\n"
    return head % (target, host, lines)


def response_lines(headers: RawHeaders, named: frozenset[bytes] | None = None) -> bytes:
    """Return the end-to-end headers of a backend's response as they go on the wire, each with its line end.

    Its framing is left to the sender. named: as for `request_head`.
    """
    if named is None:
        named = named_by_connection(value for name, value in headers if name.lower() == b"connection")
    replaced = _REPLACED_DOWNSTREAM | named if named else _REPLACED_DOWNSTREAM
    return b"".join([b"%b: %b\r\n" % pair for pair in headers if pair[0].lower() not in replaced])


def is_valid_request_id(value: str) -> bool:
    """Whether a client's request id may be taken over: short, visible ASCII."""
    visible = value.isascii() and value.isprintable() and " " not in value
    return visible and 0 < len(value) <= REQUEST_ID_MAX_LENGTH


def origin_form(target: bytes) -> bytes:
    """Return path and query of a request target; an absolute one (`http://h/p`) loses its authority."""
    if target.startswith(b"/") or target == b"*":
        return target
    _, separator, rest = target.partition(b"://")
    if not separator:
        return b"/" + target
    cut = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
    path = rest[cut:]
    return path if path.startswith(b"/") else b"/" + path


def has_dot_segments(target: bytes) -> bool:
    """Whether the path of a target climbs (`/../`, also percent-encoded): it could leave a path prefix."""
    path = target.partition(b"?")[0].lower().replace(b"%2e", b".").replace(b"%2f", b"/")
    return any(segment in (b".", b"..") for segment in path.replace(b"\\", b"/").split(b"/"))


def named_by_connection(values: Iterable[bytes]) -> frozenset[bytes]:
    """Return the header names, in lower case, that `Connection` headers of these values list."""
    return frozenset(token.strip().lower() for value in values for token in value.split(b","))
