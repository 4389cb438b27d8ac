"""An authority for one test, and what it signs, as files and as contexts."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Files:
    """A certificate with its chain, and its key, in PEM."""

    certificate: Path
    key: Path

    @property
    def settings(self) -> dict[str, str]:
        return {"certificate": str(self.certificate), "key": str(self.key)}


class Authority:
    """Signs certificates into `directory`. `path` is its own certificate."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._ca = trustme.CA()
        self.path = directory / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.path))

    def issue(self, file: str, *names: str, expired: bool = False) -> Files:
        """Write a certificate for `names` to `file`, over the one that may be there."""
        now = datetime.now(UTC)
        end = now - timedelta(days=1) if expired else now + timedelta(days=1)
        leaf = self._ca.issue_cert(*names, not_before=now - timedelta(days=2), not_after=end)
        files = Files(self._directory / f"{file}.crt", self._directory / f"{file}.key")
        leaf.private_key_pem.write_to_path(str(files.key))
        files.certificate.write_bytes(b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        return files

    def client(self, files: Files | None = None) -> ssl.SSLContext:
        """A client that trusts this authority, and shows `files`."""
        context = ssl.create_default_context(cafile=str(self.path))
        if files is not None:
            context.load_cert_chain(files.certificate, files.key)
        return context

    def server(self, files: Files, *, asks_clients: bool = False) -> ssl.SSLContext:
        """A server that shows `files`; asks_clients: for a certificate of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        if asks_clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.path)
        return context
