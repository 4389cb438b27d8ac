"""The sections about TLS: of a listener, and of connections to backends.

Paths of files in PEM. What is in the files is read when the router starts and on each reload, so that a
renewed certificate is taken over by a reload of unchanged settings. `settings.rules_security` says whether
the files can be used.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from prefix_router.settings.patterns import FILE


class ListenerTlsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS of a listener, version 1.2 or newer. Without a certificate it speaks plain HTTP.

    certificate: File with the certificate and those between it and a root, in PEM; null for plain HTTP. A
        reload reads it again, whether its path has changed or not: renew the file, then reload.
    key: File with the certificate's private key, in PEM, without a passphrase. Let only the router's user
        read it.
    client_ca: File with certificates of authorities, in PEM; clients must then show a certificate that one of
        them has signed. null asks clients for none. Set it when only your gateway may connect.
    """

    certificate: Annotated[str, Meta(min_length=1, extra=FILE)] | None = None
    key: Annotated[str, Meta(min_length=1, extra=FILE)] | None = None
    client_ca: Annotated[str, Meta(min_length=1, extra=FILE)] | None = None


class BackendTlsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS towards backends with an https:// URL, probes included.

    ca: File with the authorities that backends' certificates are checked against, in PEM; null uses the
        system's. Set it when your backends have certificates of an authority of your own.
    certificate: File with a certificate that the router shows to backends, in PEM; null shows none. Set it
        when backends ask for one.
    key: File with the private key of that certificate, in PEM, without a passphrase.
    verify: Check who a backend is. false believes anybody who answers at its address, who can then read and
        change everything: only to find out whether a certificate is what is wrong.
    """

    ca: Annotated[str, Meta(min_length=1, extra=FILE)] | None = None
    certificate: Annotated[str, Meta(min_length=1, extra=FILE)] | None = None
    key: Annotated[str, Meta(min_length=1, extra=FILE)] | None = None
    verify: bool = True
