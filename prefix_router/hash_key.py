"""`prefix-router hash-key`: the SHA-256 of a secret, which a configuration holds in place of the secret.

The secret comes from a prompt that does not show it, or from standard input, never from an argument: other
users of the host can read arguments, and a shell writes them into its history. A plain hash is enough for
secrets that are random and long, and `--generate` makes such ones; for a word that somebody thought of, any
hash can be guessed, so short ones are refused.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
from getpass import getpass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse

MIN_CHARACTERS: Final = 16
"""A shorter secret can be guessed from its hash."""

PREFIX: Final = "prk-"
"""What generated keys begin with, so that people and scanners of repositories recognise one."""

_RANDOM_BYTES = 32


class UnusableSecretError(Exception):
    """A text that is no secret worth hashing. The message says why and never repeats it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--generate", action="store_true", help="make a new random key, and print it and its hash"
    )


def run(arguments: argparse.Namespace) -> int:
    """Hash one secret; return the exit status."""
    if arguments.generate:
        key = generated()
        print(f"key     {key}")
        print(f"sha256  {hashed(key)}")
        return 0
    try:
        print(hashed(_asked() if sys.stdin.isatty() else _piped()))
    except UnusableSecretError as error:
        print(f"prefix-router hash-key: {error}", file=sys.stderr)
        return 2
    return 0


def generated() -> str:
    """Return a new key of 256 random bits, which needs no quotes anywhere."""
    return PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def hashed(secret: str) -> str:
    """Return the hash in hex, as `admin.token_sha256` wants it. Raises UnusableSecretError."""
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise UnusableSecretError("expected printable ASCII without spaces: it travels in a header")
    if len(secret) < MIN_CHARACTERS:
        raise UnusableSecretError(
            f"expected at least {MIN_CHARACTERS} characters; --generate makes a good one"
        )
    return hashlib.sha256(secret.encode()).hexdigest()


def _asked() -> str:
    """Ask twice at the terminal, which shows nothing of it."""
    secret = getpass("secret: ")
    if getpass("once more: ") != secret:
        raise UnusableSecretError("the two are not the same")
    return secret


def _piped() -> str:
    """Read one line: `echo` and editors end it with a line feed, which is not part of the secret."""
    text = sys.stdin.read()
    lines = text.splitlines()
    if len(lines) != 1:
        raise UnusableSecretError("expected one line on standard input")
    return lines[0]
