"""TLS contexts made from files, for the listeners and for the way to backends.

A context is made whole and then used, never changed: a renewed certificate is a new context, which holds for
connections made from then on. One that would be made of the same bytes is not made again, so that a reload
which renews nothing does not make backends shake hands anew.

Reads files and blocks; not for the event loop. Each mistake names the setting that it belongs to. Nothing of
a file ever gets into a message.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import astuple, dataclass
from hashlib import sha256
from pathlib import Path

from prefix_router.certificate_end import ends_at

HANDSHAKE_SECONDS = 10.0
"""How long a client may take for a handshake: some round trips, and the time of its own processor."""

SHUTDOWN_SECONDS = 2.0
"""How long the other side may take to say goodbye in TLS before its connection is simply closed."""

_PROTOCOLS = ["http/1.1"]
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_KEY = b"PRIVATE KEY-----"
_MAX_FILE_BYTES = 8 * 1024 * 1024


class TlsFileError(Exception):
    """A file that cannot be used. name: of its setting in the section. The message completes that name."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True, slots=True)
class ListenerFiles:
    """Paths of a listener's files, named like its settings."""

    certificate: str
    key: str
    client_ca: str | None = None


@dataclass(frozen=True, slots=True)
class BackendFiles:
    """Paths of the files for the way to backends, named like its settings."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Tls:
    """A context, and a mark that differs whenever what it was made of differs.

    ends_at: when the certificate that is shown ends, in Unix seconds; None without one.
    """

    context: ssl.SSLContext
    mark: bytes
    ends_at: float | None = None


def listener_tls(files: ListenerFiles | None, previous: Tls | None = None) -> Tls | None:
    """Return what a listener speaks; None for plain HTTP. `previous` comes back when nothing has changed.

    Raises TlsFileError.
    """
    if files is None:
        return None
    mark = _mark(files)
    if previous is not None and previous.mark == mark:
        return previous
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _common(context)
    end = _show(context, files.certificate, files.key)
    if files.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _trust(context, "client_ca", files.client_ca)
    return Tls(context, mark, end)


def backend_tls(files: BackendFiles, previous: Tls | None = None) -> Tls:
    """Return what the router speaks to `https://` backends. As `listener_tls`."""
    mark = _mark(files)
    if previous is not None and previous.mark == mark:
        return previous
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _common(context)
    if not files.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif files.ca is None:
        context.load_default_certs()
    else:
        _trust(context, "ca", files.ca)
    end = None
    if files.certificate is not None and files.key is not None:
        end = _show(context, files.certificate, files.key)
    return Tls(context, mark, end)


def _common(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_PROTOCOLS)


def _show(context: ssl.SSLContext, certificate: str, key: str) -> float | None:
    """Have a context show a certificate; return when that ends. Raises TlsFileError."""
    pem = _read("certificate", certificate)
    if _CERTIFICATE not in pem:
        raise TlsFileError("certificate", f"expected a certificate in PEM, found none in {certificate}")
    if _KEY not in _read("key", key):
        raise TlsFileError("key", f"expected a private key in PEM, found none in {key}")
    try:
        # Without an answer to the question for a passphrase, OpenSSL would ask at the terminal.
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except _PassphraseError:
        raise TlsFileError("key", f"expected a key without a passphrase, {key} has one") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsFileError("key", f"{key} does not belong to the certificate {certificate}") from None
        cause = (error.reason or "not readable").replace("_", " ").lower()
        message = f"{certificate} and {key} cannot be used together: {cause}"
        raise TlsFileError("certificate", message) from None
    return ends_at(pem.decode("ascii", "replace"))


def _trust(context: ssl.SSLContext, name: str, path: str) -> None:
    """Have a context trust the authorities of a file. Raises TlsFileError."""
    if _CERTIFICATE not in _read(name, path):
        raise TlsFileError(name, f"expected certificates in PEM, found none in {path}")
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        cause = (error.reason or "not readable").replace("_", " ").lower()
        raise TlsFileError(name, f"{path} cannot be used: {cause}") from None


class _PassphraseError(Exception):
    """Raised where OpenSSL asks for a passphrase."""


def _no_passphrase() -> str:
    raise _PassphraseError


def _read(name: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MAX_FILE_BYTES)
    except OSError as error:
        raise TlsFileError(name, f"{path} cannot be read: {error.strerror}") from None


def _mark(files: ListenerFiles | BackendFiles) -> bytes:
    """A digest of the settings and of all bytes that they name; of the system's authorities, their dates."""
    digest = sha256(repr(files).encode())
    names = files.__dataclass_fields__
    for name, path in zip(names, astuple(files), strict=True):
        if isinstance(path, str):
            digest.update(sha256(_read(name, path)).digest())
    if isinstance(files, BackendFiles) and files.ca is None:
        system = ssl.get_default_verify_paths()
        for place in (system.cafile, system.capath):
            if place is not None and os.path.exists(place):
                digest.update(str(os.stat(place).st_mtime_ns).encode())
    return digest.digest()
