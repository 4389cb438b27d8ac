"""Rules about clients and their keys. What a rule is: `settings.rules`. No message shows a hash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prefix_router.settings.violation import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefix_router.settings.convert import Draft

MAX_KEYS: Final = 4
"""Two are enough to replace a key; each one is compared with every request's."""


def clients_differ(draft: Draft) -> Iterator[Violation]:
    """Each name and each key belongs to one client, and no client has too many keys."""
    if not draft.is_sound("clients"):
        return  # positions of what is left are not those in the file
    names: dict[str, str] = {}
    keys: dict[str, str] = {}
    for at, client in enumerate(draft.settings.clients):
        path = f"clients[{at}]"
        first = names.setdefault(client.name, path)
        if first != path:
            message = f'expected a name of its own; "{client.name}" was given before ({draft.origin(first)})'
            yield Violation((f"{path}.name",), message)
        if len(client.key_sha256) > MAX_KEYS:
            message = f"expected at most {MAX_KEYS} hashes, got {len(client.key_sha256)}"
            yield Violation((f"{path}.key_sha256",), message)
        for index, digest in enumerate(client.key_sha256):
            place = f"{path}.key_sha256[{index}]"
            first = keys.setdefault(digest.lower(), place)
            if first != place:
                message = f"expected a key of its own; this hash was given before ({draft.origin(first)})"
                yield Violation((place,), message)


CLIENT_RULES = (clients_differ,)
