from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from prefix_router.tls import BackendFiles, ListenerFiles, TlsFileError, backend_tls, listener_tls
from tests.support.certificates import Authority, Files


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def listener_files(files: Files, client_ca: Path | None = None) -> ListenerFiles:
    return ListenerFiles(
        str(files.certificate), str(files.key), None if client_ca is None else str(client_ca)
    )


def test_a_listener_speaks_tls_1_2_or_newer_and_asks_nobody_unless_told(authority: Authority) -> None:
    tls = listener_tls(listener_files(authority.issue("a", "a.example")))
    assert tls is not None
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert tls.context.verify_mode is ssl.CERT_NONE
    asking = listener_tls(listener_files(authority.issue("a", "a.example"), authority.path))
    assert asking is not None
    assert asking.context.verify_mode is ssl.CERT_REQUIRED
    assert listener_tls(None) is None


def test_backends_are_checked_unless_told_not_to(authority: Authority) -> None:
    checking = backend_tls(BackendFiles(ca=str(authority.path))).context
    assert (checking.verify_mode, checking.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(checking.get_ca_certs()) == 1
    assert backend_tls(BackendFiles()).context.verify_mode is ssl.CERT_REQUIRED
    trusting = backend_tls(BackendFiles(verify=False)).context
    assert (trusting.verify_mode, trusting.check_hostname) == (ssl.CERT_NONE, False)


def test_a_context_is_made_anew_exactly_when_its_files_are_renewed(authority: Authority) -> None:
    files = listener_files(authority.issue("a", "a.example"))
    first = listener_tls(files)
    assert listener_tls(files, first) is first
    authority.issue("a", "a.example")
    second = listener_tls(files, first)
    assert second is not first
    backends = BackendFiles(str(authority.path))
    to_backends = backend_tls(backends)
    assert backend_tls(backends, to_backends) is to_backends
    authority.path.write_bytes(authority.path.read_bytes() + b"\n")
    assert backend_tls(backends, to_backends) is not to_backends


def test_each_mistake_names_its_setting_and_shows_nothing_of_a_file(
    authority: Authority, tmp_path: Path
) -> None:
    good, other = authority.issue("good", "a.example"), authority.issue("other", "a.example")
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing to see")
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nsecret\n-----END CERTIFICATE-----\n")
    locked = tmp_path / "locked.key"
    key = load_pem_private_key(good.key.read_bytes(), None)
    locked.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"passphrase"))
    )
    certificate = str(good.certificate)
    cases = [
        (ListenerFiles("/none/x.crt", str(good.key)), "certificate", "cannot be read: No such file"),
        (ListenerFiles(certificate, "/none/x.key"), "key", "cannot be read: No such file"),
        (ListenerFiles(str(empty), str(good.key)), "certificate", "expected a certificate in PEM"),
        (ListenerFiles(certificate, str(empty)), "key", "expected a private key in PEM"),
        (ListenerFiles(certificate, str(locked)), "key", "expected a key without a passphrase"),
        (ListenerFiles(certificate, str(other.key)), "key", "does not belong to the certificate"),
        (ListenerFiles(str(broken), str(good.key)), "certificate", "cannot be used together"),
        (ListenerFiles(certificate, str(good.key), str(empty)), "client_ca", "expected certificates in PEM"),
        (ListenerFiles(certificate, str(good.key), str(broken)), "client_ca", "cannot be used"),
    ]
    for files, name, message in cases:
        with pytest.raises(TlsFileError, match=message) as failure:
            listener_tls(files)
        assert failure.value.name == name
        assert "secret" not in str(failure.value)
    with pytest.raises(TlsFileError, match="cannot be read") as failure:
        backend_tls(BackendFiles(ca="/none/ca.pem"))
    assert failure.value.name == "ca"


def test_a_renewed_bundle_of_the_system_is_noticed(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    first = backend_tls(BackendFiles())
    assert backend_tls(BackendFiles(), first) is first
    os.utime(authority.path, (1, 1))
    assert backend_tls(BackendFiles(), first) is not first
