"""When a certificate ends, read from its own bytes.

Python's `ssl` tells that of the other side's certificate, not of ours, and an operator wants to be woken
before ours has ended. Of X.509 (RFC 5280, section 4.1) this reads as much as it takes to get to `notAfter`:
five elements of DER, each a tag, a length and that many bytes. Pure, O(length).
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_BEFORE_VALIDITY = 3
"""Serial number, algorithm and issuer."""


def ends_at(pem: str) -> float | None:
    """Return when the first certificate of a PEM text ends, in Unix seconds; None where it cannot be read."""
    begin = pem.find(_BEGIN)
    end = pem.find(_END, begin)
    if begin < 0 or end < 0:
        return None
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_END)]))
    except (ValueError, IndexError):
        return None


def _not_after(der: bytes) -> float:
    certificate = _content(der, 0, _SEQUENCE)[0]
    body = _content(certificate, 0, _SEQUENCE)[0]
    at = _content(body, 0)[1] if body[0] == _VERSION else 0
    for _ in range(_BEFORE_VALIDITY):
        at = _content(body, at)[1]
    validity = _content(body, at, _SEQUENCE)[0]
    second = _content(validity, 0)[1]
    text = _content(validity, second)[0].decode("ascii")
    tag = validity[second]
    if tag == _UTC_TIME:  # two digits of the year; RFC 5280 puts them between 1950 and 2049
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _content(der: bytes, at: int, tag: int | None = None) -> tuple[bytes, int]:
    """Return the content of the element at `at`, and where the next one begins. Raises ValueError."""
    if tag is not None and der[at] != tag:
        raise ValueError("another element")
    length, begin = der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, begin = int.from_bytes(der[begin : begin + size], "big"), begin + size
    if begin + length > len(der):
        raise ValueError("too short")
    return der[begin : begin + length], begin + length
