from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.certificate_end import ends_at
from tests.support.certificates import Authority

PEM = trustme.CA().issue_cert("a.example").cert_chain_pems[0].bytes().decode()


@pytest.mark.parametrize("end", [datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC), datetime(2061, 1, 2, tzinfo=UTC)])
def test_the_end_is_read_in_both_ways_of_writing_a_time(end: datetime) -> None:
    pem = trustme.CA().issue_cert("a.example", not_after=end).cert_chain_pems[0].bytes().decode()
    assert ends_at(pem) == end.timestamp()


def test_the_first_certificate_of_a_chain_counts_and_what_stands_before_it_does_not(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("a", "a.example")
    pem = files.certificate.read_text()
    first = x509.load_pem_x509_certificates(pem.encode())[0]
    assert ends_at(f"a comment\n{pem}") == first.not_valid_after_utc.timestamp()


@pytest.mark.parametrize("pem", ["", "nothing", PEM[:200], PEM.replace("MII", "AAA"), PEM[30:]])
def test_what_cannot_be_read_has_no_end(pem: str) -> None:
    assert ends_at(pem) is None


@given(st.binary(max_size=200), st.integers(0, 400))
def test_no_bytes_make_it_fail(noise: bytes, at: int) -> None:
    der = bytearray(ssl.PEM_cert_to_DER_cert(PEM))
    der[at : at + len(noise)] = noise
    ends_at(ssl.DER_cert_to_PEM_cert(bytes(der)))
