"""Rules that look at more than one setting, or at the machine: what no single annotation can say.

Each rule yields `Violation`s. One that rests on a value which is itself wrong is dropped: the operator
has been told of that value already, and the rule saw its default. Rules may look whether a file exists;
they never open a socket or resolve a name.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from prefix_router.settings.backend_url import host_port
from prefix_router.settings.model import PrefixUnit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefix_router.settings.convert import Draft
    from prefix_router.settings.problems import Problem


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule, told at the first of `paths`. All of `paths` are the settings that it rests on."""

    paths: tuple[str, ...]
    message: str


def violations(draft: Draft) -> Iterator[Problem]:
    """Check all rules."""
    for rule in (
        _some_backend,
        _backends_differ,
        _listeners_differ,
        _tokenizer_usable,
        _metrics_interval,
        _workers_possible,
    ):
        for violation in rule(draft):
            if all(draft.is_sound(path) for path in violation.paths):
                place = violation.paths[0]
                yield draft.origin(place).problem(place, violation.message)


def _some_backend(draft: Draft) -> Iterator[Violation]:
    if not draft.settings.backends:
        yield Violation(("backends",), "expected at least one backend, in the file or as --backend URL")


def _backends_differ(draft: Draft) -> Iterator[Violation]:
    names: dict[str, str] = {}
    urls: dict[str, str] = {}
    for backend, path in zip(draft.settings.backends, draft.backend_paths, strict=True):
        first = urls.setdefault(backend.url, path)
        if first != path:
            message = f"expected each backend once; {backend.url} was given before ({draft.origin(first)})"
            yield Violation((f"{path}.url", f"{first}.url"), message)
            continue
        first = names.setdefault(backend.name, path)
        if first != path:
            message = f'expected a name of its own; "{backend.name}" was given before ({draft.origin(first)})'
            yield Violation((f"{path}.name", f"{first}.name"), message)


def _listeners_differ(draft: Draft) -> Iterator[Violation]:
    listen, admin = draft.settings.listen, draft.settings.admin
    if listen.port == admin.port != 0 and _overlap(listen.host, admin.host):
        paths = ("admin.port", "listen.port", "admin.host", "listen.host")
        message = (
            f"listen {host_port(listen.host, listen.port)} and admin {host_port(admin.host, admin.port)} "
            "cannot both be bound; expected another port for one of them"
        )
        yield Violation(tuple(sorted(paths, key=lambda path: not draft.is_given(path))), message)


def _overlap(one: str, other: str) -> bool:
    """Whether one address is the other or covers it, as far as that shows without resolving names."""
    ours, theirs = _addresses(one), _addresses(other)
    return bool(ours & theirs) or any(
        wildcard in first and any((":" in address) == (":" in wildcard) for address in second)
        for wildcard in ("0.0.0.0", "::")
        for first, second in ((ours, theirs), (theirs, ours))
    )


def _addresses(host: str) -> frozenset[str]:
    if host.lower() == "localhost":
        return frozenset(("127.0.0.1", "::1"))
    try:
        return frozenset((ip_address(host).compressed,))
    except ValueError:
        return frozenset((host.lower(),))


def _tokenizer_usable(draft: Draft) -> Iterator[Violation]:
    prefix = draft.settings.routing.prefix
    place = "routing.prefix.tokenizer"
    if prefix.tokenizer is None:
        return
    if prefix.unit is not PrefixUnit.TOKENS:
        message = f"expected null with unit {prefix.unit.value}: a tokenizer counts tokens"
        yield Violation((place, "routing.prefix.unit"), message)
    if not Path(prefix.tokenizer).is_file():
        yield Violation((place,), f"expected the path of a tokenizer.json, found no file {prefix.tokenizer}")
    if find_spec("tokenizers") is None:
        yield Violation(
            (place,), "needs an extra that is not installed: pip install prefix_router[tokenizer]"
        )


def _metrics_interval(draft: Draft) -> Iterator[Violation]:
    interval = draft.settings.engine_metrics.interval_seconds
    if 0 < interval < 1:
        message = f"expected 0 (never) or a number from 1 to 3600, got {interval:g}"
        yield Violation(("engine_metrics.interval_seconds",), message)


def _workers_possible(draft: Draft) -> Iterator[Violation]:
    if draft.settings.workers > 1 and not hasattr(os, "memfd_create"):
        yield Violation(("workers",), "expected 1: several processes share memory in a way that needs Linux")
