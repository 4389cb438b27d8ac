"""The section about who may use the data port: one entry for each client, with the hashes of its keys."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from prefix_router.settings.patterns import CLIENT, CLIENT_PATTERN, SHA256, SHA256_PATTERN


class ClientSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One client of the data port, and how it shows who it is.

    name: What the access log calls the client, and reports of reloads.
    key_sha256: Hashes of its keys, at most 4, as `prefix-router hash-key` prints them; each key is good. Have
        two while a key is replaced.
    """

    name: Annotated[str, Meta(pattern=CLIENT_PATTERN, extra=CLIENT)]
    key_sha256: Annotated[
        tuple[Annotated[str, Meta(pattern=SHA256_PATTERN, extra=SHA256)], ...], Meta(min_length=1)
    ]
