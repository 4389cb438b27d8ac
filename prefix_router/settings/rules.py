"""Rules that look at more than one setting, or at the machine: what no single annotation can say.

Each rule yields `Violation`s. One that rests on a value which is itself wrong is dropped: the operator
has been told of that value already, and the rule saw its default. Rules may look whether a file exists;
they never open a socket or resolve a name.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from prefix_router.settings.backend_url import host_port
from prefix_router.settings.model import PrefixDepth, PrefixUnit
from prefix_router.settings.rules_clients import CLIENT_RULES
from prefix_router.settings.rules_discovery import DISCOVERY_RULES
from prefix_router.settings.rules_security import SECURITY_RULES, names_fit_urls
from prefix_router.settings.violation import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prefix_router.settings.convert import Draft
    from prefix_router.settings.problems import Problem


def violations(draft: Draft) -> Iterator[Problem]:
    """Check all rules."""
    for rule in (
        _some_backend,
        _backends_differ,
        _listeners_differ,
        _tokenizer_usable,
        _kv_events_usable,
        _metrics_interval,
        _workers_possible,
        _tracing_possible,
        _capture_possible,
        *DISCOVERY_RULES,
        *SECURITY_RULES,
        *CLIENT_RULES,
    ):
        yield from _checked(rule, draft)


def violations_of_backends(draft: Draft) -> Iterator[Problem]:
    """Check the rules that are about backends alone, for a list of them outside of the configuration."""
    for rule in (_backends_differ, _kv_events_usable, names_fit_urls):
        yield from _checked(rule, draft)


def _checked(rule: Callable[[Draft], Iterator[Violation]], draft: Draft) -> Iterator[Problem]:
    for violation in rule(draft):
        if all(draft.is_sound(path) for path in violation.paths):
            place = violation.paths[0]
            yield draft.origin(place).problem(place, violation.message)


def _some_backend(draft: Draft) -> Iterator[Violation]:
    if not draft.settings.backends and not draft.settings.discovery.on:
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
    if prefix.depth is PrefixDepth.AUTO and prefix.unit is not PrefixUnit.TOKENS:
        yield Violation(
            ("routing.prefix.depth", "routing.prefix.unit"), f"expected fixed with unit {prefix.unit.value}"
        )
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


def _kv_events_usable(draft: Draft) -> Iterator[Violation]:
    tokenizer = "routing.prefix.tokenizer"
    taken: dict[tuple[str, int], str] = {}
    for backend, path in zip(draft.settings.backends, draft.backend_paths, strict=True):
        place = f"{path}.kv_events"
        if backend.kv_events is None:
            if backend.kv_events_replay is not None:
                message = "expected null without kv_events: there is nothing to have again"
                yield Violation((f"{path}.kv_events_replay", place), message)
            continue
        if draft.settings.routing.prefix.tokenizer is None:
            message = f"needs {tokenizer}, which makes tokens of prompts as the model does"
            yield Violation((place, tokenizer), message)
        if any(find_spec(package) is None for package in ("zmq", "jinja2", "tokenizers")):
            message = "needs an extra that is not installed: pip install prefix_router[events]"
            yield Violation((place,), message)
        for name, address in (
            ("kv_events", backend.kv_events),
            ("kv_events_replay", backend.kv_events_replay),
        ):
            yield from _ports_free(draft, path, name, address, backend.kv_events_ranks, taken)


def _ports_free(
    draft: Draft, path: str, name: str, address: str | None, ranks: int, taken: dict[tuple[str, int], str]
) -> Iterator[Violation]:
    """Each engine has ports of its own; add them to those that are `taken`."""
    if address is None:
        return
    place = f"{path}.{name}"
    host, _, first = address.removeprefix("tcp://").rpartition(":")
    ports = range(int(first), int(first) + ranks)
    if ports[-1] > 65_535:
        message = f"expected ports up to 65535, got {ports[-1]} for the last of kv_events_ranks"
        yield Violation((place, f"{path}.kv_events_ranks"), message)
        return
    for port in ports:
        other = taken.setdefault((host.lower(), port), place)
        if other != place:
            message = f"expected a port of its own, {port} is that of {other} ({draft.origin(other)})"
            yield Violation((place, other), message)
            return


def _metrics_interval(draft: Draft) -> Iterator[Violation]:
    interval = draft.settings.engine_metrics.interval_seconds
    if 0 < interval < 1:
        message = f"expected 0 (never) or a number from 1 to 3600, got {interval:g}"
        yield Violation(("engine_metrics.interval_seconds",), message)


def _tracing_possible(draft: Draft) -> Iterator[Violation]:
    tracing = draft.settings.tracing
    if tracing.endpoint is None:
        return
    if not _installed("opentelemetry.proto"):
        message = "needs an extra that is not installed: pip install prefix_router[tracing]"
        yield Violation(("tracing.endpoint",), message)


def _installed(*packages: str) -> bool:
    try:
        return all(find_spec(package) is not None for package in packages)
    except ModuleNotFoundError:  # not even what is above it
        return False


def _capture_possible(draft: Draft) -> Iterator[Violation]:
    path = draft.settings.capture.path
    if path is None:
        return
    if Path(path).is_dir() or not Path(path).parent.is_dir():
        yield Violation(("capture.path",), f"expected a file in a directory that exists, got {path}")


def _workers_possible(draft: Draft) -> Iterator[Violation]:
    if draft.settings.workers > 1 and not hasattr(os, "memfd_create"):
        yield Violation(("workers",), "expected 1: several processes share memory in a way that needs Linux")
